// Times of faults: cycles by the kernel, all others by what the probe tells.
#include "faults/fault_injector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <tuple>

#include "exe/executable.hpp"
#include "kernel/cycles.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::model {
namespace {

constexpr double kWords = 4294967296.0;  // 2^32

// What is due waits for so many delta cycles: more than the longest chain of events within a cycle,
// for the kernel does not say which of the events of a cycle come first. Not until nothing else is
// pending: the gate process waits so (kernel/end_cycle.hpp), and each would wait for the other.
constexpr uint32_t kDeltas = 64;

bool is_rate(const FaultTime& time) {
  return time.kind == FaultTime::Kind::kRatePerStep || time.kind == FaultTime::Kind::kRatePerLaunch;
}

}  // namespace

FaultInjector::FaultInjector(sc_core::sc_module_name name, FaultScript script,
                             const std::string& log, uint32_t cores_per_chip, FaultTargets& targets,
                             const std::function<bool(const FaultEntry&)>& here,
                             const ProbeSet& probes, const LaunchPrograms& programs)
    : sc_module(name),
      script_(std::move(script)),
      cores_per_chip_(cores_per_chip),
      targets_(targets),
      probes_(probes),
      programs_(programs),
      boards_(script_.boards.empty() ? 1 : std::ranges::max(script_.boards) + size_t{1}),
      log_(log, boards_),
      states_(script_.entries.size()) {
  SC_METHOD(due_method);
  sensitive << due_event_;
  dont_initialize();
  for (size_t i = 0; i < states_.size(); ++i) {
    const FaultTime& time = script_.entries[i].time;
    states_[i].here = here(script_.entries[i]);
    states_[i].done = !states_[i].here;
    if (states_[i].here && time.kind == FaultTime::Kind::kCycle) {
      schedule(i, time.number);
    }
  }
}

void FaultInjector::listen(ProbeSet& probes) {
  const auto any = [this](FaultTime::Kind kind) {
    return std::ranges::any_of(script_.entries,
                               [kind](const FaultEntry& each) { return each.time.kind == kind; });
  };
  const bool ops = any(FaultTime::Kind::kOp);
  if (ops) {
    probes.add(*this, {ProbeEvent::kIssue, ProbeEvent::kStart});
  }
  if (ops || !std::ranges::all_of(script_.entries, [](const FaultEntry& each) {
        return each.time.kind == FaultTime::Kind::kCycle;
      })) {
    probes.add(*this, {ProbeEvent::kProgram});
  }
}

bool FaultInjector::on_core(const FaultEntry& entry, uint32_t core) const {
  const uint32_t chip = core / cores_per_chip_;
  switch (fault_home(entry.kind)) {
    case FaultHome::kCore:
      return entry.unit == core;
    case FaultHome::kBoard:
      return script_.boards[chip] == entry.unit;
    default:
      return entry.chip == chip;
  }
}

void FaultInjector::program(const ProgramEvent& event) {
  launches_[event.core] = event.launch;
  for (size_t i = 0; event.begin && i < states_.size(); ++i) {
    if (!states_[i].done && on_core(script_.entries[i], event.core)) {
      begin(i, event);
    }
  }
}

// A core at its place begins a step; of a chip, the first one that does.
void FaultInjector::begin(size_t index, const ProgramEvent& event) {
  const FaultTime& time = script_.entries[index].time;
  State& state = states_[index];
  switch (time.kind) {
    case FaultTime::Kind::kStep:
      if (event.step == time.number) {
        schedule(index, event.cycle + time.cycles);
      }
      return;
    case FaultTime::Kind::kLaunch:
      if (event.launch == time.number) {
        schedule(index, event.cycle + time.cycles);
      }
      return;
    case FaultTime::Kind::kRatePerStep:
    case FaultTime::Kind::kRatePerLaunch: {
      const bool step = time.kind == FaultTime::Kind::kRatePerStep;
      const uint64_t count = step ? event.step + 1 : event.launch;
      if (count == state.last) {
        return;
      }
      state.last = count;
      const uint32_t word = fault_draw(script_.seed, script_.entries[index], 2 * count)[0];
      if (static_cast<double>(word) < time.rate * kWords) {
        state.count = 2 * count + 1;
        at(event.cycle, index + 1, [this, index] { fire(index); });
      }
      return;
    }
    default:
      return;
  }
}

// Whether a command is the one that an entry with the name of an op waits for; of a matrix unit, a
// product.
bool FaultInjector::is_time(size_t index, const ProbeSource& source) {
  const FaultEntry& entry = script_.entries[index];
  if (states_[index].done || entry.time.kind != FaultTime::Kind::kOp ||
      !on_core(entry, source.core) ||
      (entry.kind == FaultKind::kMxu &&
       (source.unit != entry.engine ||
        source.opcode != static_cast<uint8_t>(spec::Opcode::kMatmul)))) {
    return false;
  }
  const auto program = programs_.of(launches_[source.core]);
  return program != nullptr && source.op_id < program->ops.size() &&
         program->ops[source.op_id]->name == entry.time.op &&
         ++states_[index].count == entry.time.number;
}

// A matrix unit has to know before the command starts.
void FaultInjector::issue(const IssueEvent& event) {
  for (size_t i = 0; i < states_.size(); ++i) {
    if (script_.entries[i].kind == FaultKind::kMxu && is_time(i, event.source)) {
      states_[i].done = true;
      fire(i, event.source.sequence);
    }
  }
}

void FaultInjector::start(const StartEvent& event) {
  for (size_t i = 0; i < states_.size(); ++i) {
    if (script_.entries[i].kind != FaultKind::kMxu && is_time(i, event.source)) {
      schedule(i, event.cycle);
    }
  }
}

void FaultInjector::schedule(size_t entry, uint64_t cycle) {
  states_[entry].done = true;
  at(cycle, entry + 1, [this, entry] { fire(entry); });
}

void FaultInjector::later(uint64_t cycles, std::function<void()> work) {
  at(now_cycles() + cycles, 0, std::move(work));
}

void FaultInjector::at(uint64_t cycle, size_t order, std::function<void()> work) {
  const uint64_t now = now_cycles();
  due_.emplace(std::pair(std::max(cycle, now), order), std::move(work));
  const uint64_t first = due_.begin()->first.first;
  deltas_ = 0;
  due_event_.cancel();
  first == now ? due_event_.notify(sc_core::SC_ZERO_TIME)
               : due_event_.notify(from_cycles(first - now));
}

void FaultInjector::due_method() {
  if (deltas_ < kDeltas) {
    ++deltas_;
    due_event_.notify(sc_core::SC_ZERO_TIME);
    return;
  }
  const uint64_t now = now_cycles();
  while (!due_.empty() && due_.begin()->first.first <= now) {
    const std::function<void()> work = std::move(due_.begin()->second);
    due_.erase(due_.begin());
    work();
  }
  deltas_ = 0;
  due_event_.cancel();  // of what came meanwhile
  if (!due_.empty()) {
    due_event_.notify(from_cycles(due_.begin()->first.first - now));
  }
}

void FaultInjector::fire(size_t index, uint64_t command) {
  const FaultEntry& entry = script_.entries[index];
  State& state = states_[index];
  ++state.fired;
  const std::string text = targets_.upset(
      entry, fault_draw(script_.seed, entry, is_rate(entry.time) ? state.count : 0), command);
  constexpr std::string_view kNothing = "nothing: ";
  if (text.starts_with(kNothing)) {
    return note("nothing", entry.kind, entry.unit, text.substr(kNothing.size()));
  }
  tell(entry.kind, entry.unit, true, text);
  if (entry.kind == FaultKind::kHostDies) {
    static_cast<void>(log_.finish());
    std::raise(SIGKILL);
  }
}

void FaultInjector::met(FaultKind kind, uint32_t unit, const std::string& text,
                        std::optional<uint32_t> board) {
  tell(kind, unit, false, text, board);
}

void FaultInjector::note(std::string_view word, FaultKind kind, uint32_t unit,
                         std::string_view text, std::optional<uint32_t> board) {
  const uint64_t now = now_cycles();
  if (log_.write(now, {board.value_or(board_of(kind, unit)), word, fault_kind_name(kind), unit},
                 fmt::format("[{}] {} {} {}: {}\n", now, word, fault_kind_name(kind),
                             place(kind, unit), text))) {
    at(now + 1, 0, [this] { log_.write_before(now_cycles()); });
  }
}

uint32_t FaultInjector::board_of(FaultKind kind, uint32_t unit) const {
  return script_.boards[first_core(kind, unit) / cores_per_chip_];
}

// As fault_place(); in a pod with the board.
std::string FaultInjector::place(FaultKind kind, uint32_t unit) const {
  const std::string place = fault_place(kind, unit);
  return boards_ == 1 || fault_home(kind) == FaultHome::kBoard
             ? place
             : fmt::format("{} of board {}", place, board_of(kind, unit));
}

// The core of a unit, or the first one of its chip.
uint32_t FaultInjector::first_core(FaultKind kind, uint32_t unit) const {
  const auto same = [&](const FaultEntry& entry) {
    return entry.kind == kind && entry.unit == unit;
  };
  return fault_home(kind) == FaultHome::kCore
             ? unit
             : std::ranges::find_if(script_.entries, same)->chip * cores_per_chip_;
}

void FaultInjector::tell(FaultKind kind, uint32_t unit, bool fires, const std::string& text,
                         std::optional<uint32_t> board) {
  const std::string place = this->place(kind, unit);
  spec::FaultTally& tally = tallies_[{kind, unit}];
  tally.kind = fault_kind_name(kind);
  tally.place = place;
  ++(fires ? tally.fired : tally.seen);
  note(fires ? "fault" : "damage", kind, unit, text, board);
  const uint32_t core = board ? static_cast<uint32_t>(std::ranges::find(script_.boards, *board) -
                                                      script_.boards.begin()) *
                                    cores_per_chip_
                              : first_core(kind, unit);
  probes_.tell<UpsetEvent>(core_bit(core), ProbeEvent::kUpset, &ProbeSink::upset, [&] {
    return UpsetEvent{.cycle = now_cycles(),
                      .core = core,
                      .fires = fires,
                      .kind = fault_kind_name(kind),
                      .place = place,
                      .text = text};
  });
}

std::vector<spec::FaultTally> FaultInjector::tallies() const {
  std::vector<spec::FaultTally> all;
  for (const auto& [key, tally] : tallies_) {
    all.push_back(tally);
  }
  std::ranges::sort(
      all, {}, [](const spec::FaultTally& tally) { return std::tie(tally.kind, tally.place); });
  return all;
}

std::string FaultInjector::finish() {
  std::string never;
  for (size_t i = 0; i < states_.size(); ++i) {
    const FaultEntry& entry = script_.entries[i];
    if (states_[i].here && states_[i].fired == 0) {
      never +=
          fmt::format("fault {} (line {}: {} in {}, {}) never came\n", entry.number, entry.line,
                      fault_kind_name(entry.kind), place(entry.kind, entry.unit), entry.when);
    }
  }
  return log_.finish(never);
}

}  // namespace tpu::model
