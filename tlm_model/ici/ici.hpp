// Inter-chip interconnect of the board, data side: a 2-D torus of chips with one link in each
// direction between neighbours, a router a chip, a port a core in each direction. Routing is x,
// then y; the bandwidth of ports and links is shared by kernel/fluid_share. Cores of one chip meet
// in the router. Not modelled: packets, virtual channels, flow control, link errors. Constants:
// docs/timing_model.md.
#pragma once

#include <cstdint>
#include <systemc>
#include <vector>

#include "kernel/fluid_share.hpp"
#include "kernel/remote_if.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::model {

class Ici : public sc_core::sc_module, public IciIf {
 public:
  // To core i: bind to that core's remote_export.
  sc_core::sc_vector<sc_core::sc_port<RemoteIf>> core_port{"core_port"};

  Ici(sc_core::sc_module_name name, const spec::BoardParams& params, FluidShare& fluid);

  uint32_t cores() const override { return cores_; }
  void add_path(uint32_t from, uint32_t to, Flow& flow) const override;
  uint64_t data_latency(uint32_t from, uint32_t to) const override;
  uint64_t control_latency(uint32_t from, uint32_t to) const override;
  RemoteIf& peer(uint32_t core) override { return *core_port[core].operator->(); }

  // Links between the chips of two cores.
  uint32_t hops(uint32_t from, uint32_t to) const;

 private:
  struct Router {
    ResourceId x = -1;  // outgoing link to the neighbour in x, in y
    ResourceId y = -1;
  };

  const uint32_t cores_;
  const uint32_t cores_per_chip_;
  const uint32_t torus_x_;
  uint64_t local_cycles_;
  uint64_t hop_cycles_;
  uint64_t extra_hop_cycles_;
  uint64_t control_hop_cycles_;
  std::vector<ResourceId> out_port_;  // by core
  std::vector<ResourceId> in_port_;
  std::vector<Router> routers_;  // by chip
};

}  // namespace tpu::model
