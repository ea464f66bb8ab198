// What is under way changes only with a start or a done: each first charges the cycles since the
// last one.
#include "probe/op_times_sink.hpp"

#include <algorithm>
#include <utility>

namespace tpu::model {
namespace {

// Queues, the foremost first.
constexpr std::array kRank = {spec::Queue::kMxu0,      spec::Queue::kMxu1,  spec::Queue::kMxu2,
                              spec::Queue::kMxu3,      spec::Queue::kVpu,   spec::Queue::kXlu,
                              spec::Queue::kDmaRemote, spec::Queue::kDmaIn, spec::Queue::kDmaOut};
static_assert(kRank.size() == spec::kQueueCount);

bool works(const ProbeSource& source) {
  return source.opcode != static_cast<uint8_t>(spec::Opcode::kNop);
}

}  // namespace

uint32_t OpTimesSink::foremost(const Core& core) {
  for (const spec::Queue queue : kRank) {
    const std::vector<Command>& commands = core.under_way[static_cast<size_t>(queue)];
    if (!commands.empty()) {
      return commands.front().op_id;
    }
  }
  return OpTime::kNoOp;
}

OpTime& OpTimesSink::time_of(Core& core, uint32_t op_id) {
  OpTime& time = (*core.times)[op_id];
  time.op_id = op_id;
  return time;
}

void OpTimesSink::charge(Core& core, uint64_t now) {
  if (now > core.charged) {
    time_of(core, foremost(core)).cycles += now - core.charged;
    core.charged = now;
  }
}

// Steps that had begun before anybody listened are left out.
void OpTimesSink::program(const ProgramEvent& event) {
  Core& core = cores_[event.core];
  if (event.begin) {
    core = Core{.times = &launches_[event.launch], .charged = event.cycle};
  } else if (core.times != nullptr) {
    charge(core, event.cycle);
    core.times = nullptr;
  }
}

void OpTimesSink::start(const StartEvent& event) {
  Core& core = cores_[event.source.core];
  if (core.times == nullptr || !works(event.source)) {
    return;
  }
  charge(core, event.cycle);
  core.under_way[event.source.unit].push_back({event.source.sequence, event.source.op_id});
  Busy& busy = core.busy[event.source.op_id];
  if (busy.commands++ == 0) {
    busy.since = event.cycle;
  }
}

void OpTimesSink::done(const DoneEvent& event) {
  Core& core = cores_[event.source.core];
  if (core.times == nullptr || !works(event.source)) {
    return;
  }
  std::vector<Command>& commands = core.under_way[event.source.unit];
  const auto command = std::ranges::find(commands, event.source.sequence, &Command::sequence);
  if (command == commands.end()) {
    return;  // of the step before
  }
  charge(core, event.cycle);
  commands.erase(command);
  OpTime& time = time_of(core, event.source.op_id);
  ++time.commands;
  Busy& busy = core.busy[event.source.op_id];
  if (--busy.commands == 0) {
    time.busy_cycles += event.cycle - busy.since;
  }
}

std::vector<OpTime> OpTimesSink::take_launch(uint32_t launch) {
  std::vector<OpTime> times;
  const auto found = launches_.find(launch);
  if (found == launches_.end()) {
    return times;
  }
  for (const auto& [op_id, time] : found->second) {
    times.push_back(time);
  }
  for (Core& core : cores_) {
    core.times = core.times == &found->second ? nullptr : core.times;
  }
  launches_.erase(found);
  return times;
}

}  // namespace tpu::model
