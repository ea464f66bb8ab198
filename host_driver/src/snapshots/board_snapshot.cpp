// The order of the file, and what it must agree with.
#include "src/snapshots/board_snapshot.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "exe/executable.hpp"
#include "file/crc32c.hpp"
#include "file/files.hpp"
#include "src/handles/access.hpp"
#include "tpu/version.hpp"

namespace tpu::driver {
namespace {

// Every number of the board, as "section.key=value".
std::vector<std::string> numbers_of(const spec::BoardParams& params) {
  spec::BoardParams copy = params;
  std::vector<std::string> numbers;
  for (const spec::BoardKey& key : spec::kBoardKeys) {
    if (key.number != nullptr) {
      numbers.push_back(fmt::format("{}.{}={}", key.section, key.name, key.number(copy)));
    } else if (key.real != nullptr) {
      numbers.push_back(fmt::format("{}.{}={}", key.section, key.name, key.real(copy)));
    }
  }
  return numbers;
}

Error refusal(const std::string& why) {
  return Error(ErrorCode::kFailedPrecondition, fmt::format("no snapshot of the board: {}", why));
}

void need_same(bool same, const std::string& what, const std::string& saved,
               const std::string& now) {
  if (!same) {
    throw spec::ArchiveError(
        fmt::format("the snapshot is of another {}: {}; this one has {}", what, saved, now));
  }
}

}  // namespace

// What the snapshot and the board that is opened from it have in common.
void BoardSnapshot::visit_head(spec::Archive& archive) const {
  archive.section("head");
  const std::vector<std::string> own = numbers_of(parts_.params);
  const uint32_t own_firmware = spec::crc32c(parts_.booter.firmware());
  const std::string own_program(kVersion);
  std::string program = own_program;
  std::string board = parts_.params.board.name;
  std::vector<std::string> numbers = own;
  uint32_t firmware = own_firmware;
  bool no_data = parts_.sim.no_data;
  archive(program, board, numbers, firmware, no_data);
  need_same(program == own_program, "version of this program", program, own_program);
  need_same(numbers.size() == own.size(), "board", board, parts_.params.board.name);
  for (size_t i = 0; i < own.size(); ++i) {
    need_same(numbers[i] == own[i], "board", board + " with " + numbers[i], own[i]);
  }
  need_same(firmware == own_firmware, "firmware", fmt::format("CRC {:08x}", firmware),
            fmt::format("{:08x}", own_firmware));
  need_same(no_data == parts_.sim.no_data, "kind of run",
            no_data ? "without data (SimOptions::no_data)" : "with data",
            parts_.sim.no_data ? "none (SimOptions::no_data)" : "data");
}

void BoardSnapshot::visit_driver(spec::Archive& archive) {
  archive.section("driver");
  uint64_t late = parts_.turn.late_calls();
  archive(parts_.operations, parts_.launcher, parts_.loader, late, parts_.recovery);
  parts_.turn.set_late_calls(late);
  for (Device& device : parts_.devices) {
    device.ring.visit_counts(archive);
    archive(device.told_trap);
    parts_.loader.ids()->visit_used(archive, static_cast<size_t>(device.id));
    device.ring.visit_memory(archive);
  }
  parts_.loader.ids()->visit_retired(archive);
}

// The order of the file.
void BoardSnapshot::visit_all(spec::Archive& archive, SnapshotRecords& records) {
  visit_driver(archive);
  archive.section("items");
  archive(records);
  if (archive.loading()) {
    restore_records(records);
  }
  archive.section("memory");
  for (Device& device : parts_.devices) {
    archive(*device.memory);
  }
  parts_.transport->visit_state(archive);
}

void BoardSnapshot::check_feeds() const {
  if (!parts_.feeds.empty()) {
    throw refusal("a launch takes its batches; wait for its end first");
  }
}

void BoardSnapshot::check_idle() const {
  if (parts_.order.any()) {
    throw refusal("something waits for an event that is not set; set it first");
  }
  parts_.registers.send();
  if (std::any_of(parts_.devices.begin(), parts_.devices.end(),
                  [](const Device& device)
                      TPU_REQUIRES(board_lock) { return device.held || device.ring.open() > 0; })) {
    throw refusal("a core waits to be resumed after a fault; run something on it first");
  }
}

void BoardSnapshot::save(const std::string& path, const SnapshotItems& items) {
  check_idle();
  SnapshotRecords records = SnapshotCollector(parts_.handles, items).take();
  FileWriter file(path, Durability::kSynced);
  spec::SnapshotWriter writer([&](std::span<const std::byte> bytes) { file.add(bytes); });
  try {
    visit_head(writer);
    visit_all(writer, records);
  } catch (const spec::ArchiveError& error) {
    throw refusal(error.what());
  }
  writer.finish();
  file.finish();
}

void BoardSnapshot::check(SnapshotSource& source) const {
  source.load([&](spec::Archive& archive) {
    board_lock.assert_held();  // by the caller of check()
    visit_head(archive);
  });
}

void BoardSnapshot::restore(SnapshotSource& source) {
  source.load([&](spec::SnapshotReader& reader) {
    board_lock.assert_held();  // by the caller of restore()
    visit_all(reader, restored_);
    reader.finish();
  });
}

void BoardSnapshot::restore_records(SnapshotRecords& records) {
  check_records(records, parts_.devices.size());
  for (RangeRecord& range : records.ranges) {
    range.memory = Allocation::make_at(parts_.devices.at(range.device).memory, range.address,
                                       range.bytes, range.label);
    if (!range.memory) {
      throw spec::ArchiveError(
          "a saved range of HBM exceeds the memory, or overlaps another range");
    }
  }
  // The ids of programs that nobody named are given back before others get them.
  for (ProgramRecord& record : records.programs) {
    record.program = restore_program(record, records);
    parts_.loader.add(record.program);
    for (const ProgramRecord::Part& part : record.parts) {
      parts_.loader.ids()->claim(part.device, part.id);
    }
  }
  parts_.loader.ids()->retire_unclaimed();
}

std::shared_ptr<LoadedProgram> BoardSnapshot::restore_program(const ProgramRecord& record,
                                                              const SnapshotRecords& records) {
  std::shared_ptr<exe::ExecutableT> executable;
  try {
    executable = std::make_shared<exe::ExecutableT>(exe::read_executable(record.executable));
    check_program(record, *executable, records);
    parts_.loader.place_of(*executable, record.names[0], record.devices);
    need_same(executable->board_hash == parts_.loader.board_hash(), "board",
              fmt::format("hash {:016x}", executable->board_hash),
              fmt::format("{:016x}", parts_.loader.board_hash()));
  } catch (const exe::ExecutableError& error) {
    throw spec::ArchiveError(error.what());
  } catch (const Error& error) {
    throw spec::ArchiveError(error.message());
  }
  auto program = std::make_shared<LoadedProgram>(executable, record.devices, record.file);
  program->last_use = record.last_use;
  if (record.parts.empty()) {
    return program;
  }
  auto residence = std::make_shared<Residence>();
  residence->ids = parts_.loader.ids();
  for (const ProgramRecord::Part& saved : record.parts) {
    Residence::Part& part = residence->parts.emplace_back();
    part.device = saved.device;
    part.id = saved.id;
    part.has_id = true;
    part.sent = saved.sent;
    *part.loaded = true;
    part.ready = parts_.handles.make_event();
    part.ready->set(nullptr);
    part.code = records.ranges.at(saved.code).memory;
    for (const uint32_t slot : saved.slots) {
      part.slots.push_back(slot == ProgramRecord::kNoRange ? nullptr
                                                           : records.ranges.at(slot).memory);
    }
  }
  program->residence = std::move(residence);
  return program;
}

SnapshotItems BoardSnapshot::take_items() {
  SnapshotItems items;
  const SnapshotRecords records = std::exchange(restored_, {});
  const auto buffer_of = [&](const BufferRecord& record) TPU_REQUIRES(board_lock) {
    const auto ready = parts_.handles.make_event();
    ready->set(nullptr);
    const auto buffer = parts_.handles.make_buffer(record.device, record.dtype, record.shape,
                                                   records.ranges.at(record.memory).memory, ready);
    if (record.by_owners) {
      buffer->owned = std::make_shared<const std::vector<OwnedRun>>(record.owned);
    }
    std::vector<std::shared_ptr<Allocation>> parts;
    for (const uint32_t part : record.parts) {
      parts.push_back(records.ranges.at(part).memory);
    }
    if (!parts.empty()) {
      buffer->share(std::make_shared<const decltype(parts)>(std::move(parts)));
    }
    return Access::buffer(buffer);
  };
  for (const ArrayRecord& record : records.arrays) {
    std::vector<Buffer> parts;
    std::transform(record.parts.begin(), record.parts.end(), std::back_inserter(parts), buffer_of);
    items.arrays.emplace(record.name,
                         Array(record.dtype, record.shape, record.layout, std::move(parts)));
  }
  for (const ProgramRecord& record : records.programs) {
    const auto state = std::make_shared<ExecutableState>(parts_.handles.board(), record.program);
    for (const std::string& name : record.names) {
      items.programs.emplace(name, Access::executable(state));
    }
  }
  for (size_t i = 0; i < records.note_names.size(); ++i) {
    items.notes.emplace(records.note_names[i], records.note_texts.at(i));
  }
  return items;
}

}  // namespace tpu::driver
