// Vector clocks and interval maps.
#include "kernel/race_checker.hpp"

#include <algorithm>

#include "tpu/spec/isa.hpp"

namespace tpu::model {

RaceChecker::RaceChecker(uint32_t cores, uint32_t semaphores)
    : cores_(cores),
      semaphore_count_(semaphores),
      clock_(cores * kUnits, Clock(cores * kUnits, 0)),
      issued_(cores * kUnits),
      flight_clock_(cores * kUnits),
      history_(cores * kUnits),
      semaphores_(static_cast<size_t>(cores) * semaphores),
      memory_(cores),
      epoch_(cores, UINT64_MAX) {
  for (uint32_t unit = 0; unit < clock_.size(); ++unit) {
    clock_[unit][unit] = 1;
  }
}

void RaceChecker::program_start(uint32_t core, uint32_t mask, uint32_t launch, uint32_t step) {
  const uint64_t epoch = static_cast<uint64_t>(launch) << 32 | step;
  if (epoch_[core] == epoch) {
    return;
  }
  for (uint32_t member = 0; member < cores_; ++member) {
    if (member != core && (mask >> member & 1) == 0) {
      continue;
    }
    epoch_[member] = epoch;
    for (uint32_t unit = 0; unit < kUnits; ++unit) {
      issued_[unit_id(member, unit)].clear();
      history_[unit_id(member, unit)].clear();
    }
    for (uint32_t i = 0; i < semaphore_count_; ++i) {
      semaphore(member, i) = {};
    }
    for (Map& map : memory_[member]) {
      for (auto& [low, cell] : map) {
        cell.write_clock = 0;
        cell.read_clock = {};
      }
    }
  }
}

void RaceChecker::issue(uint32_t core, uint32_t queue) {
  const uint32_t me = unit_id(core, kSequencer);
  issued_[unit_id(core, queue)].push_back(clock_[me]);
  ++clock_[me][me];
}

void RaceChecker::drop(uint32_t core, uint32_t queue) { issued_[unit_id(core, queue)].clear(); }

void RaceChecker::begin(uint32_t core, uint32_t queue, uint32_t pc, uint32_t op_id) {
  const uint32_t me = unit_id(core, queue);
  if (!issued_[me].empty()) {
    join(clock_[me], issued_[me].front());
    issued_[me].pop_front();
  }
  ++clock_[me][me];
  history_[me][clock_[me][me]] = {pc, op_id};
}

void RaceChecker::take(uint32_t core, uint32_t unit, uint32_t index, uint32_t threshold,
                       bool takes) {
  Semaphore& s = semaphore(core, index);
  const uint64_t need = s.taken + threshold;
  uint64_t from = s.taken;
  for (const Pending& p : s.pending) {
    if (from >= need) {
      break;
    }
    join(clock_[unit_id(core, unit)], p.clock);
    from = p.until;
  }
  if (takes) {
    s.taken = need;
    while (!s.pending.empty() && s.pending.front().until <= s.taken) {
      s.pending.pop_front();
    }
  }
}

void RaceChecker::launched(uint32_t core, uint32_t queue, size_t flight) {
  auto& clocks = flight_clock_[unit_id(core, queue)];
  if (clocks.size() <= flight) {
    clocks.resize(flight + 1);
  }
  clocks[flight] = clock_[unit_id(core, queue)];
}

void RaceChecker::signal(uint32_t core, uint32_t queue, size_t flight, uint32_t to_core,
                         uint32_t index, uint32_t amount) {
  add_signal(flight_clock_[unit_id(core, queue)][flight], to_core, index, amount);
}

void RaceChecker::scalar_signal(uint32_t core, uint32_t index, uint32_t amount) {
  const uint32_t me = unit_id(core, kSequencer);
  add_signal(clock_[me], core, index, amount);
  ++clock_[me][me];
}

void RaceChecker::add_signal(const Clock& clock, uint32_t to_core, uint32_t index,
                             uint32_t amount) {
  Semaphore& s = semaphore(to_core, index);
  s.signalled += amount;
  s.pending.push_back({s.signalled, clock});
}

void RaceChecker::join(Clock& into, const Clock& from) {
  for (size_t i = 0; i < into.size(); ++i) {
    into[i] = std::max(into[i], from[i]);
  }
}

// First cell that begins at or behind `at`; a cell that reaches over `at` is cut there.
RaceChecker::Map::iterator RaceChecker::split(Map& map, uint64_t at) {
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

void RaceChecker::access(uint32_t core, uint32_t unit, uint32_t owner, Memory memory, uint64_t low,
                         uint64_t bytes, bool write) {
  if (bytes == 0) {
    return;
  }
  const uint32_t me = unit_id(core, unit);
  const uint64_t high = low + bytes;
  Map& map = memory_[owner][static_cast<size_t>(memory)];
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
    check_cell(me, owner, memory, it->first, it->second, write);
    if (it->first != reached) {
      unwritten(reached, it->first);
    }
    if (!it->second.written) {
      unwritten(it->first, it->second.end);
    }
    reached = it->second.end;
  }
  if (reached < high) {
    unwritten(reached, high);
  }
  if (write) {  // one cell for all of it
    map.erase(first, it);
    Cell cell;
    cell.end = high;
    cell.written = true;
    cell.write_unit = me;
    cell.write_clock = clock_[me][me];
    map[low] = cell;
    return;
  }
  if (hole < high && memory == Memory::kVmem) {
    report("reads bytes that nothing has written", me, me, 0, owner, memory, hole, hole_end);
  }
  if (core != owner) {
    return;  // no command reads another core's memory
  }
  for (uint64_t at = low; at < high;) {
    auto cell = map.lower_bound(at);
    if (cell == map.end() || cell->first != at) {  // a gap: gets a cell of its own
      Cell fresh;
      fresh.end = cell == map.end() ? high : std::min(high, cell->first);
      cell = map.emplace_hint(cell, at, fresh);
    }
    cell->second.read_clock[unit] = clock_[me][me];
    at = cell->second.end;
  }
}

void RaceChecker::check_cell(uint32_t me, uint32_t owner, Memory memory, uint64_t low,
                             const Cell& cell, bool write) {
  const Clock& mine = clock_[me];
  if (cell.write_clock != 0 && cell.write_unit != me && cell.write_clock > mine[cell.write_unit]) {
    report(write ? "overwrites, without waiting for it, what was written by"
                 : "reads, without waiting for it, what is written by",
           me, cell.write_unit, cell.write_clock, owner, memory, low, cell.end);
  }
  for (uint32_t unit = 0; write && unit < kUnits; ++unit) {
    const uint32_t reader = unit_id(owner, unit);
    if (reader != me && cell.read_clock[unit] > mine[reader]) {
      report("overwrites, without waiting for it, what is read by", me, reader,
             cell.read_clock[unit], owner, memory, low, cell.end);
    }
  }
}

std::string RaceChecker::name_of(uint32_t unit, uint32_t clock) const {
  const uint32_t local = unit % kUnits;
  std::string text = "core " + std::to_string(unit / kUnits) + " " +
                     (local == kSequencer ? "sequencer" : std::string(spec::kQueueNames[local]));
  const auto command = history_[unit].find(clock);
  if (command != history_[unit].end()) {
    text += " (word " + std::to_string(command->second.pc) + ", op " +
            std::to_string(command->second.op_id) + ")";
  }
  return text;
}

void RaceChecker::report(const char* what, uint32_t me, uint32_t other, uint32_t other_clock,
                         uint32_t owner, Memory memory, uint64_t low, uint64_t end) {
  if (++count_ > kMaxFindings) {
    return;
  }
  constexpr std::array<const char*, kMemories> kNames = {"VMEM", "SMEM", "HBM"};
  std::string text = name_of(me, clock_[me][me]) + " " + what;
  if (other != me) {
    text += " " + name_of(other, other_clock);
  }
  text += ": bytes " + std::to_string(low) + ".." + std::to_string(end - 1) + " of " +
          kNames[static_cast<size_t>(memory)] + " of core " + std::to_string(owner);
  findings_.push_back(std::move(text));
}

}  // namespace tpu::model
