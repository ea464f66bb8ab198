// Cores, bandwidth and links of the timed machine; the order of events.
#include "program/timed_gang.hpp"

#include <algorithm>

#include "board/board_loader.hpp"

namespace tpu::compiler {
namespace {

// Scalar instructions and commands of one core; a longer program counts with what it has done.
constexpr uint64_t kMostSteps = 50'000'000;

}  // namespace

TimedGang::TimedGang(std::span<const std::byte> code, const std::vector<int>& cores,
                     const spec::BoardParams& board, GangMode mode)
    : core_(cores.begin(), cores.end()),
      partition_(static_cast<size_t>(spec::core_count(board)), -1),
      cores_per_chip_(static_cast<uint32_t>(board.board.cores_per_chip)),
      mode_(mode),
      program_(code, board),
      links_(spec::Links::with_cuts(board, transfers_.share())) {
  for (int64_t chip = 0; chip < spec::chip_count(board); ++chip) {
    hbm_.push_back(transfers_.share().add_resource_gbps(
        board.hbm.gbps_per_chip, board.hbm.efficiency_percent, board.core.clock_mhz));
  }
  const bool folded = mode == GangMode::kFolded;
  const auto partitions = static_cast<uint32_t>(core_.size());
  for (uint32_t i = 0; i < partitions; ++i) {
    partition_[core_[i]] = static_cast<int>(i);
  }
  for (uint32_t i = 0; i < (folded ? 1 : partitions); ++i) {
    local_.push_back(
        transfers_.share().add_resource(static_cast<uint64_t>(board.dma.local_bytes_per_cycle), 1));
    machine_.emplace_back(program_, board, static_cast<TimedFabric&>(*this),
                          TimedCore::Setup{.index = i,
                                           .cores = partitions,
                                           .replicas = folded ? partitions : 1,
                                           .start = start_of(i),
                                           .alone = folded || partitions == 1});
  }
}

// The barrier of the gang lets its first core go first.
uint64_t TimedGang::start_of(uint32_t partition) const {
  const uint32_t first = *std::min_element(core_.begin(), core_.end());
  const uint32_t core = core_[partition];
  return core == first ? 0 : links_.control_latency(first, core);
}

TimedCore& TimedGang::peer(uint32_t core) {
  return machine_[mode_ == GangMode::kFolded || !has(core) ? 0
                                                           : static_cast<size_t>(partition_[core])];
}

uint64_t TimedGang::control_latency(uint32_t partition, uint32_t peer) {
  remote_ = true;
  return has(peer) ? links_.control_latency(core_[partition], peer) : 0;
}

void TimedGang::start(spec::Transfer& transfer) { transfers_.start(transfer, now_); }

bool TimedGang::symmetric(const TimedScalars& scalars, uint8_t peer_reg) {
  for (uint32_t core = 0; core < core_.size(); ++core) {
    const uint32_t twin = core % cores_per_chip_;
    const bool alike =
        (scalars.value(peer_reg, core) ^ core) == (scalars.value(peer_reg, twin) ^ twin);
    if ((!alike && core_.size() <= kExactCores) || scalars.value(peer_reg, core) >= core_.size()) {
      return false;
    }
  }
  return true;
}

// What this core and the other cores of its chip, which do the same, put on the links of the chip.
// The ports are the core's own.
void TimedGang::fold_path(std::span<const uint32_t> peers, spec::Transfer& transfer) const {
  transfer.add(links_.out_port(0));
  for (uint32_t twin = 0; twin < peers.size(); ++twin) {
    const spec::Links::Way way = links_.way(twin, peers[twin]);
    for (uint32_t i = 0; i < way.count; ++i) {
      transfer.add(links_.link({0, way.hop[i].y, way.hop[i].up}));
    }
  }
  transfer.add(links_.in_port(0));
}

uint64_t TimedGang::route(const TimedCommand& command, uint32_t partition,
                          std::span<const uint32_t> peers, spec::Transfer& transfer) {
  const bool folded = mode_ == GangMode::kFolded;
  const uint32_t core = core_[partition];
  const uint32_t to = command.remote && has(peers[0]) ? peers[0] : core;
  for (uint32_t i = 0; i < (folded ? cores_per_chip_ : 1); ++i) {
    if (command.src_hbm) {
      transfer.add(hbm_[core / cores_per_chip_]);
    }
    if (command.dst_hbm && (folded || !links_.cut(core, to))) {
      transfer.add(hbm_[folded ? 0 : to / cores_per_chip_]);
    }
  }
  if (command.remote) {
    remote_ = true;
    if (folded) {
      fold_path(peers, transfer);
    } else {
      links_.add_path(core, to, transfer);
    }
    return command.fixed_cycles + links_.data_latency(core, to);
  }
  if (!command.src_hbm && !command.dst_hbm) {
    transfer.add(local_[partition]);
  }
  return command.fixed_cycles;
}

// Everything that is due in this cycle, but for the end of transfers.
bool TimedGang::step_cores() {
  bool any = false;
  for (TimedCore& core : machine_) {
    while (core.wake() <= now_ && core.step(now_)) {
      any = true;
      if (core.looped()) {
        core.skip_periods(kMostSteps);
        core.wake_at(now_);
      }
    }
  }
  return any;
}

bool TimedGang::step_transfers() {
  return transfers_.step(now_, [this](const spec::Transfer& transfer) {
    const auto& flight = static_cast<const TimedCore::Flight&>(transfer);
    machine_[flight.partition].passed(flight);
  });
}

std::optional<uint64_t> TimedGang::run(uint64_t most_commands) {
  for (;;) {
    do {
      while (step_cores()) {
      }
    } while (step_transfers());
    uint64_t next = transfers_.next_end(), commands = 0, steps = 0;
    bool ended = true;
    for (const TimedCore& core : machine_) {
      if (core.differs()) {
        return std::nullopt;
      }
      next = std::min(next, core.wake());
      ended &= core.ended();
      commands += core.commands();
      steps = std::max(steps, core.steps());
    }
    if (commands > most_commands) {
      return std::nullopt;
    }
    if (ended) {
      break;
    }
    if (next == kNever || steps > kMostSteps) {
      return now();  // a deadlock, or longer than is worth to know
    }
    now_ = next;
  }
  uint64_t longest = 0, skew = 0;
  for (const TimedCore& core : machine_) {
    longest = std::max(longest, core.cycles());
  }
  if (mode_ == GangMode::kFolded && remote_) {  // who starts first waits for who starts last
    for (uint32_t i = 1; i < core_.size(); ++i) {
      skew = std::max(skew, links_.control_latency(0, i));
    }
  }
  return longest + skew;
}

}  // namespace tpu::compiler
