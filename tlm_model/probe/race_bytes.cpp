// What the happens-before checker knows of each byte: who wrote it last, and who has read it since.
#include <algorithm>

#include "probe/race_sink.hpp"

namespace tpu::model {
namespace {

constexpr uint64_t kWordBytes = 4;    // of SMEM
constexpr size_t kMinRecords = 4096;  // before those without use are dropped

}  // namespace

void RaceSink::note(uint32_t me, const AccessRange& range) {
  if (range.bytes == 0) {
    return;
  }
  if (range.write) {
    write(me, range);
    if (range.memory == ProbeMemory::kSmem) {
      complete_words(range);
    }
  } else {
    read(me, range);
  }
}

void RaceSink::write(uint32_t me, const AccessRange& range) {
  Memories& memories = memory_[range.owner];
  const ByteStates::State fresh = write_record(me, memories);
  memories.bytes[static_cast<size_t>(range.memory)].update(
      range.low, range.low + range.bytes,
      [&](uint64_t low, uint64_t high, ByteStates::State state) {
        look(me, range, state);
        if (!memories.records[state].clean) {
          check(me, range, low, high, memories.records[state]);
        }
        return fresh;
      });
}

void RaceSink::read(uint32_t me, const AccessRange& range) {
  Memories& memories = memory_[range.owner];
  const bool own = me / core_units() == range.owner;  // no command reads another core's memory
  uint64_t hole = 0;  // the first bytes that nothing has written: [hole, hole_end)
  uint64_t hole_end = 0;
  memories.bytes[static_cast<size_t>(range.memory)].update(
      range.low, range.low + range.bytes,
      [&](uint64_t low, uint64_t high, ByteStates::State state) {
        look(me, range, state);
        const Record& record = memories.records[state];
        if (!record.clean) {
          check(me, range, low, high, record);
        }
        if (!record.written && (hole_end == 0 || hole_end == low)) {
          hole = hole_end == 0 ? low : hole;
          hole_end = high;
        }
        return own ? memories.records[state].read : state;
      });
  if (hole_end != 0) {
    report("reads bytes that nothing has written", me, std::nullopt, range, hole, hole_end);
  }
}

// Decides about a record, once an access.
void RaceSink::look(uint32_t me, const AccessRange& range, ByteStates::State state) {
  Memories& memories = memory_[range.owner];
  const uint64_t access = access_ + (range.write ? 1 : 0);
  if (memories.records[state].looked == access) {
    return;
  }
  memories.records[state].looked = access;
  memories.records[state].clean = ordered(me, range, memories.records[state]);
  if (!range.write) {
    const ByteStates::State read = read_record(me, memories, state);
    memories.records[state].read = read;
  }
}

bool RaceSink::ordered(uint32_t me, const AccessRange& range, const Record& record) const {
  const Clock& mine = units_[me].clock;
  if (record.write_clock > mine[record.write_unit] && record.write_unit != me) {
    return false;
  }
  const uint32_t first = range.owner * core_units();
  for (uint32_t place = 0; range.write && place < core_units(); ++place) {
    if (record.read_clock[place] > mine[first + place] && first + place != me) {
      return false;
    }
  }
  return true;
}

// Of the bytes that the access writes.
ByteStates::State RaceSink::write_record(uint32_t me, Memories& memories) {
  if (memories.wrote != access_ + 1) {
    memories.wrote = access_ + 1;
    memories.write = static_cast<ByteStates::State>(memories.records.size());
    Record record;
    record.written = true;
    record.write_unit = me;
    record.write_clock = units_[me].clock[me];
    record.looked = access_ + 1;  // a byte that it writes twice is no race
    record.clean = true;
    memories.records.push_back(record);
  }
  return memories.write;
}

// Of bytes of that record once the access has read them.
ByteStates::State RaceSink::read_record(uint32_t me, Memories& memories, ByteStates::State state) {
  Record record = memories.records[state];
  uint32_t& clock = record.read_clock[me % core_units()];
  if (clock == units_[me].clock[me]) {
    return state;
  }
  clock = units_[me].clock[me];
  const auto read = static_cast<ByteStates::State>(memories.records.size());
  record.read = read;  // a byte that it reads twice
  memories.records.push_back(record);
  return read;
}

// The sequencer loads whole words of SMEM, also where a command wrote an
// element of one or two bytes; programs drop the rest of the word. So a word
// that something is written to has no holes.
void RaceSink::complete_words(const AccessRange& range) {
  const uint64_t low = range.low / kWordBytes * kWordBytes;
  const uint64_t high = (range.low + range.bytes + kWordBytes - 1) / kWordBytes * kWordBytes;
  if (low == range.low && high == range.low + range.bytes) {
    return;
  }
  Memories& memories = memory_[range.owner];
  memories.bytes[static_cast<size_t>(range.memory)].update(
      low, high, [&](uint64_t, uint64_t, ByteStates::State state) {
        if (memories.records[state].written) {
          return state;
        }
        Record record = memories.records[state];
        record.written = true;
        memories.records.push_back(record);
        return static_cast<ByteStates::State>(memories.records.size() - 1);
      });
}

// Records that no byte has any more, once there are many.
void RaceSink::drop_unused(Memories& memories) {
  if (memories.records.size() < 2 * memories.kept + kMinRecords) {
    return;
  }
  constexpr ByteStates::State kNone = UINT32_MAX;
  std::vector<ByteStates::State> names(memories.records.size(), kNone);
  std::vector<Record> kept = {memories.records[kUnwritten], memories.records[kWritten]};
  names[kUnwritten] = kUnwritten;
  names[kWritten] = kWritten;
  for (ByteStates& bytes : memories.bytes) {
    bytes.rename([&](ByteStates::State state) {
      if (names[state] == kNone) {
        names[state] = static_cast<ByteStates::State>(kept.size());
        kept.push_back(memories.records[state]);
      }
      return names[state];
    });
  }
  memories.records = std::move(kept);
  memories.kept = memories.records.size();
}

void RaceSink::check(uint32_t me, const AccessRange& range, uint64_t low, uint64_t high,
                     const Record& record) {
  const Clock& mine = units_[me].clock;
  if (record.write_unit != me && record.write_clock > mine[record.write_unit]) {
    report(range.write ? "overwrites, without waiting for it, what was written by"
                       : "reads, without waiting for it, what is written by",
           me, Moment{record.write_unit, record.write_clock}, range, low, high);
  }
  for (uint32_t place = 0; range.write && place < core_units(); ++place) {
    const uint32_t reader = range.owner * core_units() + place;
    if (reader != me && record.read_clock[place] > mine[reader]) {
      report("overwrites, without waiting for it, what is read by", me,
             Moment{reader, record.read_clock[place]}, range, low, high);
    }
  }
}

}  // namespace tpu::model
