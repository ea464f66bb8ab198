// Spans of operations by kind, gaps by what they waited for, and what moved where.
#include "report/accounts.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "command/links.hpp"
#include "record/op_spans.hpp"
#include "report/path.hpp"

namespace tpu::driver {
namespace {

// Moments of a core at which what is under way changes.
struct Moment {
  enum class What : uint8_t { kDone, kStart, kFlowEnd };
  uint64_t cycle;
  What what;
  uint32_t command;
};

std::vector<Moment> moments_of(const spec::RecordedCore& core) {
  std::vector<Moment> moments;
  for (uint32_t i = 0; i < core.commands.size(); ++i) {
    const spec::RecordedCommand& command = core.commands[i];
    if (!command.works()) {
      continue;
    }
    moments.push_back({command.start, Moment::What::kStart, i});
    moments.push_back({command.done, Moment::What::kDone, i});
    if (command.transfers()) {
      moments.push_back({command.flow_end, Moment::What::kFlowEnd, i});
    }
  }
  std::ranges::sort(moments, {},
                    [](const Moment& m) { return std::tuple(m.cycle, m.what, m.command); });
  return moments;
}

class CoreCharger {
 public:
  CoreCharger(const spec::StepRecord& record, uint32_t index, const PathWalk& path,
              const StepTiming& timing, StepAccount& step)
      : core_(record.cores[index]),
        index_(index),
        path_(path),
        timing_(timing.cores[index]),
        step_(step),
        account_(step.cores[index]) {}

  void run(uint64_t begin, uint64_t end) {
    account_.cycles[static_cast<size_t>(TimeKind::kSkew)] = core_.begin - begin + (end - core_.end);
    spans_.begin_step(core_.begin);
    for (const Moment& moment : moments_of(core_)) {
      const spec::RecordedCommand& command = core_.commands[moment.command];
      switch (moment.what) {
        case Moment::What::kStart:
          charge(spans_.start(moment.cycle, {command.queue, moment.command, command.op_id}),
                 path_.start_of(index_, moment.command), timing_.commands[moment.command].start);
          break;
        case Moment::What::kFlowEnd:
          charge(spans_.cut(moment.cycle), {}, 0);
          break;
        case Moment::What::kDone:
          charge(spans_.done(moment.cycle, command.queue, moment.command), {}, 0);
          break;
      }
    }
    charge(spans_.end_step(core_.end), path_.end_of(index_), timing_.end);
  }

 private:
  // Of a gap `ender` is what ended it, in the re-timed step at `at`.
  void charge(const spec::OpSpan& span, const Cause& ender, uint64_t at) {
    if (span.empty()) {
      return;
    }
    const uint64_t cycles = span.end - span.begin;
    if (span.op_id != spec::OpSpan::kNone) {
      const spec::RecordedCommand& command = core_.commands[span.sequence];
      const bool latency = command.transfers() && span.begin >= command.flow_end;
      const auto kind = static_cast<size_t>(kind_of(command, latency));
      account_.cycles[kind] += cycles;
      step_.ops[span.op_id].cycles[kind] += cycles;
      return;
    }
    uint64_t left = cycles;
    path_.back(ender, at, at - std::min(at, cycles), [&](const PathPiece& piece) {
      const uint64_t part = std::min(left, piece.end - piece.begin);
      const TimeKind kind = piece.core == index_ ? piece.kind : TimeKind::kPeer;
      account_.cycles[static_cast<size_t>(kind)] += part;
      left -= part;
    });
    account_.cycles[static_cast<size_t>(TimeKind::kSemaphore)] += left;
  }

  const spec::RecordedCore& core_;
  const uint32_t index_;
  const PathWalk& path_;
  const CoreTiming& timing_;
  StepAccount& step_;
  CoreAccount& account_;
  spec::OpSpans spans_;
};

// Cycles in which at least one of some commands was under way; they come in order of their start.
class BusyCycles {
 public:
  void add(const spec::RecordedCommand& command) {
    cycles_ += command.done - std::min(command.done, std::max(command.start, until_));
    until_ = std::max(until_, command.done);
  }
  uint64_t cycles() const { return cycles_; }

 private:
  uint64_t until_ = 0, cycles_ = 0;
};

// What commands did and moved.
void count_work(const spec::RecordedCore& core, uint32_t cores_per_chip, CoreAccount& account,
                StepAccount& step) {
  std::vector<const spec::RecordedCommand*> order;
  for (const spec::RecordedCommand& command : core.commands) {
    if (command.works()) {
      order.push_back(&command);
    }
  }
  std::ranges::stable_sort(order, {}, &spec::RecordedCommand::start);
  std::array<BusyCycles, spec::kQueueCount> queues{};
  std::map<uint32_t, BusyCycles> ops;
  for (const spec::RecordedCommand* command : order) {
    queues[command->queue].add(*command);
    ops[command->op_id].add(*command);
    OpAccount& op = step.ops[command->op_id];
    ++op.commands;
    op.flops += command->flops;
    account.flops += command->flops;
    const bool fill = command->opcode == static_cast<uint8_t>(spec::Opcode::kFill);
    if (!fill && command->from == spec::RecordedMemory::kHbm) {
      op.hbm_read += command->bytes;
      account.hbm_bytes += command->bytes;
      step.chip_hbm_bytes[core.core / cores_per_chip] += command->bytes;
    }
    if (command->to == spec::RecordedMemory::kHbm) {
      op.hbm_written += command->bytes;
      account.hbm_bytes += command->bytes;
      step.chip_hbm_bytes[command->to_core / cores_per_chip] += command->bytes;
    }
    op.link_bytes += command->remote() ? command->bytes : 0;
  }
  for (size_t q = 0; q < queues.size(); ++q) {
    account.busy[q] = queues[q].cycles();
  }
  for (const auto& [id, busy] : ops) {
    step.ops[id].busy += busy.cycles();
  }
}

std::vector<LinkAccount> count_links(const spec::StepRecord& record,
                                     const spec::BoardParams& board) {
  spec::BandwidthShare share;
  const spec::Links links(board, share);
  std::map<std::tuple<uint32_t, bool, bool>, uint64_t> bytes;
  for (const spec::RecordedCore& core : record.cores) {
    for (const spec::RecordedCommand& command : core.commands) {
      if (!command.transfers() || !command.remote()) {
        continue;
      }
      const spec::Links::Way way = links.way(core.core, command.to_core);
      for (uint32_t i = 0; i < way.count; ++i) {
        bytes[{way.hop[i].chip, way.hop[i].y, way.hop[i].up}] += command.bytes;
      }
    }
  }
  std::vector<LinkAccount> list;
  for (const auto& [key, count] : bytes) {
    list.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), count});
  }
  return list;
}

}  // namespace

uint64_t OpAccount::total() const {
  return std::accumulate(cycles.begin(), cycles.end(), uint64_t{0});
}

StepAccount account(const spec::StepRecord& record, const StepTiming& timing) {
  const spec::BoardParams board = spec::board_of(record);
  StepAccount step;
  step.cycles = record.end() - record.begin();
  step.cores.resize(record.cores.size());
  step.chip_hbm_bytes.resize(static_cast<size_t>(board.board.chips));
  const PathWalk path(record, timing);
  for (uint32_t i = 0; i < record.cores.size(); ++i) {
    CoreCharger(record, i, path, timing, step).run(record.begin(), record.end());
    count_work(record.cores[i], static_cast<uint32_t>(board.board.cores_per_chip), step.cores[i],
               step);
  }
  step.links = count_links(record, board);
  return step;
}

std::vector<PathPiece> critical_path(const spec::StepRecord& record, const StepTiming& timing) {
  std::vector<PathPiece> pieces;
  uint32_t last = 0;
  for (uint32_t i = 0; i < timing.cores.size(); ++i) {
    last = timing.cores[i].end > timing.cores[last].end ? i : last;
  }
  const PathWalk path(record, timing);
  path.back(path.end_of(last), timing.end(), timing.begin(),
            [&](const PathPiece& piece) { pieces.push_back(piece); });
  std::ranges::reverse(pieces);
  return pieces;
}

}  // namespace tpu::driver
