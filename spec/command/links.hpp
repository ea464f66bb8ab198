// Links between cores: a 2-D torus of chips with one link in each direction between neighbours, a
// port a core in each direction. Routing is x, then y, in each ring the shorter way round; where
// both are equally long, chips at even places go up and chips at odd places down, which spreads
// pairwise exchanges over both directions. A dimension of several boards that are not wrapped round
// is a line, with one way. Cores of one chip meet in the chip's router. Constants:
// docs/timing_model.md.
//
// A link that leaves a board is cut: bandwidth is shared inside of boards alone. A transfer between
// boards is one flow in each board on its way, and a flow begins when the bytes can have come there
// (docs/pods.md).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "board/board_loader.hpp"
#include "command/bandwidth_share.hpp"
#include "command/fold.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::spec {

class Links {
 public:
  /// Ports and links become resources of `share`, those of all boards of a pod: bandwidth as if
  /// nothing was cut.
  Links(const BoardParams& board, BandwidthShare& share);
  /// Those of each board become resources of its own share.
  Links(const BoardParams& board, std::span<BandwidthShare* const> shares);
  /// The same of one share, for estimates: a transfer is a flow in the sender's board alone, as if
  /// the boards that it enters were never in its way.
  static Links with_cuts(const BoardParams& board, BandwidthShare& share);
  /// Of a pod that is folded to one board, with cores by board: those of the board become resources
  /// of `share`, and those of other boards are these too.
  Links(const Fold& fold, BandwidthShare& share);

  uint32_t cores() const { return cores_; }
  uint32_t boards() const { return boards_; }
  bool folded() const { return !fold_.empty(); }
  uint32_t board_of(uint32_t core) const { return board_of_chip_[chip_of(core)]; }
  bool cut(uint32_t from, uint32_t to) const { return board_of(from) != board_of(to); }
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
    static constexpr int kMost = static_cast<int>(kMostLinks);
    std::array<Hop, kMost> hop{};
    uint32_t count = 0;
  };
  // Two HBMs, each for the cores of a chip at once, the ports, and the links on the way.
  static_assert(4 + 2 + Way::kMost <= Transfer::kMaxResources);
  Way way(uint32_t from, uint32_t to) const;
  /// A shortest way over links of one board that are not `down`, or none; of several the same one
  /// always.
  std::optional<Way> way_around(uint32_t from, uint32_t to,
                                const std::function<bool(const Hop&)>& down) const;
  /// The same as of the ways above: what a transfer passes on `way`, and its cycles.
  void add_way(const Way& between, uint32_t from, uint32_t to, Transfer& transfer) const;
  uint64_t data_latency(const Way& way) const { return data_cycles(way.count); }
  uint64_t control_latency(const Way& way) const { return control_cycles(way.count); }
  /// Everything that a transfer from one core to another passes. With the way cut, what it passes
  /// in the sender's board; the others have sections.
  void add_path(uint32_t from, uint32_t to, Transfer& transfer) const;

  /// The part of a way in one board behind the first.
  struct Section {
    uint32_t board = 0;
    uint32_t first = 0;  ///< hop of the way that is its first; the hop that enters is before it
    uint32_t count = 0;  ///< hops
    uint64_t entry = 0;  ///< cycles from the beginning of the transfer to that of the flow here
    uint64_t rest = 0;   ///< cycles from the end of the flow here to the landing
  };
  /// Boards that a transfer enters, in order; the last one is the receiver's.
  std::vector<Section> sections(uint32_t from, uint32_t to) const;
  /// Calls `told` with each of them; `between`: the way.
  template <class Told>
  void each_section(const Way& between, uint32_t from, uint32_t to, const Told& told) const;
  /// What the transfer passes in a board that it enters, without HBM.
  void add_section(const Way& between, uint32_t to, const Section& section,
                   Transfer& transfer) const;

 private:
  Links(const BoardParams& board, std::span<BandwidthShare* const> shares, const Fold* fold);
  uint32_t chip_of(uint32_t core) const {
    return (fold_.empty() ? core : fold_[core]) / cores_per_chip_;
  }
  // Chips of a row (x) or of a column (y).
  struct Ring {
    uint32_t size;
    uint32_t stride;  // chip numbers from one place to the next
    bool closed;      // else a line
  };
  // The way through one ring: from which place over how many links.
  struct Round {
    uint32_t first;
    uint32_t count;
    bool up;
  };
  struct Router {
    std::array<std::array<ResourceId, 2>, 2> link{};  // outgoing, by x or y; up, down
  };

  void make_chip(const BoardParams& board, uint32_t chip, BandwidthShare& share);
  void fold_ports(const Fold& fold);
  uint64_t data_cycles(uint32_t hops) const;
  uint64_t control_cycles(uint32_t hops) const {
    return control_hop_cycles_ * (hops == 0 ? 1 : hops);
  }
  std::optional<uint32_t> chip_behind(const Hop& hop) const;
  static Round round(const Ring& ring, uint32_t chip, uint32_t end);
  void go_round(bool y, uint32_t& chip, uint32_t end, Way& way) const;

  const uint32_t cores_;
  const uint32_t cores_per_chip_;
  const uint32_t boards_;
  const std::array<Ring, 2> rings_;  // x, y
  const uint64_t local_cycles_;
  const uint64_t hop_cycles_;
  const uint64_t extra_hop_cycles_;
  const uint64_t control_hop_cycles_;
  std::vector<ResourceId> out_port_;  // by core
  std::vector<ResourceId> in_port_;
  std::vector<Router> routers_;  // by chip
  std::vector<uint32_t> board_of_chip_;
  std::vector<uint32_t> fold_;  // of a folded pod, by core: its number in the pod
  bool whole_ = false;          // one share: nothing is cut
};

template <class Told>
void Links::each_section(const Way& between, uint32_t from, uint32_t to, const Told& told) const {
  const uint64_t all = data_cycles(between.count);
  Section section{.board = board_of(from)};
  bool entered = false;
  const auto enter = [&](uint32_t next, uint32_t hop) {
    if (next == section.board) {
      return;
    }
    if (entered) {
      told(section);
    }
    entered = true;
    const uint64_t entry = data_cycles(hop);
    section = {.board = next, .first = hop, .count = 0, .entry = entry, .rest = all - entry};
  };
  for (uint32_t i = 0; i < between.count; ++i) {
    enter(board_of_chip_[between.hop[i].chip], i);
    section.count += entered ? 1 : 0;
  }
  enter(board_of(to), between.count);
  if (entered) {
    told(section);
  }
}

}  // namespace tpu::spec
