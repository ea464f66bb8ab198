// Vector clocks and interval maps.
#include "probe/race_sink.hpp"

#include <algorithm>
#include <optional>

#include "board/board_loader.hpp"
#include "kernel/host_profile.hpp"
#include "tpu/spec/isa.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {

namespace {

constexpr uint64_t kWordBytes = 4;  // of SMEM
constexpr size_t kMaxEnded = 64;    // waits of a semaphore that are remembered
constexpr size_t kMaxCounts = 8;    // signals that nobody takes, of those that are told

}  // namespace

RaceSink::RaceSink(const spec::BoardParams& board)
    : cores_(static_cast<uint32_t>(spec::core_count(board))),
      semaphore_count_(static_cast<uint32_t>(board.core.semaphores)),
      semaphores_(size_t{cores_} * semaphore_count_),
      memory_(cores_),
      epoch_(cores_, UINT64_MAX),
      steps_(cores_) {
  for (uint32_t unit = 0; unit < kUnits; ++unit) {
    if (unit == kSequencer || spec::has_queue(board, unit)) {
      place_[unit] = core_units();
      unit_of_.push_back(unit);
    }
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
              ProbeEvent::kStart, ProbeEvent::kSignal, ProbeEvent::kDone, ProbeEvent::kFault});
}

void RaceSink::program(const ProgramEvent& event) {
  if (!event.begin) {  // what is queued is dropped
    for (const uint32_t unit : unit_of_) {
      units_[unit_id(event.core, unit)].issued.clear();
    }
    return;
  }
  steps_[event.core] = {event.launch, event.step};
  const uint64_t epoch = static_cast<uint64_t>(event.launch) << 32 | event.launch_step;
  for (uint32_t member = 0; member < cores_ && epoch_[event.core] != epoch; ++member) {
    if (member != event.core && (event.mask >> member & 1) != 0) {
      begin_step(member, epoch);
    }
  }
  begin_step(event.core, epoch);
  if (event.launch_step == 0) {
    for (const AccessRange& range : event.fresh) {
      fill_gaps(range, false);
    }
  }
}

void RaceSink::begin_step(uint32_t core, uint64_t epoch) {
  if (epoch_[core] == epoch) {
    return;
  }
  forget_step(core);
  if (epoch_[core] >> 32 != epoch >> 32) {  // what an earlier launch left is nothing to build on
    for (Map& map : memory_[core]) {
      map.clear();
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
  for (Map& map : memory_[core]) {
    for (auto& [low, cell] : map) {
      cell.write_clock = 0;
      cell.read_clock = {};
    }
  }
}

void RaceSink::issue(const IssueEvent& event) {
  const uint32_t me = unit_id(event.source.core, kSequencer);
  units_[unit_id(event.source)].issued.push_back(units_[me].clock);
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
    unit.issued.pop_front();
  }
  ++unit.clock[me];
  unit.history[unit.clock[me]] = {source.pc, source.op_id};
}

void RaceSink::take(const TakeEvent& event) {
  begin(event.source);
  Semaphore& s = semaphore_of(event.source.core, event.semaphore);
  const uint32_t me = unit_id(event.source);
  const uint64_t need = s.taken + event.threshold;
  uint64_t from = s.taken;
  if (s.ended.size() == kMaxEnded) {
    s.ended.pop_front();
  }
  Ended& ended = s.ended.emplace_back(Ended{{me, units_[me].clock[me]}, {}});
  for (const Pending& p : s.pending) {
    if (from >= need) {
      break;
    }
    join(units_[me].clock, p.clock);
    ended.by.push_back(p.from);
    from = p.until;
  }
  if (event.takes) {
    s.taken = need;
    while (!s.pending.empty() && s.pending.front().until <= s.taken) {
      s.pending.pop_front();
    }
  }
}

void RaceSink::start(const StartEvent& event) {
  begin(event.source);
  Unit& unit = units_[unit_id(event.source)];
  unit.flights.push_back({event.source.sequence, unit.clock});
}

void RaceSink::signal(const SignalEvent& event) {
  const uint32_t me = unit_id(event.source);
  Unit& unit = units_[me];
  if (event.source.unit == kSequencer) {
    unit.history[unit.clock[me]] = {event.source.pc, event.source.op_id};
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
    flights.pop_front();
  }
}

void RaceSink::add_signal(const Moment& from, const Clock& clock, const SignalEvent& event) {
  Semaphore& s = semaphore_of(event.to_core, event.semaphore);
  find_other_order(from, clock, event);
  s.signalled += event.amount;
  s.pending.push_back({s.signalled, from, clock});
}

// A signal that nothing orders behind a wait could have come before it, in the place of one of
// another unit that has ended it, unless that is ordered before this one.
void RaceSink::find_other_order(const Moment& from, const Clock& clock, const SignalEvent& event) {
  Semaphore& s = semaphore_of(event.to_core, event.semaphore);
  for (auto ended = s.ended.rbegin(); ended != s.ended.rend() && !s.told; ++ended) {
    if (clock[ended->wait.unit] >= ended->wait.clock) {
      return;  // and so is it behind all waits before, which are of the same unit
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

// First cell that begins at or behind `at`; a cell that reaches over `at` is cut there.
RaceSink::Map::iterator RaceSink::split(Map& map, uint64_t at) {
  auto it = map.lower_bound(at);
  if (it != map.begin()) {
    const auto before = std::prev(it);
    if (before->second.end > at) {
      Cell rest = before->second;
      before->second.end = at;
      return map.emplace_hint(it, at, rest);
    }
  }
  return it;
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
    units_[me].history[units_[me].clock[me]] = {event.source.pc, event.source.op_id};
  }
  event.walk([&](const AccessRange& range) { note(me, range); });
}

void RaceSink::note(uint32_t me, const AccessRange& range) {
  if (range.bytes == 0) {
    return;
  }
  const uint64_t low = range.low;
  const uint64_t high = low + range.bytes;
  Map& map = memory_[range.owner][static_cast<size_t>(range.memory)];
  split(map, high);
  auto it = split(map, low);
  const auto first = it;
  uint64_t hole = high;  // the first bytes that nothing has written: [hole, hole_end)
  uint64_t hole_end = high;
  const auto unwritten = [&](uint64_t begin, uint64_t end) {
    if (hole == high) {
      hole = begin;
      hole_end = end;
    } else if (hole_end == begin) {
      hole_end = end;
    }
  };
  uint64_t reached = low;
  for (; it != map.end() && it->first < high; ++it) {
    check_cell(me, range, it->first, it->second);
    if (it->first != reached && !written_before(range.memory)) {
      unwritten(reached, it->first);
    }
    if (!it->second.written) {
      unwritten(it->first, it->second.end);
    }
    reached = it->second.end;
  }
  if (reached < high && !written_before(range.memory)) {
    unwritten(reached, high);
  }
  if (range.write) {  // one cell for all of it
    map.erase(first, it);
    Cell cell;
    cell.end = high;
    cell.written = true;
    cell.write_unit = me;
    cell.write_clock = units_[me].clock[me];
    map[low] = cell;
    if (range.memory == ProbeMemory::kSmem) {
      complete_words(range);
    }
    return;
  }
  if (hole < high) {
    report("reads bytes that nothing has written", me, std::nullopt, range, hole, hole_end);
  }
  if (me / core_units() == range.owner) {  // no command reads another core's memory
    note_reads(me, range);
  }
}

void RaceSink::note_reads(uint32_t me, const AccessRange& range) {
  fill_gaps(range, written_before(range.memory));
  Map& map = memory_[range.owner][static_cast<size_t>(range.memory)];
  const uint64_t high = range.low + range.bytes;
  for (auto cell = map.find(range.low); cell != map.end() && cell->first < high; ++cell) {
    cell->second.read_clock[me % core_units()] = units_[me].clock[me];
  }
}

// The sequencer loads whole words of SMEM, also where a command wrote an element of one or two
// bytes; programs drop the rest of the word. So a word that something is written to has no holes.
void RaceSink::complete_words(const AccessRange& range) {
  AccessRange words = range;
  words.low = range.low / kWordBytes * kWordBytes;
  const uint64_t high = (range.low + range.bytes + kWordBytes - 1) / kWordBytes * kWordBytes;
  words.bytes = high - words.low;
  fill_gaps(words, true);
  Map& map = memory_[range.owner][static_cast<size_t>(range.memory)];
  for (auto cell = map.find(words.low); cell != map.end() && cell->first < high; ++cell) {
    cell->second.written = true;
  }
}

// Bytes of the range without a cell get one.
void RaceSink::fill_gaps(const AccessRange& range, bool written) {
  Map& map = memory_[range.owner][static_cast<size_t>(range.memory)];
  const uint64_t high = range.low + range.bytes;
  split(map, high);
  auto cell = split(map, range.low);
  for (uint64_t at = range.low; at < high; at = cell->second.end, ++cell) {
    if (cell == map.end() || cell->first != at) {
      Cell fresh;
      fresh.end = cell == map.end() ? high : std::min(high, cell->first);
      fresh.written = written;
      cell = map.emplace_hint(cell, at, fresh);
    }
  }
}

void RaceSink::check_cell(uint32_t me, const AccessRange& range, uint64_t low, const Cell& cell) {
  const Clock& mine = units_[me].clock;
  if (cell.write_clock != 0 && cell.write_unit != me && cell.write_clock > mine[cell.write_unit]) {
    report(range.write ? "overwrites, without waiting for it, what was written by"
                       : "reads, without waiting for it, what is written by",
           me, Moment{cell.write_unit, cell.write_clock}, range, low, cell.end);
  }
  for (uint32_t place = 0; range.write && place < core_units(); ++place) {
    const uint32_t reader = range.owner * core_units() + place;
    if (reader != me && cell.read_clock[place] > mine[reader]) {
      report("overwrites, without waiting for it, what is read by", me,
             Moment{reader, cell.read_clock[place]}, range, low, cell.end);
    }
  }
}

spec::CommandPlace RaceSink::place_of(const Moment& moment) const {
  const uint32_t local = unit_of_[moment.unit % core_units()];
  spec::CommandPlace place{.core = moment.unit / core_units()};
  place.unit = local == kSequencer ? "sequencer" : std::string(spec::kQueueNames[local]);
  const auto& history = units_[moment.unit].history;
  const auto command = history.find(moment.clock);
  if (command != history.end()) {
    place.pc = command->second.pc;
    place.op_id = command->second.op_id;
  }
  return place;
}

void RaceSink::report(const char* what, uint32_t me, std::optional<Moment> other,
                      const AccessRange& range, uint64_t low, uint64_t end) {
  if (count_ >= kMaxFindings) {
    ++count_;
    return;
  }
  constexpr std::array<const char*, kProbeMemories> kNames = {"VMEM", "SMEM", "HBM"};
  spec::CheckFinding finding{.who = place_of({me, units_[me].clock[me]}), .what = what};
  if (other) {
    finding.other = place_of(*other);
  }
  finding.where = "bytes " + std::to_string(low) + ".." + std::to_string(end - 1) + " of " +
                  kNames[static_cast<size_t>(range.memory)] + " of core " +
                  std::to_string(range.owner);
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
