// From events to the log.
#include "probe/command_log_sink.hpp"

#include <algorithm>
#include <tuple>

namespace tpu::model {

static_assert(static_cast<int>(ProbeMemory::kVmem) == static_cast<int>(spec::CoreMemory::kVmem) &&
              static_cast<int>(ProbeMemory::kSmem) == static_cast<int>(spec::CoreMemory::kSmem) &&
              static_cast<int>(ProbeMemory::kHbm) == static_cast<int>(spec::CoreMemory::kHbm));

void CommandLogSink::issue(const IssueEvent& event) {
  std::optional<uint64_t>& before = issued_before_[event.source.core];
  if (!before) {
    before = event.source.sequence - 1;
  }
}

void CommandLogSink::access(const AccessEvent& event) {
  if (event.source.unit == kSequencerUnit) {
    return;
  }
  std::vector<spec::OperandRange>& operands = operands_[{event.source.core, event.source.sequence}];
  for (const AccessRange& extent : event.extents) {
    operands.push_back(
        {{extent.owner, static_cast<spec::CoreMemory>(extent.memory), extent.low, extent.bytes},
         extent.write});
  }
}

void CommandLogSink::start(const StartEvent& event) {
  const ProbeSource& s = event.source;
  const Key key{s.core, s.sequence};
  under_way_[key] = log_.commands.size();
  spec::LoggedCommand& command = log_.commands.emplace_back();
  command.core = s.core;
  command.unit = s.unit;
  command.number = s.sequence - issued_before_[s.core].value_or(0);
  command.pc = s.pc;
  command.op_id = s.op_id;
  command.opcode = s.opcode;
  command.start = event.cycle;
  if (auto operands = operands_.extract(key)) {
    command.operands = std::move(operands.mapped());
  }
}

void CommandLogSink::done(const DoneEvent& event) {
  const auto found = under_way_.find({event.source.core, event.source.sequence});
  if (found == under_way_.end()) {
    return;
  }
  spec::LoggedCommand& command = log_.commands[found->second];
  command.done = event.cycle;
  under_way_.erase(found);
  if (!look_ || look_->core != command.core || look_->number != command.number) {
    return;
  }
  std::vector<std::byte> bytes(look_->range.bytes);
  if (read_(look_->range, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()})) {
    log_.looked = std::move(bytes);
  }
}

spec::CommandLog CommandLogSink::take_log() {
  std::stable_sort(log_.commands.begin(), log_.commands.end(), [](const auto& a, const auto& b) {
    return std::tie(a.start, a.core, a.unit) < std::tie(b.start, b.core, b.unit);
  });
  return std::move(log_);
}

}  // namespace tpu::model
