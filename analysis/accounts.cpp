// Spans of operations by kind, gaps by what they waited for, and what moved where.
#include "analysis/accounts.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "analysis/for_all.hpp"
#include "analysis/path.hpp"
#include "board/board_loader.hpp"
#include "command/links.hpp"
#include "record/op_spans.hpp"

namespace tpu::driver {
namespace {

// A moment of a core at which what is under way changes.
struct Moment {
  enum class What : uint8_t { kDone, kStart, kFlowEnd };
  Moment() = default;
  Moment(uint64_t at, What what, uint32_t command)
      : cycle(at), rest(uint64_t{static_cast<uint8_t>(what)} << 32 | command) {}

  What what() const { return static_cast<What>(rest >> 32); }
  uint32_t command() const { return static_cast<uint32_t>(rest); }
  auto operator<=>(const Moment&) const = default;

  uint64_t cycle = 0;
  uint64_t rest = 0;  // orders those of a cycle
};
using Moments = std::vector<Moment>;

// In order. Those of a queue nearly are, so that they are merged.
Moments moments_of(const spec::RecordedCore& core) {
  std::array<std::array<Moments, 3>, spec::kQueueCount> runs;
  for (uint32_t i = 0; i < core.commands.size(); ++i) {
    const spec::RecordedCommand& command = core.commands[i];
    if (!command.works()) {
      continue;
    }
    const auto put = [&](uint64_t cycle, Moment::What what) {
      runs[command.queue][static_cast<size_t>(what)].emplace_back(cycle, what, i);
    };
    put(command.start, Moment::What::kStart);
    put(command.done, Moment::What::kDone);
    if (command.transfers()) {
      put(command.flow_end, Moment::What::kFlowEnd);
    }
  }
  std::vector<Moments> sorted;
  for (auto& queue : runs) {
    for (Moments& run : queue) {
      if (!std::ranges::is_sorted(run)) {
        std::ranges::sort(run);
      }
      sorted.push_back(std::move(run));
    }
  }
  while (sorted.size() > 1) {  // the shortest two
    std::ranges::sort(sorted, std::greater(), &Moments::size);
    Moments both(sorted[sorted.size() - 1].size() + sorted[sorted.size() - 2].size());
    std::ranges::merge(sorted[sorted.size() - 1], sorted[sorted.size() - 2], both.begin());
    sorted.pop_back();
    sorted.back() = std::move(both);
  }
  return std::move(sorted.front());
}

class CoreCharger {
 public:
  CoreCharger(const spec::RecordedCore& core, CoreAccount& account, StepAccount& step)
      : core_(core), account_(account), step_(step) {}

  void run(const Moments& moments, uint64_t begin, uint64_t end) {
    account_.cycles[static_cast<size_t>(TimeKind::kSkew)] = core_.begin - begin + (end - core_.end);
    spans_.begin_step(core_.begin);
    for (const Moment& moment : moments) {
      const spec::RecordedCommand& command = core_.commands[moment.command()];
      switch (moment.what()) {
        case Moment::What::kStart:
          charge(spans_.start(moment.cycle, {command.queue, moment.command(), command.op_id}),
                 moment.command());
          break;
        case Moment::What::kFlowEnd:
          charge(spans_.cut(moment.cycle), Gap::kEnd);
          break;
        case Moment::What::kDone:
          charge(spans_.done(moment.cycle, command.queue, moment.command()), Gap::kEnd);
          break;
      }
    }
    charge(spans_.end_step(core_.end), Gap::kEnd);
  }

 private:
  void charge(const spec::OpSpan& span, uint32_t ender) {
    if (span.empty()) {
      return;
    }
    const uint64_t cycles = span.end - span.begin;
    if (span.op_id == spec::OpSpan::kNone) {
      account_.cycles[static_cast<size_t>(TimeKind::kWait)] += cycles;
      account_.gaps.push_back({cycles, ender});
      return;
    }
    const spec::RecordedCommand& command = core_.commands[span.sequence];
    const bool latency = command.transfers() && span.begin >= command.flow_end;
    const auto kind = static_cast<size_t>(kind_of(command, latency));
    account_.cycles[kind] += cycles;
    step_.ops[span.op_id].cycles[kind] += cycles;
  }

  const spec::RecordedCore& core_;
  CoreAccount& account_;
  StepAccount& step_;
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
void count_work(const spec::RecordedCore& core, const Moments& moments, uint32_t cores_per_chip,
                CoreAccount& account, StepAccount& step) {
  std::array<BusyCycles, spec::kQueueCount> queues{};
  std::map<uint32_t, BusyCycles> ops;
  for (const Moment& moment : moments) {
    if (moment.what() != Moment::What::kStart) {
      continue;
    }
    const spec::RecordedCommand* command = &core.commands[moment.command()];
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

bool computes(const spec::RecordedCommand& command) {
  switch (static_cast<spec::Queue>(command.queue)) {
    case spec::Queue::kDmaRemote:
    case spec::Queue::kDmaIn:
    case spec::Queue::kDmaOut:
      return false;
    default:
      return true;
  }
}

// Transfers to other cores, and what runs beside them.
void count_exchanges(const spec::RecordedCore& core, const Moments& moments, StepAccount& step) {
  std::map<uint32_t, uint32_t> exchanges;  // transfers in progress, by operation
  std::map<uint32_t, uint32_t> local;      // others, by operation
  uint32_t all_local = 0;
  uint32_t computing = 0;  // commands in progress
  uint64_t since = core.begin;
  for (const Moment& moment : moments) {
    const spec::RecordedCommand& command = core.commands[moment.command()];
    if (moment.what() == Moment::What::kFlowEnd) {
      continue;
    }
    const uint64_t cycles = moment.cycle - std::min(moment.cycle, since);
    for (const auto& [id, transfers] : exchanges) {
      OpAccount& op = step.ops[id];
      const bool beside = all_local > local[id];
      op.link_busy += cycles;
      op.link_hidden += computing > 0 ? cycles : 0;
      op.link_beside += computing == 0 && beside ? cycles : 0;
    }
    since = moment.cycle;
    const uint32_t change = moment.what() == Moment::What::kStart ? 1U : UINT32_MAX;
    if (computes(command)) {
      computing += change;
    } else if (!command.transfers()) {
      continue;
    } else if (command.remote()) {
      uint32_t& transfers = exchanges[command.op_id];
      transfers += change;
      if (transfers == 0) {
        exchanges.erase(command.op_id);
      }
    } else {
      local[command.op_id] += change;
      all_local += change;
    }
  }
}

// Transfers with the host, and what runs beside them.
HostAccount count_host(const spec::RecordedCore& core, const Moments& moments) {
  HostAccount host;
  uint32_t computing = 0, copying = 0;  // commands in progress
  auto moment = moments.begin();
  for (const spec::HostTransfer& transfer : core.host) {
    (transfer.to_host != 0 ? host.to_host_bytes : host.from_host_bytes) += transfer.bytes;
    host.busy += transfer.end - transfer.begin;
    uint64_t since = transfer.begin;
    const auto count_until = [&](uint64_t cycle) {
      const uint64_t cycles = cycle - std::min(cycle, since);
      host.hidden += computing > 0 ? cycles : 0;
      host.beside += computing == 0 && copying > 0 ? cycles : 0;
      since = std::max(since, cycle);
    };
    for (; moment != moments.end() && moment->cycle < transfer.end; ++moment) {
      if (moment->what() != Moment::What::kFlowEnd) {
        count_until(moment->cycle);
        const uint32_t change = moment->what() == Moment::What::kStart ? 1U : UINT32_MAX;
        (computes(core.commands[moment->command()]) ? computing : copying) += change;
      }
    }
    count_until(transfer.end);
  }
  return host;
}

using LinkBytes = std::map<spec::Links::Hop, uint64_t>;

LinkBytes count_links(const spec::RecordedCore& core, const spec::Links& links) {
  LinkBytes bytes;
  for (const spec::RecordedCommand& command : core.commands) {
    if (!command.transfers() || !command.remote()) {
      continue;
    }
    const spec::Links::Way way = links.way(core.core, command.to_core);
    for (uint32_t i = 0; i < way.count; ++i) {
      bytes[way.hop[i]] += command.bytes;
    }
  }
  return bytes;
}

}  // namespace

void OpAccount::add(const OpAccount& other) {
  for (size_t k = 0; k < kTimeKinds; ++k) {
    cycles[k] += other.cycles[k];
  }
  busy += other.busy;
  commands += other.commands;
  flops += other.flops;
  hbm_read += other.hbm_read;
  hbm_written += other.hbm_written;
  link_bytes += other.link_bytes;
  link_busy += other.link_busy;
  link_hidden += other.link_hidden;
  link_beside += other.link_beside;
  link_waits += other.link_waits;
}

uint64_t OpAccount::total() const {
  return std::accumulate(cycles.begin(), cycles.end(), uint64_t{0});
}

StepAccount account(const spec::StepRecord& record, unsigned threads) {
  const spec::BoardParams board = spec::board_of(record);
  spec::BandwidthShare share;
  const spec::Links links(board, share);
  StepAccount step;
  step.cycles = record.end() - record.begin();
  step.cores.resize(record.cores.size());
  step.chip_hbm_bytes.resize(static_cast<size_t>(spec::chip_count(board)));
  std::vector<StepAccount> parts(record.cores.size(), step);  // what one core brings
  std::vector<LinkBytes> link_bytes(parts.size());
  for_all(parts.size(), threads, [&](size_t i) {
    const spec::RecordedCore& core = record.cores[i];
    const Moments moments = moments_of(core);
    CoreCharger(core, parts[i].cores[i], parts[i]).run(moments, record.begin(), record.end());
    count_work(core, moments, static_cast<uint32_t>(board.board.cores_per_chip), parts[i].cores[i],
               parts[i]);
    count_exchanges(core, moments, parts[i]);
    parts[i].cores[i].host = count_host(core, moments);
    link_bytes[i] = count_links(core, links);
  });
  LinkBytes bytes;
  for (size_t i = 0; i < parts.size(); ++i) {
    step.cores[i] = std::move(parts[i].cores[i]);
    for (size_t chip = 0; chip < step.chip_hbm_bytes.size(); ++chip) {
      step.chip_hbm_bytes[chip] += parts[i].chip_hbm_bytes[chip];
    }
    for (const auto& [id, op] : parts[i].ops) {
      step.ops[id].add(op);
    }
    for (const auto& [link, count] : link_bytes[i]) {
      bytes[link] += count;
    }
  }
  for (const auto& [link, count] : bytes) {
    step.links.push_back({link.chip, link.y, link.up, count});
  }
  return step;
}

void find_causes(const spec::StepRecord& record, const StepTiming& timing, StepAccount& step) {
  const PathWalk path(record, timing);
  for (uint32_t core = 0; core < step.cores.size(); ++core) {
    KindCycles& kinds = step.cores[core].cycles;
    for (const Gap& gap : step.cores[core].gaps) {
      const bool end = gap.ender == Gap::kEnd;
      const Cause ender = end ? path.end_of(core) : PathWalk::start_of(core, gap.ender);
      const uint64_t at =
          end ? timing.cores[core].end : timing.cores[core].commands[gap.ender].start;
      uint64_t left = gap.cycles;
      path.back(ender, at, at - std::min(at, gap.cycles), [&](const PathPiece& piece) {
        const uint64_t part = std::min(left, piece.end - piece.begin);
        const TimeKind kind = piece.core == core ? piece.kind : TimeKind::kPeer;
        kinds[static_cast<size_t>(kind)] += part;
        if (const auto op = step.ops.find(piece.op);
            op != step.ops.end() && op->second.link_bytes > 0) {
          op->second.link_waits += part;
        }
        left -= part;
      });
      kinds[static_cast<size_t>(TimeKind::kSemaphore)] += left;
      kinds[static_cast<size_t>(TimeKind::kWait)] -= gap.cycles;
    }
    step.cores[core].gaps.clear();
  }
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
