// Paths and latencies of the torus. With at most two chips in a direction a ring has one neighbour,
// so a direction is one hop or none.
#include "ici/ici.hpp"

#include "board/board_loader.hpp"

namespace tpu::model {

Ici::Ici(sc_core::sc_module_name name, const spec::BoardParams& params, FluidShare& fluid)
    : sc_module(name),
      cores_(static_cast<uint32_t>(spec::core_count(params))),
      cores_per_chip_(static_cast<uint32_t>(params.board.cores_per_chip)),
      torus_x_(static_cast<uint32_t>(params.board.torus_x)),
      local_cycles_(spec::cycles_from_ns(params, params.ici.local_ns)),
      hop_cycles_(spec::cycles_from_ns(params, params.ici.hop_ns)),
      extra_hop_cycles_(spec::cycles_from_ns(params, params.ici.extra_hop_ns)),
      control_hop_cycles_(spec::cycles_from_ns(params, params.ici.control_hop_ns)) {
  core_port.init(cores_);
  const auto port = [&] {
    return fluid.add_resource_gbps(params.ici.core_port_gbps, 100, params.core.clock_mhz);
  };
  const auto link = [&] {
    return fluid.add_resource_gbps(params.ici.link_gbps, params.ici.efficiency_percent,
                                   params.core.clock_mhz);
  };
  for (uint32_t core = 0; core < cores_; ++core) {
    out_port_.push_back(port());
    in_port_.push_back(port());
  }
  for (uint32_t chip = 0; chip < cores_ / cores_per_chip_; ++chip) {
    Router router;
    router.x = link();
    router.y = link();
    routers_.push_back(router);
  }
}

uint32_t Ici::hops(uint32_t from, uint32_t to) const {
  const uint32_t a = from / cores_per_chip_;
  const uint32_t b = to / cores_per_chip_;
  return (a % torus_x_ != b % torus_x_ ? 1u : 0u) + (a / torus_x_ != b / torus_x_ ? 1u : 0u);
}

void Ici::add_path(uint32_t from, uint32_t to, Flow& flow) const {
  const uint32_t a = from / cores_per_chip_;
  const uint32_t b = to / cores_per_chip_;
  flow.add(out_port_[from]);
  uint32_t at = a;
  if (a % torus_x_ != b % torus_x_) {
    flow.add(routers_[at].x);
    at = at - at % torus_x_ + b % torus_x_;
  }
  if (at / torus_x_ != b / torus_x_) {
    flow.add(routers_[at].y);
  }
  flow.add(in_port_[to]);
}

uint64_t Ici::data_latency(uint32_t from, uint32_t to) const {
  const uint32_t count = hops(from, to);
  return count == 0 ? local_cycles_ : hop_cycles_ + (count - 1) * extra_hop_cycles_;
}

// A packet between cores of one chip passes the router too: it counts as one hop.
uint64_t Ici::control_latency(uint32_t from, uint32_t to) const {
  const uint32_t count = hops(from, to);
  return control_hop_cycles_ * (count == 0 ? 1 : count);
}

}  // namespace tpu::model
