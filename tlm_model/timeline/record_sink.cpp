// Events to the record of a step.
#include "timeline/record_sink.hpp"

#include <algorithm>
#include <utility>

#include "board/board_loader.hpp"
#include "exe/executable.hpp"

namespace tpu::model {
namespace {

constexpr uint64_t kVmemPage = 4096;
constexpr uint64_t kHbmPage = 65536;

template <class Uses>
void add_use(Uses& uses, const spec::SemaphoreUse& use) {
  const auto free = std::ranges::find(uses, 0U, &spec::SemaphoreUse::amount);
  if (free != uses.end()) {
    *free = use;
  }
}

spec::RecordedMemory memory_of(ProbeMemory memory) {
  return static_cast<spec::RecordedMemory>(memory);
}
static_assert(static_cast<int>(ProbeMemory::kHbm) == static_cast<int>(spec::RecordedMemory::kHbm));

}  // namespace

RecordSink::RecordSink(const spec::BoardParams& board, uint64_t step,
                       const LaunchPrograms& programs)
    : board_(board),
      step_(step),
      programs_(programs),
      cores_(static_cast<size_t>(spec::core_count(board))),
      vmem_(kVmemPage),
      hbm_(kHbmPage) {}

void RecordSink::program(const ProgramEvent& event) {
  if (event.step != step_) {
    return;
  }
  event.begin ? begin_step(event) : end_step(event);
}

void RecordSink::begin_step(const ProgramEvent& event) {
  if (mask_ == 0) {
    mask_ = event.mask;
    describe(event.launch);
  }
  Core& core = cores_.at(event.core);
  core = {.in_step = true};
  core.record.core = event.core;
  core.record.begin = event.cycle;
  if (seen_core_ == UINT32_MAX) {
    seen_core_ = event.core;
    vmem_.begin(event.cycle);
    hbm_.begin(event.cycle);
  }
}

void RecordSink::end_step(const ProgramEvent& event) {
  Core& core = cores_.at(event.core);
  if (!core.in_step || !event.complete) {
    return;
  }
  add_item(core, event.cycle, {.kind = spec::SequencerItem::Kind::kHalt});
  core.in_step = false;
  core.record.end = event.cycle;
  ended_ |= uint32_t{1} << event.core;
  if (event.core == seen_core_) {
    record_.vmem = vmem_.finish(event.cycle);
    record_.hbm = hbm_.finish(event.cycle);
  }
}

// Names of the program and its operations, and what it holds in HBM.
void RecordSink::describe(uint32_t launch) {
  const auto program = programs_.of(launch);
  if (program == nullptr) {
    return;
  }
  record_.program = program->name;
  record_.notes = program->notes;
  for (const auto& op : program->ops) {
    record_.ops.push_back({op->name, op->file, op->line});
  }
  for (const auto& slot : program->slots) {
    switch (slot->kind) {
      case exe::SlotKind::argument:
        record_.argument_bytes += slot->bytes;
        break;
      case exe::SlotKind::result:
        record_.result_bytes += slot->bytes;
        break;
      case exe::SlotKind::constant:
        record_.constant_bytes += slot->bytes;
        break;
      case exe::SlotKind::scratch:
        record_.scratch_bytes += slot->bytes;
        break;
    }
  }
}

spec::RecordedCommand* RecordSink::command(const ProbeSource& source) {
  Core& core = cores_.at(source.core);
  if (!core.in_step || source.unit == kSequencerUnit || source.sequence < core.first) {
    return nullptr;
  }
  const uint64_t index = source.sequence - core.first;
  return index < core.record.commands.size() ? &core.record.commands[index] : nullptr;
}

void RecordSink::add_item(Core& core, uint64_t cycle, spec::SequencerItem item) {
  item.arrived = std::min(cycle, std::exchange(core.stalled_since, UINT64_MAX));
  item.went = cycle;
  core.record.items.push_back(item);
}

void RecordSink::issue(const IssueEvent& event) {
  Core& core = cores_.at(event.source.core);
  if (!core.in_step || ++commands_ > spec::kMostRecordedCommands) {
    return;
  }
  auto& commands = core.record.commands;
  if (commands.empty()) {
    core.first = event.source.sequence;
  }
  add_item(
      core, event.cycle,
      {.index = static_cast<uint32_t>(commands.size()), .kind = spec::SequencerItem::Kind::kIssue});
  commands.push_back({.issued = event.cycle,
                      .pc = event.source.pc,
                      .op_id = event.source.op_id,
                      .queue = static_cast<uint8_t>(event.source.unit),
                      .opcode = event.source.opcode});
}

// Of the sequencer: it stands at its next item, which the host's answer alone ends.
void RecordSink::wait(const WaitEvent& event) {
  Core& core = cores_.at(event.source.core);
  if (!core.in_step || event.source.unit != kSequencerUnit) {
    return;
  }
  if (event.begin) {
    core.stalled_since = std::min(core.stalled_since, event.cycle);
  } else if (event.what == WaitEvent::For::kHost) {
    add_item(core, event.cycle, {.kind = spec::SequencerItem::Kind::kHost});
  }
}

void RecordSink::take(const TakeEvent& event) {
  Core& core = cores_.at(event.source.core);
  if (core.in_step && event.source.unit == kSequencerUnit) {
    add_item(core, event.cycle,
             {.index = event.semaphore,
              .amount = event.threshold,
              .kind = spec::SequencerItem::Kind::kTake});
  } else if (spec::RecordedCommand* each = command(event.source); each != nullptr) {
    add_use(each->wait, {.amount = event.threshold,
                         .core = static_cast<uint16_t>(event.source.core),
                         .semaphore = static_cast<uint8_t>(event.semaphore),
                         .takes = event.takes ? uint8_t{1} : uint8_t{0}});
  }
}

void RecordSink::access(const AccessEvent& event) {
  if (!cores_.at(event.source.core).in_step) {
    return;
  }
  for (const AccessRange& range : event.extents) {
    if (range.owner == seen_core_ && range.memory != ProbeMemory::kSmem) {
      LivePages& pages = range.memory == ProbeMemory::kVmem ? vmem_ : hbm_;
      pages.touch(event.cycle, range.low, range.bytes, range.write);
    }
  }
}

void RecordSink::flow(const FlowEvent& event) {
  spec::RecordedCommand* each = command(event.source);
  if (each == nullptr) {
    return;
  }
  if (event.phase == FlowEvent::Phase::kBegin) {
    each->bytes = event.bytes;
    each->from_core = static_cast<uint16_t>(event.from.core);
    each->to_core = static_cast<uint16_t>(event.to.core);
    each->from = memory_of(event.from.memory);
    each->to = memory_of(event.to.memory);
    each->flow_end = event.cycle;
  } else if (event.phase == FlowEvent::Phase::kEnd) {
    each->flow_end = event.cycle;
  }
}

void RecordSink::start(const StartEvent& event) {
  if (spec::RecordedCommand* each = command(event.source); each != nullptr) {
    each->start = event.cycle;
    each->free_at = event.free_at;
    each->held = std::min(event.held, event.cycle);
    each->flops = event.flops;
  }
}

void RecordSink::signal(const SignalEvent& event) {
  Core& core = cores_.at(event.source.core);
  if (core.in_step && event.source.unit == kSequencerUnit) {
    add_item(core, event.cycle,
             {.index = event.semaphore,
              .amount = event.amount,
              .kind = spec::SequencerItem::Kind::kSignal});
  } else if (spec::RecordedCommand* each = command(event.source); each != nullptr) {
    add_use(each->signal, {.amount = event.amount,
                           .core = static_cast<uint16_t>(event.to_core),
                           .semaphore = static_cast<uint8_t>(event.semaphore)});
  }
}

void RecordSink::done(const DoneEvent& event) {
  if (spec::RecordedCommand* each = command(event.source); each != nullptr) {
    each->done = event.cycle;
  }
}

std::string RecordSink::take() {
  if (mask_ == 0 || ended_ != mask_) {
    return {};
  }
  record_.board = spec::board_texts(board_);
  record_.step = step_;
  if (commands_ > spec::kMostRecordedCommands) {
    record_.left_out = commands_;
  }
  for (Core& core : cores_) {
    if (record_.left_out == 0 && (mask_ >> core.record.core & 1) != 0 &&
        !core.record.items.empty()) {
      record_.cores.push_back(std::move(core.record));
    }
    core = {};
  }
  mask_ = ended_ = 0;
  commands_ = 0;
  seen_core_ = UINT32_MAX;
  return spec::write_record(std::exchange(record_, {}));
}

}  // namespace tpu::model
