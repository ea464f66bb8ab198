// Inter-chip interconnect of the board, data side: ways, latencies and bandwidth are those of
// spec/command/links.hpp, shared by kernel/fluid_share. Not modelled: packets, virtual channels,
// flow control, link errors.
#pragma once

#include <cstdint>
#include <systemc>

#include "command/links.hpp"
#include "kernel/fluid_share.hpp"
#include "kernel/remote_if.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::model {

class Ici : public sc_core::sc_module, public IciIf {
 public:
  // To core i: bind to that core's remote_export.
  sc_core::sc_vector<sc_core::sc_port<RemoteIf>> core_port{"core_port"};

  Ici(sc_core::sc_module_name name, const spec::BoardParams& params, FluidShare& fluid);

  uint32_t cores() const override { return links_.cores(); }
  void add_path(uint32_t from, uint32_t to, Flow& flow) const override {
    links_.add_path(from, to, flow);
  }
  uint64_t data_latency(uint32_t from, uint32_t to) const override {
    return links_.data_latency(from, to);
  }
  uint64_t control_latency(uint32_t from, uint32_t to) const override {
    return links_.control_latency(from, to);
  }
  RemoteIf& peer(uint32_t core) override { return *core_port[core].operator->(); }

  // Links between the chips of two cores.
  uint32_t hops(uint32_t from, uint32_t to) const { return links_.hops(from, to); }

 private:
  const spec::Links links_;
};

}  // namespace tpu::model
