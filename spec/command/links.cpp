// Ways and latencies of the torus.
#include "command/links.hpp"

#include <algorithm>

namespace tpu::spec {

Links::Links(const BoardParams& board, BandwidthShare& share)
    : cores_(static_cast<uint32_t>(core_count(board))),
      cores_per_chip_(static_cast<uint32_t>(board.board.cores_per_chip)),
      rings_{{{static_cast<uint32_t>(board.board.torus_x), 1},
              {static_cast<uint32_t>(board.board.chips / board.board.torus_x),
               static_cast<uint32_t>(board.board.torus_x)}}},
      local_cycles_(cycles_from_ns(board, board.ici.local_ns)),
      hop_cycles_(cycles_from_ns(board, board.ici.hop_ns)),
      extra_hop_cycles_(cycles_from_ns(board, board.ici.extra_hop_ns)),
      control_hop_cycles_(cycles_from_ns(board, board.ici.control_hop_ns)) {
  const auto port = [&] {
    return share.add_resource_gbps(board.ici.core_port_gbps, 100, board.core.clock_mhz);
  };
  const auto link = [&] {
    return share.add_resource_gbps(board.ici.link_gbps, board.ici.efficiency_percent,
                                   board.core.clock_mhz);
  };
  for (uint32_t core = 0; core < cores_; ++core) {
    out_port_.push_back(port());
    in_port_.push_back(port());
  }
  for (uint32_t chip = 0; chip < cores_ / cores_per_chip_; ++chip) {
    Router router;
    for (size_t axis = 0; axis < rings_.size(); ++axis) {
      const ResourceId up = link();
      router.link[axis] = {up, rings_[axis].size > 2 ? link() : up};
    }
    routers_.push_back(router);
  }
}

uint32_t Links::hops(uint32_t from, uint32_t to) const { return way(from, to).count; }

uint64_t Links::data_latency(uint32_t from, uint32_t to) const {
  const uint32_t count = hops(from, to);
  return count == 0 ? local_cycles_ : hop_cycles_ + (count - 1) * extra_hop_cycles_;
}

uint64_t Links::control_latency(uint32_t from, uint32_t to) const {
  const uint32_t count = hops(from, to);
  return control_hop_cycles_ * (count == 0 ? 1 : count);
}

// Moves `chip` to the place of `end` in one ring.
void Links::go_round(bool y, uint32_t& chip, uint32_t end, Way& way) const {
  const Ring& ring = rings_[y ? 1 : 0];
  const uint32_t first = chip / ring.stride % ring.size;
  const uint32_t distance = (end / ring.stride % ring.size + ring.size - first) % ring.size;
  const bool up = 2 * distance == ring.size ? first % 2 == 0 : 2 * distance < ring.size;
  const uint32_t row = chip - first * ring.stride;
  for (uint32_t i = 0; i < std::min(distance, ring.size - distance); ++i) {
    way.hop[way.count++] = {chip, y, up};
    const uint32_t place = (first + (up ? i + 1 : ring.size - i - 1)) % ring.size;
    chip = row + place * ring.stride;
  }
}

Links::Way Links::way(uint32_t from, uint32_t to) const {
  Way way;
  uint32_t at = from / cores_per_chip_;
  const uint32_t end = to / cores_per_chip_;
  go_round(false, at, end, way);
  go_round(true, at, end, way);
  return way;
}

void Links::add_path(uint32_t from, uint32_t to, Transfer& transfer) const {
  transfer.add(out_port_[from]);
  const Way between = way(from, to);
  for (uint32_t i = 0; i < between.count; ++i) {
    transfer.add(link(between.hop[i]));
  }
  transfer.add(in_port_[to]);
}

}  // namespace tpu::spec
