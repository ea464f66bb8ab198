// Spans of operations, summed.
#include "probe/op_times_sink.hpp"

#include <utility>

namespace tpu::model {

OpTime& OpTimesSink::time_of(Core& core, uint32_t op_id) {
  OpTime& time = (*core.times)[op_id];
  time.op_id = op_id;
  return time;
}

void OpTimesSink::charge(Core& core, const spec::OpSpan& span) {
  if (!span.empty()) {
    time_of(core, span.op_id).cycles += span.end - span.begin;
  }
}

// Steps that had begun before anybody listened are left out.
void OpTimesSink::program(const ProgramEvent& event) {
  Core& core = cores_[event.core];
  if (event.begin) {
    core = Core{.times = &launches_[event.launch]};
    core.spans.begin_step(event.cycle);
  } else if (core.times != nullptr) {
    charge(core, core.spans.end_step(event.cycle));
    core.times = nullptr;
  }
}

void OpTimesSink::start(const StartEvent& event) {
  Core& core = cores_[event.source.core];
  if (core.times == nullptr || !spec::OpSpans::works(event.source.opcode)) {
    return;
  }
  charge(core, core.spans.start(event.cycle,
                                {event.source.unit, event.source.sequence, event.source.op_id}));
  Busy& busy = core.busy[event.source.op_id];
  if (busy.commands++ == 0) {
    busy.since = event.cycle;
  }
}

void OpTimesSink::done(const DoneEvent& event) {
  Core& core = cores_[event.source.core];
  if (core.times == nullptr || !spec::OpSpans::works(event.source.opcode) ||
      !core.spans.under_way(event.source.unit, event.source.sequence)) {
    return;
  }
  charge(core, core.spans.done(event.cycle, event.source.unit, event.source.sequence));
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
