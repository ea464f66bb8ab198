// Links between cores: a 2-D torus of chips with one link in each direction between neighbours, a
// port a core in each direction. Routing is x, then y, in each ring the shorter way round; where
// both are equally long, chips at even places go up and chips at odd places down, which spreads
// pairwise exchanges over both directions. Cores of one chip meet in the chip's router. Constants:
// docs/timing_model.md.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <vector>

#include "board/board_loader.hpp"
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
    bool up = true;  // else down; the same link in a ring of two chips
    auto operator<=>(const Hop&) const = default;
  };
  ResourceId link(const Hop& hop) const {
    const Router& router = routers_[hop.chip];
    return router.link[hop.y ? 1 : 0][hop.up ? 0 : 1];
  }
  struct Way {
    static constexpr int kMost = kMostLinks;  // half of each ring
    std::array<Hop, kMost> hop{};
    uint32_t count = 0;
  };
  // Two HBMs, each for the cores of a chip at once, the ports, and the links on the way.
  static_assert(4 + 2 + Way::kMost <= Transfer::kMaxResources);
  Way way(uint32_t from, uint32_t to) const;
  /// Everything that a transfer from one core to another passes.
  void add_path(uint32_t from, uint32_t to, Transfer& transfer) const;

 private:
  // Chips of a row (x) or of a column (y).
  struct Ring {
    uint32_t size;
    uint32_t stride;  // chip numbers from one place to the next
  };
  struct Router {
    std::array<std::array<ResourceId, 2>, 2> link{};  // outgoing, by x or y; up, down
  };

  void go_round(bool y, uint32_t& chip, uint32_t end, Way& way) const;

  const uint32_t cores_;
  const uint32_t cores_per_chip_;
  const std::array<Ring, 2> rings_;  // x, y
  const uint64_t local_cycles_;
  const uint64_t hop_cycles_;
  const uint64_t extra_hop_cycles_;
  const uint64_t control_hop_cycles_;
  std::vector<ResourceId> out_port_;  // by core
  std::vector<ResourceId> in_port_;
  std::vector<Router> routers_;  // by chip
};

}  // namespace tpu::spec
