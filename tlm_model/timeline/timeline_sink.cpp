// Events to tracks.
#include "timeline/timeline_sink.hpp"

#include <algorithm>
#include <map>

#include "exe/executable.hpp"
#include "terminal/counted.hpp"

namespace tpu::model {
namespace {

// Where a track stands in its core's group.
enum Rank : int { kSteps, kSequencer, kMarks, kHart, kQueues };
constexpr int kRanksOfAQueue = 64;  // waits first, then lanes
constexpr int kCounters = kQueues + kRanksOfAQueue * static_cast<int>(spec::kQueueCount);

constexpr int rank_of(size_t queue, size_t lane) {
  return kQueues + kRanksOfAQueue * static_cast<int>(queue) +
         std::min(static_cast<int>(lane), kRanksOfAQueue - 1);
}

template <class List>
auto find_command(List& list, uint64_t sequence) {
  return std::find_if(list.begin(), list.end(),
                      [&](const auto& each) { return each.sequence == sequence; });
}

}  // namespace

TimelineSink::TimelineSink(const TimelineOptions& options, const LaunchPrograms& programs)
    : programs_(programs),
      path_(options.path),
      first_step_(options.first_step),
      end_step_(options.first_step + std::min(options.step_count, UINT64_MAX - options.first_step)),
      file_(std::make_unique<PerfettoFile>(options.path, options.numbers.clock_mhz)),
      flows_(size_t{options.chips} * options.cores_per_chip) {
  op_note_ = file_->note_name("op");
  pc_note_ = file_->note_name("pc");
  step_note_ = file_->note_name("step");
  launch_note_ = file_->note_name("launch");
  wanted_note_ = file_->note_name("wanted");
  awake_ = file_->name("awake");
  for (const spec::CommandInfo& info : spec::kCommands) {
    categories_[static_cast<uint8_t>(info.opcode)] = file_->category(info.name);
  }
  std::map<uint32_t, PerfettoFile::Track> boards;
  for (const uint32_t board : options.board_of_chip) {
    if (!boards.contains(board)) {
      boards[board] =
          file_->add_track(0, "board " + std::to_string(board), static_cast<int>(board));
    }
  }
  for (uint32_t chip = 0; chip < options.chips; ++chip) {
    const PerfettoFile::Track parent = boards.empty() ? 0 : boards.at(options.board_of_chip[chip]);
    for (uint32_t core = 0; core < options.cores_per_chip; ++core) {
      add_core(chip, core, options, parent);
    }
  }
}

void TimelineSink::add_core(uint32_t chip, uint32_t index, const TimelineOptions& options,
                            PerfettoFile::Track parent) {
  const size_t device = cores_.size();
  Core core;
  core.group = file_->add_track(parent,
                                "TPU:" + std::to_string(device) + " (chip" + std::to_string(chip) +
                                    ".core" + std::to_string(index) + ")",
                                static_cast<int>(device),
                                "core clock " + std::to_string(options.numbers.clock_mhz) + " MHz");
  core.steps = file_->add_track(core.group, "steps", kSteps);
  core.marks = file_->add_track(core.group, "marks", kMarks);
  core.hart = file_->add_track(core.group, "control hart", kHart);
  core.units.resize(kUnits);
  for (size_t unit = 0; unit < core.units.size(); ++unit) {
    if (unit == kSequencerUnit) {
      core.units[unit].waits = file_->add_track(core.group, "sequencer waits", kSequencer);
      continue;
    }
    const spec::QueueInfo& info = spec::kQueues[unit];
    if (info.engine == spec::Engine::kMxu && info.unit >= options.numbers.mxus) {
      continue;
    }
    const std::string name(spec::kQueueNames[unit]);
    core.units[unit].waits = file_->add_track(core.group, name + " waits", rank_of(unit, 0));
  }
  core.counters =
      std::make_unique<CoreCounterTracks>(*file_, core.group, kCounters, options.numbers);
  cores_.push_back(std::move(core));
}

// Cores of a gang share theirs.
std::shared_ptr<TimelineSink::Program> TimelineSink::program_of(uint32_t launch) {
  auto executable = programs_.of(launch);
  for (const Core& core : cores_) {
    if (core.program != nullptr && core.program->executable == executable) {
      return core.program;
    }
  }
  auto program = std::make_shared<Program>();
  program->name = file_->name(executable == nullptr ? "program" : executable->name);
  program->executable = std::move(executable);
  return program;
}

TimelineSink::Op TimelineSink::op(Core& core, uint32_t op_id) {
  const exe::ExecutableT* executable =
      core.program != nullptr ? core.program->executable.get() : nullptr;
  if (executable == nullptr || op_id >= executable->ops.size()) {
    return {file_->name("op " + std::to_string(op_id)), 0};
  }
  std::vector<Op>& ops = core.program->ops;
  ops.resize(executable->ops.size());
  if (ops[op_id].name == 0) {
    const exe::OpInfoT& info = *executable->ops[op_id];
    ops[op_id] = {file_->name(info.name),
                  info.file.empty() ? 0 : file_->place(info.file, info.line)};
  }
  return ops[op_id];
}

void TimelineSink::program(const ProgramEvent& event) {
  if (event.begin) {
    begun_ = std::max(begun_, event.step + 1);
  }
  if (file_ == nullptr) {
    return;
  }
  if (!in_window(event.step)) {
    if (event.begin && event.step >= end_step_ && active_ == 0) {
      close(event.cycle);  // the window is over
    }
    return;
  }
  event.begin ? begin_step(event) : end_step(event);
}

void TimelineSink::begin_step(const ProgramEvent& event) {
  Core& core = cores_.at(event.core);
  recorded_ = true;
  ++active_;
  core.program = program_of(event.launch);
  core.step_since = event.cycle;
  core.in_step = true;
  core.counters->idle(event.cycle);
  flows_.clear(event.core);
}

// Also drops what is queued.
void TimelineSink::end_step(const ProgramEvent& event) {
  Core& core = cores_.at(event.core);
  if (!core.in_step) {
    return;  // had begun before anybody listened
  }
  const std::array notes = {PerfettoFile::Note{step_note_, event.step},
                            PerfettoFile::Note{launch_note_, event.launch}};
  file_->slice(
      core.steps,
      {.begin = core.step_since, .end = event.cycle, .name = core.program->name, .notes = notes});
  for (Unit& unit : core.units) {
    end_wait(unit, event.cycle);
    unit.takes = {};
    unit.transfers.clear();
  }
  for (; core.marks_open != 0; --core.marks_open) {
    file_->end(core.marks, event.cycle);
  }
  core.counters->idle(event.cycle);
  core.in_step = false;
  --active_;
}

void TimelineSink::issue(const IssueEvent& event) {
  Core& core = cores_.at(event.source.core);
  if (core.in_step) {
    core.counters->queued(event.cycle, event.source.unit, 1);
  }
}

TimelineSink::Text TimelineSink::wait_name(const WaitEvent& event) {
  switch (event.what) {
    case WaitEvent::For::kSemaphore:
      return file_->name("semaphore " + std::to_string(event.index));
    case WaitEvent::For::kQueue:
      return file_->name(std::string(spec::kQueueNames.at(event.index)) + " is full");
    case WaitEvent::For::kEngines:
      return file_->name("all engines");
    case WaitEvent::For::kHost:
      return file_->name("host call " + std::to_string(event.index));
  }
  return 0;
}

void TimelineSink::wait(const WaitEvent& event) {
  Core& core = cores_.at(event.source.core);
  if (!core.in_step) {
    return;
  }
  Unit& unit = core.units[event.source.unit];
  if (event.begin) {
    unit.wait = {true, event.since, wait_name(event), event.wanted};
  } else {
    end_wait(unit, event.cycle);
  }
}

void TimelineSink::end_wait(Unit& unit, uint64_t cycle) {
  Wait& wait = unit.wait;
  if (wait.open && cycle > wait.since) {
    const PerfettoFile::Note wanted{wanted_note_, wait.wanted};
    file_->slice(unit.waits,
                 {.begin = wait.since,
                  .end = cycle,
                  .name = wait.name,
                  .notes = std::span(&wanted, wait.wanted != 0 ? size_t{1} : size_t{0})});
  }
  wait.open = false;
}

void TimelineSink::take(const TakeEvent& event) {
  const ProbeSource& source = event.source;
  Core& core = cores_.at(source.core);
  if (core.in_step) {
    core.units[source.unit].takes.add(
        flows_.take(source.core, event.semaphore, event.threshold, event.takes));
  }
}

// `change` of its rate; unsigned, so that less wraps.
void TimelineSink::move(const Transfer& transfer, uint64_t cycle, uint64_t change) {
  if (transfer.from.memory == ProbeMemory::kHbm) {
    cores_.at(transfer.from.core).counters->hbm_read(cycle, change);
  }
  if (transfer.to.memory == ProbeMemory::kHbm) {
    cores_.at(transfer.to.core).counters->hbm_write(cycle, change);
  }
  if (transfer.to.core != transfer.from.core) {
    cores_.at(transfer.from.core).counters->sent(cycle, change);
  }
}

void TimelineSink::flow(const FlowEvent& event) {
  Core& core = cores_.at(event.source.core);
  if (!core.in_step) {
    return;
  }
  std::vector<Transfer>& transfers = core.units[event.source.unit].transfers;
  if (event.phase == FlowEvent::Phase::kBegin) {
    transfers.push_back({event.source.sequence, event.from, event.to, 0});
    return;
  }
  const auto transfer = find_command(transfers, event.source.sequence);
  if (transfer == transfers.end()) {
    return;
  }
  const uint64_t rate = event.phase == FlowEvent::Phase::kEnd ? 0 : event.rate;
  move(*transfer, event.cycle, rate - transfer->rate);
  transfer->rate = rate;
  if (event.phase == FlowEvent::Phase::kEnd) {
    transfers.erase(transfer);
  }
}

void TimelineSink::start(const StartEvent& event) {
  const ProbeSource& source = event.source;
  Core& core = cores_.at(source.core);
  if (!core.in_step) {
    return;
  }
  Unit& unit = core.units[source.unit];
  core.counters->queued(event.cycle, source.unit, -1);
  if (event.flops != 0) {
    core.counters->matmul(event);
  }
  const auto lane = static_cast<size_t>(std::ranges::find(unit.taken, false) - unit.taken.begin());
  if (lane == unit.taken.size()) {
    const std::string name(spec::kQueueNames[source.unit]);
    unit.taken.push_back(false);
    unit.lanes.push_back(file_->add_track(
        core.group, lane == 0 ? name : name + " (" + std::to_string(lane + 1) + ")",
        rank_of(source.unit, lane + 1)));
  }
  unit.taken[lane] = true;
  unit.commands.push_back({source.sequence, lane, unit.takes, {}});
  unit.takes = {};
}

void TimelineSink::signal(const SignalEvent& event) {
  const ProbeSource& source = event.source;
  if (!cores_.at(source.core).in_step) {
    return;
  }
  uint64_t flow = 0;
  if (source.unit != kSequencerUnit) {
    std::vector<Command>& commands = cores_[source.core].units[source.unit].commands;
    const auto command = find_command(commands, source.sequence);
    if (command != commands.end()) {
      flow = ++last_flow_;
      command->out.add(flow);
    }
  }
  flows_.signal(event.to_core, event.semaphore, event.amount, flow);
}

void TimelineSink::done(const DoneEvent& event) {
  const ProbeSource& source = event.source;
  Core& core = cores_.at(source.core);
  Unit& unit = core.units[source.unit];
  const auto command = find_command(unit.commands, source.sequence);
  if (command == unit.commands.end()) {
    return;
  }
  if (file_ != nullptr) {
    const Op named = op(core, source.op_id);
    const std::array notes = {PerfettoFile::Note{op_note_, source.op_id},
                              PerfettoFile::Note{pc_note_, source.pc}};
    file_->slice(unit.lanes[command->lane], {.begin = event.start,
                                             .end = event.cycle,
                                             .name = named.name,
                                             .category = categories_[source.opcode],
                                             .place = named.place,
                                             .notes = notes,
                                             .flows_in = command->in.ids(),
                                             .flows_out = command->out.ids()});
  }
  unit.taken[command->lane] = false;
  unit.commands.erase(command);
}

void TimelineSink::mark(const MarkEvent& event) {
  Core& core = cores_.at(event.source.core);
  if (!core.in_step) {
    return;
  }
  if (event.begin) {
    file_->begin(core.marks, event.cycle, op(core, event.source.op_id).name);
    ++core.marks_open;
  } else if (core.marks_open != 0) {
    file_->end(core.marks, event.cycle);
    --core.marks_open;
  }
}

void TimelineSink::fault(const FaultEvent& event) {
  if (recording()) {
    Core& core = cores_.at(event.source.core);
    file_->instant(core.steps, event.cycle,
                   file_->name(event.text.empty() ? "fault " + std::to_string(event.code)
                                                  : "fault: " + std::string(event.text)));
  }
}

void TimelineSink::upset(const UpsetEvent& event) {
  if (recording()) {
    file_->instant(cores_.at(event.core).steps, event.cycle,
                   file_->name(std::string(event.fires ? "fault on purpose: " : "damage: ") +
                               std::string(event.kind) + ", " + std::string(event.text)));
  }
}

void TimelineSink::hart(const HartEvent& event) {
  Core& core = cores_.at(event.core);
  if (event.kind == HartEvent::Kind::kMmio) {
    return;
  }
  const bool awake = event.kind == HartEvent::Kind::kRun;
  if (awake && !core.awake) {
    core.awake_since = event.cycle;
  } else if (!awake && core.awake && recording() && event.cycle > core.awake_since) {
    file_->slice(core.hart, {.begin = core.awake_since, .end = event.cycle, .name = awake_});
  }
  core.awake = awake;
}

void TimelineSink::close(uint64_t cycle) {
  if (file_ == nullptr) {
    return;
  }
  for (Core& core : cores_) {
    if (core.awake && recording() && cycle > core.awake_since) {
      file_->slice(core.hart, {.begin = core.awake_since, .end = cycle, .name = awake_});
    }
    core.counters->flush();
    core.counters.reset();
    core.in_step = false;
  }
  error_ = file_->finish();
  file_.reset();
}

std::string TimelineSink::finish() {
  close(0);
  const bool whole_run = first_step_ == 0 && end_step_ == UINT64_MAX;
  if (error_.empty() && !recorded_ && !whole_run) {
    error_ = "timeline: nothing was recorded in " + path_ + ": of the steps " +
             std::to_string(first_step_) + " to " + std::to_string(end_step_ - 1) +
             " none ran; the board ran " + spec::counted(begun_, "step") +
             ", counted from 0 (those before a snapshot too)";
  }
  return error_;
}

}  // namespace tpu::model
