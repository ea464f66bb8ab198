// The checksums of a snapshot say that it is as it was written, not by whom: its numbers are looked
// at one by one.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "check/checked.hpp"
#include "exe/executable.hpp"
#include "src/memory/range_allocator.hpp"
#include "src/snapshots/snapshot_records.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/rings.h"

namespace tpu::driver {
namespace {

void need(bool good, const std::string& what) {
  if (!good) {
    throw spec::ArchiveError(what);
  }
}

bool is_device(int device, size_t devices) { return device >= 0 && std::cmp_less(device, devices); }

void check_range(const RangeRecord& range, size_t devices) {
  const uint64_t alignment =
      range.bytes >= RangeAllocator::kPage ? RangeAllocator::kPage : RangeAllocator::kAlign;
  need(is_device(range.device, devices) && range.address % alignment == 0,
       "a range of HBM has no place: " + range.label);
}

// A range of `records` on this device with room for so many bytes.
void need_range(const SnapshotRecords& records, uint32_t index, int device, uint64_t bytes,
                const std::string& of) {
  need(index < records.ranges.size() && records.ranges[index].device == device &&
           records.ranges[index].bytes >= bytes,
       of + " is outside of the ranges of HBM that hold it");
}

// Who holds what of a state that is kept by its owners.
void check_owners(const BufferRecord& buffer, const SnapshotRecords& records, uint64_t bytes,
                  const std::string& of) {
  std::vector<uint64_t> held(buffer.parts.size());
  std::optional<uint64_t> left = bytes;
  for (const OwnedRun& run : buffer.owned) {
    const auto run_bytes = checked_product(run.elements, dtype_bytes(buffer.dtype));
    need(run.owner < held.size() && run_bytes && *run_bytes <= *left,
         of + " is owned by cores that do not hold it");
    *left -= *run_bytes;
    held[run.owner] += *run_bytes;
  }
  for (size_t i = 0; i < held.size(); ++i) {
    need(
        buffer.parts[i] < records.ranges.size() && records.ranges[buffer.parts[i]].bytes >= held[i],
        of + " is outside of the ranges of HBM that hold it");
  }
}

void check_buffer(const BufferRecord& buffer, const SnapshotRecords& records, size_t devices,
                  const std::string& of) {
  need(is_device(buffer.device, devices), of + " is on a core that is not there");
  uint64_t bytes = 0;
  try {
    bytes = byte_count(buffer.dtype, buffer.shape);
  } catch (const Error& error) {
    throw spec::ArchiveError(of + ": " + error.message());
  }
  need_range(records, buffer.memory, buffer.device, buffer.by_owners ? 0 : bytes, of);
  need(buffer.by_owners != buffer.parts.empty(), of + " has other owners than it names");
  check_owners(buffer, records, buffer.by_owners ? bytes : 0, of);
}

bool is_kept(exe::SlotKind kind) {
  return kind == exe::SlotKind::constant || kind == exe::SlotKind::scratch;
}

}  // namespace

void visit_dtype(spec::Archive& archive, DType& dtype) {
  auto number = static_cast<uint8_t>(dtype);
  archive(number);
  dtype = static_cast<DType>(number);
  try {
    dtype_bytes(dtype);
  } catch (const Error& error) {
    throw spec::ArchiveError(error.message());
  }
}

void check_records(const SnapshotRecords& records, size_t devices) {
  for (const RangeRecord& range : records.ranges) {
    check_range(range, devices);
  }
  for (const ArrayRecord& array : records.arrays) {
    for (const BufferRecord& part : array.parts) {
      check_buffer(part, records, devices, "array " + array.name);
    }
  }
  for (const ProgramRecord& program : records.programs) {
    need(!program.names.empty(), "a program has no name");
    for (const int device : program.devices) {
      need(is_device(device, devices),
           "program " + program.names[0] + " is on a core that is not there");
    }
  }
  need(records.note_names.size() == records.note_texts.size(), "a note has no text");
}

void check_program(const ProgramRecord& record, const exe::ExecutableT& exe,
                   const SnapshotRecords& records) {
  const std::string of = "program " + record.names[0];
  need(record.devices.size() == exe.partitions, of + " has other cores than its executable");
  need(record.parts.empty() || record.parts.size() == record.devices.size(),
       of + " is on some of its cores only");
  for (size_t p = 0; p < record.parts.size(); ++p) {
    const ProgramRecord::Part& part = record.parts[p];
    need(part.device == record.devices[p] && part.id < TPU_MAX_PROGRAMS,
         of + " is on other cores than it names");
    need_range(records, part.code, part.device, exe.image.size(), "the code of " + of);
    need(part.slots.size() == exe.slots.size(), of + " has other slots than its executable");
    for (size_t s = 0; s < part.slots.size(); ++s) {
      const exe::SlotT& slot = *exe.slots[s];
      if (is_kept(slot.kind)) {
        need_range(records, part.slots[s], part.device, slot.bytes, "a slot of " + of);
      } else {
        need(part.slots[s] == ProgramRecord::kNoRange, "a slot of " + of + " is bound");
      }
    }
  }
}

}  // namespace tpu::driver
