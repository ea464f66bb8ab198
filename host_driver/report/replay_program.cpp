// A record, command by command.
#include "report/replay_program.hpp"

#include <algorithm>

namespace tpu::driver {
namespace {

using spec::RecordedCommand, spec::SequencerItem;

bool is_dma(const RecordedCommand& command) {
  const spec::Engine engine = spec::kQueues[command.queue].engine;
  return engine != spec::Engine::kMxu && engine != spec::Engine::kVpu &&
         engine != spec::Engine::kXlu;
}

uint32_t short_time(uint64_t cycles) {
  return static_cast<uint32_t>(std::min<uint64_t>(cycles, UINT32_MAX));
}

ReplayCommand compact(const RecordedCommand& command, uint32_t number,
                      const RecordedCommand* front) {
  ReplayCommand to;
  to.size = command.bytes;
  to.number = number;
  to.op_id = command.op_id;
  to.wait = command.wait;
  to.signal = command.signal;
  to.to_core = command.to_core;
  to.from = command.from;
  to.to = command.to;
  to.transfers = command.transfers();
  to.remote = command.remote();
  to.fills = command.opcode == static_cast<uint8_t>(spec::Opcode::kFill);
  to.timed = !command.transfers() && command.works() && !is_dma(command);
  if (to.timed) {
    to.size = command.done - command.start;
    to.free_after = short_time(command.free_at - command.start);
  }
  if (front != nullptr && command.held > front->start) {
    to.held_after = short_time(command.held - front->start);
  }
  return to;
}

ReplayItem::Kind compact(SequencerItem::Kind kind) {
  using From = SequencerItem::Kind;
  using To = ReplayItem::Kind;
  switch (kind) {
    case From::kIssue:
      return To::kIssue;
    case From::kTake:
      return To::kTake;
    case From::kSignal:
      return To::kSignal;
    case From::kHost:
      return To::kHost;
    case From::kHalt:
      return To::kHalt;
  }
  return To::kHalt;
}

void add_item(ReplayProgram::Core& to, const spec::RecordedCore& core, size_t index) {
  const SequencerItem& item = core.items[index];
  const uint64_t before = index == 0 ? core.begin : core.items[index - 1].went;
  ReplayItem each{.gap = item.arrived - before, .amount = item.amount, .kind = compact(item.kind)};
  if (item.kind == SequencerItem::Kind::kHost) {
    each.amount = static_cast<uint32_t>(to.host_waits.size());
    to.host_waits.push_back(item.went - item.arrived);
  }
  each.index = item.kind == SequencerItem::Kind::kIssue ? core.commands[item.index].queue
                                                        : static_cast<uint8_t>(item.index);
  to.items.push_back(each);
}

ReplayProgram::Core compact(const spec::RecordedCore& core) {
  ReplayProgram::Core to{.core = core.core, .begin = core.begin, .commands = core.commands.size()};
  std::array<size_t, spec::kQueueCount> count{};
  for (const RecordedCommand& command : core.commands) {
    ++count[command.queue];
  }
  for (size_t q = 0; q < count.size(); ++q) {
    to.queues[q].reserve(count[q]);
  }
  for (uint32_t i = 0; i < core.commands.size(); ++i) {
    auto& queue = to.queues[core.commands[i].queue];
    const RecordedCommand* front = queue.empty() ? nullptr : &core.commands[queue.back().number];
    queue.push_back(compact(core.commands[i], i, front));
  }
  to.items.reserve(core.items.size());
  for (size_t i = 0; i < core.items.size(); ++i) {
    add_item(to, core, i);
  }
  return to;
}

}  // namespace

ReplayProgram::ReplayProgram(const spec::StepRecord& record) : board(spec::board_of(record)) {
  for (const spec::RecordedCore& core : record.cores) {
    cores.push_back(compact(core));
  }
}

}  // namespace tpu::driver
