// Cores, bandwidth and links of the re-timing model; the order of events.
#include "report/retime.hpp"

#include <algorithm>
#include <deque>

#include "board/board_loader.hpp"
#include "command/cost.hpp"
#include "command/links.hpp"
#include "command/transfer_clock.hpp"
#include "report/replay_core.hpp"

namespace tpu::driver {
namespace {

class Replay final : private ReplayFabric {
 public:
  Replay(const spec::StepRecord& record, const CostChange& change)
      : board_(change.board),
        links_(change.board, transfers_.share()),
        at_(static_cast<size_t>(spec::core_count(change.board)), nullptr) {
    for (int64_t chip = 0; chip < board_.board.chips; ++chip) {
      hbm_.push_back(transfers_.share().add_resource_gbps(
          board_.hbm.gbps_per_chip, board_.hbm.efficiency_percent, board_.core.clock_mhz));
    }
    const spec::BoardParams recorded = spec::board_of(record);
    spec::BandwidthShare unused;
    const spec::Links before(recorded, unused);
    const uint32_t first =
        std::ranges::min_element(record.cores, {}, &spec::RecordedCore::begin)->core;
    for (uint32_t i = 0; i < record.cores.size(); ++i) {
      const uint32_t core = record.cores[i].core;
      // The barrier of the gang lets its first core go first.
      const auto way = [&](const spec::Links& links) {
        return core == first ? 0 : static_cast<int64_t>(links.control_latency(first, core));
      };
      const ReplayCore::Offsets offsets{
          .issue = board_.core.issue_cycles - recorded.core.issue_cycles,
          .begin = way(links_) - way(before)};
      local_.push_back(transfers_.share().add_resource(
          static_cast<uint64_t>(board_.dma.local_bytes_per_cycle), 1));
      cores_.emplace_back(record, i, change, offsets, static_cast<ReplayFabric&>(*this));
      at_[core] = &cores_.back();
      board_core_.push_back(core);
      now_ = std::min(now_, cores_.back().wake());
    }
  }

  StepTiming run() {
    StepTiming timing;
    for (;;) {
      do {
        while (step_cores()) {
        }
      } while (step_transfers());
      uint64_t next = transfers_.next_end();
      bool ended = true;
      for (const ReplayCore& core : cores_) {
        next = std::min(next, core.wake());
        ended &= core.ended();
      }
      if (ended || next == ReplayCore::kNever) {
        timing.stuck = !ended;
        break;
      }
      now_ = next;
    }
    for (ReplayCore& core : cores_) {
      timing.cores.push_back(core.take());
    }
    return timing;
  }

 private:
  spec::ResourceId hbm_of(uint32_t core) const {
    return hbm_[core / static_cast<uint32_t>(board_.board.cores_per_chip)];
  }

  uint64_t route(uint32_t core, const spec::RecordedCommand& command,
                 spec::Transfer& transfer) override {
    const uint32_t me = board_core_[core];
    const bool fill = command.opcode == static_cast<uint8_t>(spec::Opcode::kFill);
    const bool src_hbm = !fill && command.from == spec::RecordedMemory::kHbm;
    const bool dst_hbm = command.to == spec::RecordedMemory::kHbm;
    if (src_hbm) {
      transfer.add(hbm_of(me));
    }
    if (dst_hbm) {
      transfer.add(hbm_of(command.to_core));
    }
    uint64_t fixed = spec::transfer_fixed_cycles(board_, src_hbm, dst_hbm, command.remote());
    if (command.remote()) {
      links_.add_path(me, command.to_core, transfer);
      fixed += links_.data_latency(me, command.to_core);
    } else if (!src_hbm && !dst_hbm) {
      transfer.add(local_[core]);
    }
    return fixed;
  }

  void start(spec::Transfer& transfer) override { transfers_.start(transfer, now_); }

  uint64_t control_cycles(uint32_t core, const spec::RecordedCommand& command) override {
    uint64_t cycles = 1;
    for (const spec::SemaphoreUse& use : command.signal) {
      if (use.amount != 0 && command.remote()) {
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

  bool step_cores() {
    bool any = false;
    for (ReplayCore& core : cores_) {
      while (core.wake() <= now_ && core.step(now_)) {
        any = true;
      }
    }
    return any;
  }

  bool step_transfers() {
    return transfers_.step(now_, [this](const spec::Transfer& transfer) {
      cores_[static_cast<const ReplayCore::Flow&>(transfer).core].wake_at(now_);
    });
  }

  const spec::BoardParams& board_;
  spec::TransferClock transfers_;
  const spec::Links links_;
  std::vector<spec::ResourceId> hbm_;    // by chip
  std::vector<spec::ResourceId> local_;  // by core of the record
  std::vector<uint32_t> board_core_;
  std::deque<ReplayCore> cores_;
  std::vector<ReplayCore*> at_;  // by core of the board
  uint64_t now_ = UINT64_MAX;
};

}  // namespace

uint64_t StepTiming::begin() const {
  uint64_t first = UINT64_MAX;
  for (const CoreTiming& core : cores) {
    first = std::min(first, core.begin);
  }
  return first;
}

uint64_t StepTiming::end() const {
  uint64_t last = 0;
  for (const CoreTiming& core : cores) {
    last = std::max(last, core.end);
  }
  return last;
}

uint64_t StepTiming::skew() const {
  uint64_t last = 0;
  for (const CoreTiming& core : cores) {
    last = std::max(last, core.begin);
  }
  return last - begin();
}

CostChange no_change(const spec::StepRecord& record) { return {.board = spec::board_of(record)}; }

StepTiming retime(const spec::StepRecord& record, const CostChange& change) {
  return Replay(record, change).run();
}

}  // namespace tpu::driver
