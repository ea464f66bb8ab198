// Ways and latencies of the torus.
#include "command/links.hpp"

#include <algorithm>
#include <utility>

namespace tpu::spec {

Links::Links(const BoardParams& board, std::span<BandwidthShare* const> shares, const Fold* fold)
    : cores_(static_cast<uint32_t>(core_count(board))),
      cores_per_chip_(static_cast<uint32_t>(board.board.cores_per_chip)),
      boards_(static_cast<uint32_t>(board_count(board))),
      rings_{{{.size = static_cast<uint32_t>(chips_x(board)),
               .stride = 1,
               .closed = board.pod.boards_x == 1 || board.pod.wrap_x != 0},
              {.size = static_cast<uint32_t>(chips_y(board)),
               .stride = static_cast<uint32_t>(chips_x(board)),
               .closed = board.pod.boards_y == 1 || board.pod.wrap_y != 0}}},
      local_cycles_(cycles_from_ns(board, board.ici.local_ns)),
      hop_cycles_(cycles_from_ns(board, board.ici.hop_ns)),
      extra_hop_cycles_(cycles_from_ns(board, board.ici.extra_hop_ns)),
      control_hop_cycles_(cycles_from_ns(board, board.ici.control_hop_ns)),
      out_port_(cores_),
      in_port_(cores_),
      routers_(cores_ / cores_per_chip_),
      whole_(shares.size() == 1 && fold == nullptr) {
  for (uint32_t chip = 0; chip < routers_.size(); ++chip) {
    board_of_chip_.push_back(static_cast<uint32_t>(board_of_chip(board, chip)));
    if (fold != nullptr && board_of_chip_.back() != 0) {
      routers_[chip] = routers_[fold->twin_chip(chip)];  // a lower number
    } else {
      make_chip(board, chip, *shares[shares.size() == 1 ? 0 : board_of_chip_.back()]);
    }
  }
  if (fold != nullptr) {
    fold_ports(*fold);
  }
}

Links::Links(const BoardParams& board, std::span<BandwidthShare* const> shares)
    : Links(board, shares, nullptr) {}

Links Links::with_cuts(const BoardParams& board, BandwidthShare& share) {
  const std::vector<BandwidthShare*> shares(static_cast<size_t>(board_count(board)), &share);
  return {board, shares};
}

Links::Links(const Fold& fold, BandwidthShare& share)
    : Links(fold.pod(), std::array<BandwidthShare*, 1>{&share}, &fold) {}

// They are by core of the pod so far.
void Links::fold_ports(const Fold& fold) {
  for (auto* ports : {&out_port_, &in_port_}) {
    const std::vector<ResourceId> before = *ports;
    for (uint32_t core = 0; core < cores_; ++core) {
      (*ports)[core] = before[fold.in_pod(fold.twin(core))];
    }
  }
  for (uint32_t core = 0; core < cores_; ++core) {
    fold_.push_back(fold.in_pod(core));
  }
}

Links::Links(const BoardParams& board, BandwidthShare& share)
    : Links(board, std::array<BandwidthShare*, 1>{&share}) {}

void Links::make_chip(const BoardParams& board, uint32_t chip, BandwidthShare& share) {
  for (uint32_t core = chip * cores_per_chip_; core < (chip + 1) * cores_per_chip_; ++core) {
    for (auto* ports : {&out_port_, &in_port_}) {
      (*ports)[core] = share.add_resource_gbps(board.ici.core_port_gbps, 100, board.core.clock_mhz);
    }
  }
  for (size_t axis = 0; axis < rings_.size(); ++axis) {
    const auto link = [&] {
      return share.add_resource_gbps(board.ici.link_gbps, board.ici.efficiency_percent,
                                     board.core.clock_mhz);
    };
    const ResourceId up = link();
    routers_[chip].link[axis] = {up, rings_[axis].size > 2 ? link() : up};
  }
}

uint32_t Links::hops(uint32_t from, uint32_t to) const {
  const uint32_t first = chip_of(from);
  const uint32_t last = chip_of(to);
  return round(rings_[0], first, last).count + round(rings_[1], first, last).count;
}

uint64_t Links::data_cycles(uint32_t hops) const {
  return hops == 0 ? local_cycles_ : hop_cycles_ + (hops - 1) * extra_hop_cycles_;
}

uint64_t Links::data_latency(uint32_t from, uint32_t to) const {
  return data_cycles(hops(from, to));
}

uint64_t Links::control_latency(uint32_t from, uint32_t to) const {
  return control_cycles(hops(from, to));
}

// From `chip` to the place of `end` in one ring.
Links::Round Links::round(const Ring& ring, uint32_t chip, uint32_t end) {
  const uint32_t first = chip / ring.stride % ring.size;
  const uint32_t last = end / ring.stride % ring.size;
  const uint32_t distance = last >= first ? last - first : last + ring.size - first;
  const bool forward = first + distance < ring.size;  // without passing the ends of the line
  const bool up = !ring.closed                ? forward
                  : 2 * distance == ring.size ? first % 2 == 0
                                              : 2 * distance < ring.size;
  return {.first = first, .count = up ? distance : ring.size - distance, .up = up};
}

// Moves `chip` there.
void Links::go_round(bool y, uint32_t& chip, uint32_t end, Way& way) const {
  const Ring& ring = rings_[y ? 1 : 0];
  const Round found = round(ring, chip, end);
  const uint32_t row = chip - found.first * ring.stride;
  uint32_t place = found.first;
  for (uint32_t i = 0; i < found.count; ++i) {
    way.hop[way.count++] = {chip, y, found.up};
    if (found.up) {
      place = place + 1 == ring.size ? 0 : place + 1;
    } else {
      place = (place == 0 ? ring.size : place) - 1;
    }
    chip = row + place * ring.stride;
  }
}

Links::Way Links::way(uint32_t from, uint32_t to) const {
  Way way;
  uint32_t at = chip_of(from);
  const uint32_t end = chip_of(to);
  go_round(false, at, end, way);
  go_round(true, at, end, way);
  return way;
}

// None: the end of a line, or a ring of one chip.
std::optional<uint32_t> Links::chip_behind(const Hop& hop) const {
  const Ring& ring = rings_[hop.y ? 1 : 0];
  const uint32_t place = hop.chip / ring.stride % ring.size;
  const bool last = place == (hop.up ? ring.size - 1 : 0);
  if (ring.size == 1 || (last && !ring.closed)) {
    return std::nullopt;
  }
  const uint32_t next = (place + (hop.up ? 1 : ring.size - 1)) % ring.size;
  return hop.chip - place * ring.stride + next * ring.stride;
}

// Breadth first, links of a chip in the order +x, -x, +y, -y.
std::optional<Links::Way> Links::way_around(uint32_t from, uint32_t to,
                                            const std::function<bool(const Hop&)>& down) const {
  const uint32_t first = chip_of(from);
  const uint32_t last = chip_of(to);
  std::vector<std::optional<Hop>> into(routers_.size());  // by chip: the link that leads there
  std::vector<uint32_t> reached = {first};
  for (size_t i = 0; i < reached.size() && reached[i] != last; ++i) {
    for (const auto& [y, up] : {std::pair(false, true), std::pair(false, false),
                                std::pair(true, true), std::pair(true, false)}) {
      const Hop hop{.chip = reached[i], .y = y, .up = up};
      const auto next = chip_behind(hop);
      if (next && *next != first && !into[*next] &&
          board_of_chip_[*next] == board_of_chip_[first] && !down(hop)) {
        into[*next] = hop;
        reached.push_back(*next);
      }
    }
  }
  Way way;
  for (uint32_t at = last; at != first; at = way.hop[way.count++].chip) {
    if (!into[at] || way.count == Way::kMost) {
      return std::nullopt;
    }
    way.hop[way.count] = *into[at];
  }
  std::reverse(way.hop.begin(), way.hop.begin() + way.count);
  return way;
}

void Links::add_path(uint32_t from, uint32_t to, Transfer& transfer) const {
  add_way(way(from, to), from, to, transfer);
}

void Links::add_way(const Way& between, uint32_t from, uint32_t to, Transfer& transfer) const {
  transfer.add(out_port_[from]);
  const uint32_t board = board_of(from);
  for (uint32_t i = 0; i < between.count; ++i) {
    if (!whole_ && board_of_chip_[between.hop[i].chip] != board) {
      return;
    }
    transfer.add(link(between.hop[i]));
  }
  if (whole_ || board_of(to) == board) {
    transfer.add(in_port_[to]);
  }
}

std::vector<Links::Section> Links::sections(uint32_t from, uint32_t to) const {
  std::vector<Section> found;
  each_section(way(from, to), from, to,
               [&found](const Section& section) { found.push_back(section); });
  return found;
}

void Links::add_section(const Way& between, uint32_t to, const Section& section,
                        Transfer& transfer) const {
  for (uint32_t i = section.first; i < section.first + section.count; ++i) {
    transfer.add(link(between.hop[i]));
  }
  if (section.board == board_of(to)) {
    transfer.add(in_port_[to]);
  }
}

}  // namespace tpu::spec
