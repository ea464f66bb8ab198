// Snapshots: the board and what the driver knows of it, to a file and back (docs/snapshots.md).
#include <fmt/format.h>

#include <algorithm>

#include "exe/executable.hpp"
#include "file/crc32c.hpp"
#include "files/files.hpp"
#include "src/access.hpp"
#include "src/board/board_impl.hpp"
#include "src/board/snapshot_source.hpp"
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

void need_same(bool same, const std::string& what, const std::string& saved,
               const std::string& now) {
  if (!same) {
    throw spec::ArchiveError(
        fmt::format("the snapshot is of another {}: {}; this one has {}", what, saved, now));
  }
}

}  // namespace

// What the snapshot and the board that is opened from it have in common.
void BoardImpl::visit_head(spec::Archive& archive) const {
  archive.section("head");
  const std::vector<std::string> own = numbers_of(params_);
  const uint32_t own_firmware = spec::crc32c(booter_.firmware());
  const std::string own_program(kVersion);
  std::string program = own_program;
  std::string board = params_.board.name;
  std::vector<std::string> numbers = own;
  uint32_t firmware = own_firmware;
  bool no_data = sim_.no_data;
  archive(program, board, numbers, firmware, no_data);
  need_same(program == own_program, "version of this program", program, own_program);
  need_same(numbers.size() == own.size(), "board", board, params_.board.name);
  for (size_t i = 0; i < own.size(); ++i) {
    need_same(numbers[i] == own[i], "board", board + " with " + numbers[i], own[i]);
  }
  need_same(firmware == own_firmware, "firmware", fmt::format("CRC {:08x}", firmware),
            fmt::format("{:08x}", own_firmware));
  need_same(no_data == sim_.no_data, "kind of run",
            no_data ? "without data (SimOptions::no_data)" : "with data",
            sim_.no_data ? "none (SimOptions::no_data)" : "data");
}

void BoardImpl::visit_driver(spec::Archive& archive) {
  archive.section("driver");
  uint64_t late = turn_.late_calls();
  archive(operations_, launcher_, loader_, late, recovery_);
  turn_.set_late_calls(late);
  for (Device& device : devices_) {
    device.ring.visit_counts(archive);
    archive(device.told_trap);
    loader_.ids()->visit_used(archive, static_cast<size_t>(device.id));
    device.ring.visit_memory(archive);
  }
  loader_.ids()->visit_retired(archive);
}

// The order of the file.
void BoardImpl::visit_snapshot(spec::Archive& archive, SnapshotRecords& records) {
  visit_driver(archive);
  archive.section("items");
  archive(records);
  if (archive.loading()) {
    restore_records(records);
  }
  archive.section("memory");
  for (Device& device : devices_) {
    archive(*device.memory);
  }
  transport_->visit_state(archive);
}

// Everything that was submitted is over.
void BoardImpl::settle_all() {
  const auto refuse = [](const char* why) {
    throw Error(ErrorCode::kFailedPrecondition, fmt::format("no snapshot of the board: {}", why));
  };
  if (!feeds_.empty()) {
    refuse("a launch takes its batches; wait for its end first");
  }
  run_until_idle();
  health_.check_unbroken();
  if (order_.any()) {
    refuse("something waits for an event that is not set; set it first");
  }
  registers_.send();
  if (std::any_of(devices_.begin(), devices_.end(),
                  [](const Device& device) { return device.held || !device.ring.empty(); })) {
    refuse("a core waits to be resumed after a fault; run something on it first");
  }
}

void BoardImpl::save_snapshot(const std::string& path, const SnapshotItems& items) {
  const Door::Entry entry(door_);
  health_.check_usable();
  settle_all();
  SnapshotRecords records = SnapshotCollector(*this, items).take();
  FileWriter file(path, Durability::kSynced);
  spec::SnapshotWriter writer([&](std::span<const std::byte> bytes) { file.add(bytes); });
  try {
    visit_head(writer);
    visit_snapshot(writer, records);
  } catch (const spec::ArchiveError& error) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("no snapshot of the board: {}", error.what()));
  }
  writer.finish();
  file.finish();
}

void BoardImpl::restore(SnapshotSource& source) {
  source.load([&](spec::SnapshotReader& reader) {
    visit_snapshot(reader, restored_);
    reader.finish();
  });
}

void BoardImpl::restore_records(SnapshotRecords& records) {
  check_records(records, devices_.size());
  for (RangeRecord& range : records.ranges) {
    range.memory = Allocation::make_at(devices_.at(range.device).memory, range.address, range.bytes,
                                       range.label);
    if (!range.memory) {
      throw spec::ArchiveError("a range of HBM lies outside, or where another one does");
    }
  }
  // The ids of programs that nobody named are given back before others get them.
  for (ProgramRecord& record : records.programs) {
    record.program = restore_program(record, records);
    loader_.add(record.program);
    for (const ProgramRecord::Part& part : record.parts) {
      loader_.ids()->claim(part.device, part.id);
    }
  }
  loader_.ids()->retire_unclaimed();
}

std::shared_ptr<LoadedProgram> BoardImpl::restore_program(const ProgramRecord& record,
                                                          const SnapshotRecords& records) {
  std::shared_ptr<exe::ExecutableT> executable;
  try {
    executable = std::make_shared<exe::ExecutableT>(exe::read_executable(record.executable));
    check_program(record, *executable, records);
    loader_.place_of(*executable, record.names[0], record.devices);
    need_same(executable->board_hash == hash_, "board",
              fmt::format("hash {:016x}", executable->board_hash), fmt::format("{:016x}", hash_));
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
  residence->ids = loader_.ids();
  for (const ProgramRecord::Part& saved : record.parts) {
    Residence::Part& part = residence->parts.emplace_back();
    part.device = saved.device;
    part.id = saved.id;
    part.has_id = true;
    part.sent = saved.sent;
    *part.loaded = true;
    part.ready = handles_.make_event();
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

SnapshotItems BoardImpl::take_snapshot_items() {
  const Door::Entry entry(door_);
  health_.check_usable();
  SnapshotItems items;
  const SnapshotRecords records = std::exchange(restored_, {});
  const auto buffer_of = [&](const BufferRecord& record) {
    const auto ready = handles_.make_event();
    ready->set(nullptr);
    const auto buffer = handles_.make_buffer(record.device, record.dtype, record.shape,
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
    const auto state = std::make_shared<ExecutableState>(shared_from_this(), record.program);
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
