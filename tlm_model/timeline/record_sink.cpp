// Events to the record of a step.
#include "timeline/record_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "board/board_loader.hpp"
#include "exe/executable.hpp"
#include "file/write_failure.hpp"

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

// "4 ", "4 to 6 "
std::string range_text(uint64_t first, uint64_t end) {
  return std::to_string(first) + (end - first > 1 ? " to " + std::to_string(end - 1) : "") + " ";
}

spec::RecordedMemory memory_of(ProbeMemory memory) {
  return static_cast<spec::RecordedMemory>(memory);
}
static_assert(static_cast<int>(ProbeMemory::kHbm) == static_cast<int>(spec::RecordedMemory::kHbm));

}  // namespace

RecordSink::RecordSink(const spec::BoardParams& board, const RecordOptions& options,
                       const LaunchPrograms& programs)
    : board_(board),
      options_(options),
      end_step_(options.first_step + std::min(options.steps, UINT64_MAX - options.first_step)),
      programs_(programs),
      cores_(static_cast<size_t>(spec::core_count(board))),
      vmem_(kVmemPage),
      hbm_(kHbmPage) {
  if (options_.path.empty()) {
    return;
  }
  try {
    file_ = std::make_unique<spec::OutputFile>(options_.path);
  } catch (const std::system_error& error) {
    throw std::runtime_error("cannot write record " + options_.path + ": " +
                             error.code().message());
  }
}

void RecordSink::program(const ProgramEvent& event) {
  if (event.begin && begins(event)) {
    gang_ = event.gang;
    record_.step = event.step;
    describe(event.launch);
  }
  if (!gang_.empty() && event.step == record_.step) {
    event.begin ? begin_step(event) : end_step(event);
  }
}

// A step that begins on its first core while another one is recorded is left out.
bool RecordSink::begins(const ProgramEvent& event) {
  const bool fresh = event.step >= next_step_;
  next_step_ = std::max(next_step_, event.step + 1);
  return fresh && gang_.empty() && event.step >= options_.first_step && event.step < end_step_;
}

void RecordSink::begin_step(const ProgramEvent& event) {
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
  if (!event.complete) {
    forget();
  }
  if (!core.in_step) {
    return;
  }
  add_item(core, event.cycle, {.kind = spec::SequencerItem::Kind::kHalt});
  core.in_step = false;
  core.record.end = event.cycle;
  ended_.insert(event.core);
  if (event.core == seen_core_) {
    record_.vmem = vmem_.finish(event.cycle);
    record_.hbm = hbm_.finish(event.cycle);
  }
  if (ended_ == gang_) {
    complete();
  }
}

// All cores have ended the step as they should.
void RecordSink::complete() {
  record_.board = spec::board_texts(board_);
  if (commands_ > spec::kMostRecordedCommands) {
    record_.left_out = commands_;
  }
  uint64_t begin = UINT64_MAX, end = 0;
  for (Core& core : cores_) {
    if (!gang_.has(core.record.core) || core.record.items.empty()) {
      continue;
    }
    begin = std::min(begin, core.record.begin);
    end = std::max(end, core.record.end);
    if (record_.left_out == 0) {
      record_.cores.push_back(std::move(core.record));
    }
  }
  const bool last = record_.step + 1 == end_step_;
  if (!kept_ || end - begin > kept_cycles_) {
    kept_ = std::move(record_);
    kept_cycles_ = end - begin;
  }
  forget();
  if (last) {
    write();
  }
}

void RecordSink::forget() {
  record_ = {};
  cores_.assign(cores_.size(), Core());
  gang_ = ended_ = {};
  commands_ = 0;
  seen_core_ = UINT32_MAX;
}

void RecordSink::write() {
  if (file_ == nullptr) {
    return;
  }
  try {
    const std::string bytes = take();
    file_->add(std::as_bytes(std::span(bytes)));
    file_->finish();
  } catch (const std::system_error& error) {
    error_ = write_failure("record", options_.path, error.code().value());
  }
  file_ = nullptr;
}

std::string RecordSink::finish() {
  if (file_ != nullptr && kept_) {
    write();
  }
  if (file_ != nullptr) {
    file_ = nullptr;
    error_ =
        "record: nothing was recorded: no step " +
        (end_step_ == UINT64_MAX ? std::string() : range_text(options_.first_step, end_step_)) +
        "ran to its end; " + options_.path + " is as it was";
  }
  return error_;
}

namespace {

std::string type_text(const exe::TemporaryT& t) {
  return fmt::format("{}[{}]", exe::elem_name(t.elem), fmt::join(t.dims, ","));
}

// Temporaries that are alive when most of their bytes are. They come in the order of their begin.
void add_peak(const exe::ExecutableT& program, spec::StepRecord& record) {
  std::multimap<uint32_t, uint64_t> ends;  // of those that are alive: bytes
  uint64_t bytes = 0, most = 0;
  const exe::TemporaryT* latest = nullptr;
  for (const auto& t : program.temporaries) {
    for (auto end = ends.begin(); end != ends.end() && end->first <= t->from;) {
      bytes -= end->second;
      end = ends.erase(end);
    }
    bytes += t->bytes;
    ends.emplace(t->to, t->bytes);
    if (bytes > most) {
      most = bytes;
      latest = t.get();
    }
  }
  if (latest == nullptr) {
    return;
  }
  record.peak_op = latest->op;
  for (const auto& t : program.temporaries) {
    if (t->from <= latest->from && latest->from < t->to) {
      record.peak.push_back({t->bytes, t->op, type_text(*t)});
    }
  }
}

}  // namespace

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
  add_peak(*program, record_);
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

void RecordSink::transfer(const TransferEvent& event) {
  Core& core = cores_.at(event.core);
  if (!core.in_step) {
    return;
  }
  if (event.begin) {
    core.record.host.push_back({event.cycle, event.cycle, event.range.bytes,
                                event.range.write ? uint64_t{0} : uint64_t{1}});
  } else if (!core.record.host.empty()) {
    core.record.host.back().end = event.cycle;
  }
}

// Of any core: what fails beside the gang can slow its transfers.
void RecordSink::upset(const UpsetEvent& event) {
  if (!gang_.empty() && record_.faults.size() < spec::kMostRecordedFaults) {
    record_.faults.push_back({.cycle = event.cycle,
                              .core = event.core,
                              .damage = event.fires ? uint8_t{0} : uint8_t{1},
                              .kind = std::string(event.kind),
                              .place = std::string(event.place),
                              .text = std::string(event.text)});
  }
}

std::string RecordSink::take() {
  if (!kept_) {
    return {};
  }
  return spec::write_record(*std::exchange(kept_, std::nullopt));
}

}  // namespace tpu::model
