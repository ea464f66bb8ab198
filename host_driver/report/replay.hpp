// The cores of a replay with their bandwidth and links, and the order of events. One that is not
// traced can be left at a moment, and another one go on from there.
#pragma once

#include <algorithm>
#include <deque>
#include <span>
#include <vector>

#include "board/board_loader.hpp"
#include "command/cost.hpp"
#include "command/links.hpp"
#include "command/transfer_clock.hpp"
#include "report/replay_core.hpp"

namespace tpu::driver {

template <bool kTraced>
class Replay final : private ReplayFabric {
 public:
  using Core = ReplayCore<kTraced>;
  static constexpr uint64_t kNever = Core::kNever;

  /// All that changes in a replay.
  struct Moment {
    uint64_t now = 0;
    ReplayPulse pulse{};
    std::vector<ReplayState> cores{};
    std::vector<ReplayFlow> flows{};
    const ReplayFlow* flows_were_at = nullptr;
    spec::TransferClock transfers{};
  };

  /// The program and the change outlive it.
  Replay(const ReplayProgram& program, const CostChange& change)
      : board_(change.board),
        links_(change.board, transfers_.share()),
        at_(static_cast<size_t>(spec::core_count(change.board)), nullptr) {
    for (int64_t chip = 0; chip < board_.board.chips; ++chip) {
      hbm_.push_back(transfers_.share().add_resource_gbps(
          board_.hbm.gbps_per_chip, board_.hbm.efficiency_percent, board_.core.clock_mhz));
    }
    spec::BandwidthShare unused;
    const spec::Links before(program.board, unused);
    const uint32_t first =
        std::ranges::min_element(program.cores, {}, &ReplayProgram::Core::begin)->core;
    for (uint32_t i = 0; i < program.cores.size(); ++i) {
      const uint32_t core = program.cores[i].core;
      // The barrier of the gang lets its first core go first.
      const auto way = [&](const spec::Links& links) {
        return core == first ? 0 : static_cast<int64_t>(links.control_latency(first, core));
      };
      const typename Core::Offsets offsets{
          .issue = board_.core.issue_cycles - program.board.core.issue_cycles,
          .begin = way(links_) - way(before)};
      local_.push_back(transfers_.share().add_resource(
          static_cast<uint64_t>(board_.dma.local_bytes_per_cycle), 1));
      cores_.emplace_back(program, i, change, offsets, static_cast<ReplayFabric&>(*this), pulse_);
      at_[core] = &cores_.back();
      board_core_.push_back(core);
      now_ = std::min(now_, pulse_.wake[i]);
    }
    place_flows();
    capacities_ = transfers_.share().capacities();
  }

  /// Goes on until all cores have ended or wait for ever, or until `stop(*this)`, asked whenever
  /// everything of a cycle is done, says true. False: it was stopped.
  template <typename Stop>
  bool run(const Stop& stop) {
    for (;;) {
      uint64_t next = 0;
      do {
        do {
          step_cores();
          next = *std::ranges::min_element(wakes());
        } while (next <= now_);
      } while (step_transfers());
      next = std::min(next, transfers_.next_end());
      if (next == kNever) {
        stuck_ = !std::ranges::all_of(cores_, &Core::ended);
        return true;
      }
      if (stop(*this)) {
        return false;
      }
      now_ = next;
    }
  }

  uint64_t now() const { return now_; }
  bool stuck() const { return stuck_; }
  std::deque<Core>& cores() { return cores_; }
  uint64_t progress() const { return pulse_.progress; }

  /// Where it was stopped.
  Moment moment() const {
    Moment here{.now = now_, .pulse = pulse_};
    for (const Core& core : cores_) {
      here.cores.push_back(core.state());
    }
    here.flows = flows_;
    here.flows_were_at = flows_.data();
    here.transfers = transfers_;
    return here;
  }
  /// Goes on from a moment of a replay of the same program, on a board that differs only in the
  /// bandwidth of what no transfer under way uses.
  void go_on_from(const Moment& from) {
    for (size_t i = 0; i < cores_.size(); ++i) {
      cores_[i].set_state(from.cores[i]);
    }
    std::ranges::copy(from.flows, flows_.begin());
    transfers_ = from.transfers;
    transfers_.share().move_transfers(from.flows_were_at, flows_.data());
    transfers_.share().take_capacities(capacities_);
    now_ = from.now;
    pulse_ = from.pulse;
  }
  /// Whether all that is to come is the same as from `other` on, that much later.
  bool same(const Moment& other) const {
    for (size_t i = 0; i < cores_.size(); ++i) {
      if (!cores_[i].same(now_, other.cores[i], other.now, &other.flows[first_flow_[i]])) {
        return false;
      }
    }
    return true;
  }

 private:
  void place_flows() {
    size_t count = 0;
    for (const Core& core : cores_) {
      first_flow_.push_back(count);
      count += core.flow_count();
    }
    flows_.resize(count);
    for (size_t i = 0; i < cores_.size(); ++i) {
      cores_[i].use_flows(&flows_[first_flow_[i]]);
    }
  }

  spec::ResourceId hbm_of(uint32_t core) const {
    return hbm_[core / static_cast<uint32_t>(board_.board.cores_per_chip)];
  }

  uint64_t route(uint32_t core, const ReplayCommand& command, spec::Transfer& transfer) override {
    const uint32_t me = board_core_[core];
    const bool src_hbm = !command.fills && command.from == spec::RecordedMemory::kHbm;
    const bool dst_hbm = command.to == spec::RecordedMemory::kHbm;
    if (src_hbm) {
      transfer.add(hbm_of(me));
    }
    if (dst_hbm) {
      transfer.add(hbm_of(command.to_core));
    }
    uint64_t fixed = spec::transfer_fixed_cycles(board_, src_hbm, dst_hbm, command.remote);
    if (command.remote) {
      links_.add_path(me, command.to_core, transfer);
      fixed += links_.data_latency(me, command.to_core);
    } else if (!src_hbm && !dst_hbm) {
      transfer.add(local_[core]);
    }
    return fixed;
  }

  void start(spec::Transfer& transfer) override { transfers_.start(transfer, now_); }

  uint64_t control_cycles(uint32_t core, const ReplayCommand& command) override {
    uint64_t cycles = 1;
    for (const spec::SemaphoreUse& use : command.signal) {
      if (use.amount != 0 && command.remote) {
        cycles = std::max(cycles, links_.control_latency(board_core_[core], use.core));
      }
    }
    return cycles;
  }

  void signal(uint64_t now, const spec::SemaphoreUse& use, const Cause& from) override {
    at_[use.core]->signal(now, use.semaphore, use.amount, from);
  }

  void landing(uint64_t now, uint32_t board_core, int count, const Cause& from) override {
    at_[board_core]->landing(now, count, from);
  }

  std::span<const uint64_t> wakes() const { return std::span(pulse_.wake).first(cores_.size()); }

  void step_cores() {
    for (size_t i = 0; i < cores_.size(); ++i) {
      if (pulse_.wake[i] <= now_) {
        cores_[i].step(now_);
      }
    }
  }

  bool step_transfers() {
    return transfers_.step(now_, [this](const spec::Transfer& transfer) {
      const auto& flow = static_cast<const ReplayFlow&>(transfer);
      cores_[flow.core].flow_ended(now_, flow.queue);
    });
  }

  const spec::BoardParams& board_;
  spec::TransferClock transfers_;
  const spec::Links links_;
  std::vector<spec::ResourceId> hbm_;    // by chip
  std::vector<spec::ResourceId> local_;  // by core of the record
  std::vector<uint64_t> capacities_;
  std::vector<uint32_t> board_core_;
  ReplayPulse pulse_;
  std::deque<Core> cores_;
  std::vector<Core*> at_;  // by core of the board
  std::vector<ReplayFlow> flows_;
  std::vector<size_t> first_flow_;  // by core of the record
  uint64_t now_ = UINT64_MAX;
  bool stuck_ = false;
};

}  // namespace tpu::driver
