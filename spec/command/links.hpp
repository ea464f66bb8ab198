// Links between cores: a 2-D torus of chips with one link in each direction between neighbours, a
// port a core in each direction. Routing is x, then y; cores of one chip meet in the chip's router.
// With at most two chips in a direction a ring has one neighbour, so a direction is one hop or
// none. Constants: docs/timing_model.md.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "command/bandwidth_share.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::spec {

class Links {
 public:
  /// Ports and links become resources of `share`.
  Links(const BoardParams& board, BandwidthShare& share);

  uint32_t cores() const { return cores_; }
  /// Links between the chips of two cores.
  uint32_t hops(uint32_t from, uint32_t to) const;
  uint64_t data_latency(uint32_t from, uint32_t to) const;
  /// A packet between cores of one chip passes the router too: it counts as one hop.
  uint64_t control_latency(uint32_t from, uint32_t to) const;

  ResourceId out_port(uint32_t core) const { return out_port_[core]; }
  ResourceId in_port(uint32_t core) const { return in_port_[core]; }
  /// A link that leaves a chip.
  struct Hop {
    uint32_t chip = 0;
    bool y = false;  // else x
  };
  ResourceId link(const Hop& hop) const {
    return hop.y ? routers_[hop.chip].y : routers_[hop.chip].x;
  }
  struct Way {
    std::array<Hop, 2> hop{};
    uint32_t count = 0;
  };
  Way way(uint32_t from, uint32_t to) const;
  /// Everything that a transfer from one core to another passes.
  void add_path(uint32_t from, uint32_t to, Transfer& transfer) const;

 private:
  struct Router {
    ResourceId x = -1;  // outgoing link to the neighbour in x, in y
    ResourceId y = -1;
  };

  const uint32_t cores_;
  const uint32_t cores_per_chip_;
  const uint32_t torus_x_;
  const uint64_t local_cycles_;
  const uint64_t hop_cycles_;
  const uint64_t extra_hop_cycles_;
  const uint64_t control_hop_cycles_;
  std::vector<ResourceId> out_port_;  // by core
  std::vector<ResourceId> in_port_;
  std::vector<Router> routers_;  // by chip
};

}  // namespace tpu::spec
