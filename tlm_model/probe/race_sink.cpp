// Vector clocks, and findings. What is known of bytes: race_bytes.cpp.
#include "probe/race_sink.hpp"

#include <algorithm>
#include <optional>

#include "board/board_loader.hpp"
#include "kernel/host_profile.hpp"
#include "tpu/spec/isa.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {

namespace {

constexpr size_t kMaxEnded = 64;  // waits of a semaphore that are remembered
constexpr size_t kMaxCounts = 8;  // signals that nobody takes, of those that are told

}  // namespace

RaceSink::RaceSink(const spec::BoardParams& board, const LaunchPrograms* programs)
    : cores_(static_cast<uint32_t>(spec::core_count(board))),
      semaphore_count_(static_cast<uint32_t>(board.core.semaphores)),
      programs_(programs),
      semaphores_(size_t{cores_} * semaphore_count_),
      memory_(cores_),
      epoch_(cores_, UINT64_MAX),
      steps_(cores_),
      calls_(cores_) {
  for (uint32_t unit = 0; unit < kAllUnits; ++unit) {
    if (unit >= kSequencer || spec::has_queue(board, unit)) {
      place_[unit] = core_units();
      unit_of_.push_back(unit);
    }
  }
  for (Memories& memories : memory_) {
    memories.records.resize(2);
    memories.records[kWritten].written = true;
  }
  units_.resize(size_t{cores_} * core_units());
  for (uint32_t unit = 0; unit < units_.size(); ++unit) {
    units_[unit].clock.assign(units_.size(), 0);
    units_[unit].clock[unit] = 1;
  }
}

void RaceSink::listen(ProbeSet& probes) {
  probes.add(*this,
             {ProbeEvent::kProgram, ProbeEvent::kIssue, ProbeEvent::kTake, ProbeEvent::kAccess,
              ProbeEvent::kStart, ProbeEvent::kSignal, ProbeEvent::kDone, ProbeEvent::kFault,
              ProbeEvent::kWait, ProbeEvent::kTransfer});
}

void RaceSink::program(const ProgramEvent& event) {
  if (!event.begin) {  // what is queued is dropped
    for (const uint32_t unit : unit_of_) {
      units_[unit_id(event.core, unit)].issued.clear();
    }
    steps_[event.core].runs = false;
    return;
  }
  steps_[event.core] = {event.launch, event.step, true};
  calls_[event.core].begin(programs_ != nullptr ? programs_->of(event.launch) : nullptr);
  const uint64_t epoch = static_cast<uint64_t>(event.launch) << 32 | event.launch_step;
  if (epoch_[event.core] != epoch) {
    event.gang.for_each([&](uint32_t member) {
      if (member != event.core) {
        begin_step(member, epoch);
      }
    });
  }
  begin_step(event.core, epoch);
  if (event.launch_step == 0) {
    for (const AccessRange& range : event.fresh) {
      memory_[range.owner].bytes[static_cast<size_t>(range.memory)].update(
          range.low, range.low + range.bytes, [](uint64_t, uint64_t, ByteStates::State state) {
            return state == kWritten ? kUnwritten : state;  // a peer may have been here
          });
    }
  }
}

void RaceSink::begin_step(uint32_t core, uint64_t epoch) {
  if (epoch_[core] == epoch) {
    return;
  }
  forget_step(core);
  if (epoch_[core] >> 32 != epoch >> 32) {  // what an earlier launch left is nothing to build on
    for (ByteStates& bytes : memory_[core].bytes) {
      bytes.clear();
    }
  }
  epoch_[core] = epoch;
}

void RaceSink::forget_step(uint32_t core) {
  for (const uint32_t unit : unit_of_) {
    units_[unit_id(core, unit)].issued.clear();
    units_[unit_id(core, unit)].history.clear();
  }
  for (uint32_t i = 0; i < semaphore_count_; ++i) {
    semaphore_of(core, i) = {};
  }
  calls_[core].forget();
  Memories& memories = memory_[core];
  for (ByteStates& bytes : memories.bytes) {
    bytes.rename([&](ByteStates::State state) {
      return memories.records[state].written ? kWritten : kUnwritten;
    });
  }
  memories.records.resize(2);
  memories.kept = 0;
}

void RaceSink::issue(const IssueEvent& event) {
  const uint32_t me = unit_id(event.source.core, kSequencer);
  units_[unit_id(event.source)].issued.push_back(copy(units_[me].clock));
  ++units_[me].clock[me];
}

// The first event of a command that has left its queue.
void RaceSink::begin(const ProbeSource& source) {
  const uint32_t me = unit_id(source);
  Unit& unit = units_[me];
  if (source.unit == kSequencer || unit.begun == source.sequence) {
    return;
  }
  unit.begun = source.sequence;
  if (!unit.issued.empty()) {
    join(unit.clock, unit.issued.front());
    give_back(unit.issued.front());
    unit.issued.pop_front();
  }
  ++unit.clock[me];
  unit.history.emplace_back(unit.clock[me], Command{source.pc, source.op_id});
}

void RaceSink::take(const TakeEvent& event) {
  begin(event.source);
  Semaphore& s = semaphore_of(event.source.core, event.semaphore);
  const uint32_t me = unit_id(event.source);
  const uint64_t need = s.taken + event.threshold;
  uint64_t from = s.taken;
  Ended ended;
  if (s.ended.size() == kMaxEnded) {
    ended = std::move(s.ended.front());  // for its room
    ended.by.clear();
    s.ended.pop_front();
  }
  ended.wait = {me, units_[me].clock[me]};
  for (const Pending& p : s.pending) {
    if (from >= need) {
      break;
    }
    join(units_[me].clock, p.clock);
    ended.by.push_back(p.from);
    from = p.until;
  }
  s.ended.push_back(std::move(ended));
  if (event.takes) {
    s.taken = need;
    while (!s.pending.empty() && s.pending.front().until <= s.taken) {
      give_back(s.pending.front().clock);
      s.pending.pop_front();
    }
  }
}

void RaceSink::start(const StartEvent& event) {
  begin(event.source);
  Unit& unit = units_[unit_id(event.source)];
  unit.flights.push_back({event.source.sequence, copy(unit.clock)});
}

void RaceSink::signal(const SignalEvent& event) {
  const uint32_t me = unit_id(event.source);
  Unit& unit = units_[me];
  if (event.source.unit == kSequencer) {
    unit.history.emplace_back(unit.clock[me], Command{event.source.pc, event.source.op_id});
    add_signal({me, unit.clock[me]}, unit.clock, event);
    ++unit.clock[me];
    return;
  }
  const auto flight = std::ranges::find(unit.flights, event.source.sequence, &Flight::sequence);
  if (flight != unit.flights.end()) {
    add_signal({me, flight->clock[me]}, flight->clock, event);
  }
}

// Commands of a queue are done in order.
void RaceSink::done(const DoneEvent& event) {
  std::deque<Flight>& flights = units_[unit_id(event.source)].flights;
  if (!flights.empty()) {
    give_back(flights.front().clock);
    flights.pop_front();
  }
}

// Of the host: its transfers know what the sequencer knows at their call, and what the sequencer
// does next is behind those that the answer waited for.
void RaceSink::wait(const WaitEvent& event) {
  if (event.what != WaitEvent::For::kHost) {
    return;
  }
  const uint32_t core = event.source.core, me = unit_id(core, kSequencer);
  Clock& clock = units_[me].clock;
  if (event.begin) {
    if (calls_[core].call(event.index,
                          {.pc = event.source.pc, .op_id = event.source.op_id, .clock = clock})) {
      ++clock[me];
    }
  } else if (const Clock* over =
                 calls_[core].answer(event.index, units_[unit_id(core, kHost)].clock)) {
    join(clock, *over);
  }
}

void RaceSink::transfer(const TransferEvent& event) {
  if (!event.begin || !steps_[event.core].runs) {
    return;
  }
  const HostTimer timer(HostWork::kChecker);
  const uint32_t me = unit_id(event.core, kHost), sequencer = unit_id(event.core, kSequencer);
  Unit& host = units_[me];
  const HostCallOrder::Call call = calls_[event.core].take({.clock = units_[sequencer].clock});
  ++units_[sequencer].clock[sequencer];
  join(host.clock, call.clock);
  ++host.clock[me];
  host.history.emplace_back(host.clock[me], Command{call.pc, call.op_id});
  access_ += 2;
  drop_unused(memory_[event.core]);
  note(me, event.range);
  calls_[event.core].moves(call, host.clock);
}

void RaceSink::add_signal(const Moment& from, const Clock& clock, const SignalEvent& event) {
  Semaphore& s = semaphore_of(event.to_core, event.semaphore);
  find_other_order(from, clock, event);
  s.signalled += event.amount;
  s.pending.push_back({s.signalled, from, copy(clock)});
}

// A signal that nothing orders behind a wait could have come before it, in the
// place of one of another unit that has ended it, unless that is ordered before
// this one.
void RaceSink::find_other_order(const Moment& from, const Clock& clock, const SignalEvent& event) {
  Semaphore& s = semaphore_of(event.to_core, event.semaphore);
  for (auto ended = s.ended.rbegin(); ended != s.ended.rend() && !s.told; ++ended) {
    if (clock[ended->wait.unit] >= ended->wait.clock) {
      return;  // and so is it behind all waits before, which are of the same
               // unit
    }
    for (const Moment& by : ended->by) {
      if (by.unit != from.unit && by.clock > clock[by.unit]) {
        s.told = true;
        spec::CheckFinding finding{.who = place_of(from)};
        finding.what = "signals semaphore " + std::to_string(event.semaphore) + " of core " +
                       std::to_string(event.to_core) +
                       ", and nothing keeps that from ending the wait that was ended by";
        finding.other = place_of(by);
        add(std::move(finding));
        break;
      }
    }
  }
}

// Counts that nobody takes.
void RaceSink::fault(const FaultEvent& event) {
  if (event.code != TPU_FAULT_SEM_NONZERO_AT_END && event.code != TPU_FAULT_SEM_OVERFLOW) {
    return;
  }
  const Semaphore& s = semaphore_of(event.source.core, event.semaphore);
  const bool at_end = event.code == TPU_FAULT_SEM_NONZERO_AT_END;
  for (size_t i = 0; i < std::min(s.pending.size(), kMaxCounts); ++i) {
    spec::CheckFinding finding{.who = place_of(s.pending[i].from)};
    finding.what = at_end ? "signals what nobody takes" : "signals what nobody has taken";
    finding.where = "semaphore " + std::to_string(event.semaphore) + " of core " +
                    std::to_string(event.source.core) + ", which is " + std::to_string(event.value);
    add(std::move(finding));
  }
}

void RaceSink::join(Clock& into, const Clock& from) {
  for (size_t i = 0; i < into.size(); ++i) {
    into[i] = std::max(into[i], from[i]);
  }
}

RaceSink::Clock RaceSink::copy(const Clock& clock) {
  if (spare_.empty()) {
    return clock;
  }
  Clock made = std::move(spare_.back());
  spare_.pop_back();
  made.assign(clock.begin(), clock.end());
  return made;
}

void RaceSink::access(const AccessEvent& event) {
  // A scalar access is over before a clock could be read twice.
  std::optional<HostTimer> timer;
  if (event.source.unit != kSequencer) {
    timer.emplace(HostWork::kChecker);
  }
  begin(event.source);
  const uint32_t me = unit_id(event.source);
  if (event.source.unit == kSequencer) {
    units_[me].history.emplace_back(units_[me].clock[me],
                                    Command{event.source.pc, event.source.op_id});
  }
  access_ += 2;  // the even one for reads, the odd one for writes
  for (const AccessRange& range : event.extents) {
    drop_unused(memory_[range.owner]);
  }
  event.walk([&](const AccessRange& range) { note(me, range); });
}

spec::CommandPlace RaceSink::place_of(const Moment& moment) const {
  const uint32_t local = unit_of_[moment.unit % core_units()];
  spec::CommandPlace place{.core = moment.unit / core_units()};
  place.unit = local == kHost        ? "host"
               : local == kSequencer ? "sequencer"
                                     : std::string(spec::kQueueNames[local]);
  const auto& history = units_[moment.unit].history;
  const auto behind =
      std::ranges::upper_bound(history, moment.clock, {}, &std::pair<uint32_t, Command>::first);
  if (behind != history.begin() && (behind - 1)->first == moment.clock) {
    place.pc = (behind - 1)->second.pc;
    place.op_id = (behind - 1)->second.op_id;
  }
  return place;
}

std::string RaceSink::where_of(const Told& told) {
  constexpr std::array<const char*, kProbeMemories> kNames = {"VMEM", "SMEM", "HBM"};
  return "bytes " + std::to_string(told.low) + ".." + std::to_string(told.end - 1) + " of " +
         kNames[static_cast<size_t>(told.memory)] + " of core " + std::to_string(told.owner);
}

// Bytes that follow those of the finding before, of the same commands, belong to it.
void RaceSink::report(const char* what, uint32_t me, std::optional<Moment> other,
                      const AccessRange& range, uint64_t low, uint64_t end) {
  const Told told{what, other.value_or(Moment{me, 0}), range.owner, range.memory, access_, low,
                  end};
  if (told.goes_on(told_)) {
    told_.end = end;
    if (count_ <= kMaxFindings) {
      findings_.back().where = where_of(told_);
    }
    return;
  }
  told_ = told;
  if (count_ >= kMaxFindings) {
    ++count_;
    return;
  }
  spec::CheckFinding finding{.who = place_of({me, units_[me].clock[me]}), .what = what};
  if (other) {
    finding.other = place_of(*other);
  }
  finding.where = where_of(told_);
  add(std::move(finding));
}

void RaceSink::add(spec::CheckFinding finding) {
  finding.step = steps_[finding.who.core].step;
  finding.launch = steps_[finding.who.core].launch;
  if (++count_ <= kMaxFindings) {
    findings_.push_back(std::move(finding));
  }
}

std::vector<spec::CheckFinding> RaceSink::take_findings() {
  std::vector<spec::CheckFinding> fresh(findings_.begin() + static_cast<ptrdiff_t>(taken_),
                                        findings_.end());
  taken_ = findings_.size();
  return fresh;
}

}  // namespace tpu::model
