// The driver's records of a snapshot with damaged numbers, under sanitizers: each is refused as it
// is read or checked, or every number of it can be used as an index. On the simulated board:
// tests/fuzz/board.
#include <gtest/gtest.h>

#include "exe/executable.hpp"
#include "file/snapshot_file.hpp"
#include "src/snapshots/snapshot_records.hpp"
#include "tests/fuzz/amount.hpp"
#include "tests/fuzz/corpus.hpp"
#include "tests/fuzz/snapshot_mutator.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/rings.h"

namespace tpu::driver {
namespace {

constexpr int kMutations = 20000;
constexpr size_t kDevices = 8;

// A program on its cores, with code and slots, an array on all cores and one that is kept by its
// owners.
SnapshotRecords sample(const std::vector<std::byte>& executable) {
  SnapshotRecords records;
  const exe::ExecutableT exe = exe::read_executable(executable);
  const auto range = [&](int device, uint64_t bytes) {
    const uint64_t place = uint64_t{1 + records.ranges.size()} << 24;
    records.ranges.push_back({device, place, std::max<uint64_t>(bytes, 1), "range", {}});
    return static_cast<uint32_t>(records.ranges.size() - 1);
  };
  ProgramRecord& program = records.programs.emplace_back();
  program.names = {"step"};
  program.executable = executable;
  for (uint32_t p = 0; p < exe.partitions; ++p) {
    const auto device = static_cast<int>(exe.cores.empty() ? p : exe.cores[p]);
    program.devices.push_back(device);
    ProgramRecord::Part& part = program.parts.emplace_back();
    part.device = device;
    part.code = range(device, exe.image.size());
    for (const auto& slot : exe.slots) {
      const bool kept =
          slot->kind == exe::SlotKind::constant || slot->kind == exe::SlotKind::scratch;
      part.slots.push_back(kept ? range(device, slot->bytes) : ProgramRecord::kNoRange);
    }
  }
  for (const bool by_owners : {false, true}) {
    ArrayRecord& array = records.arrays.emplace_back();
    array.name = by_owners ? "owned" : "whole";
    array.shape = array.layout.local = {16, 64};
    std::vector<uint32_t> parts;
    for (size_t device = 0; device < kDevices; ++device) {
      parts.push_back(range(static_cast<int>(device), 4096));
      array.layout.offsets.push_back({0, 0});
      BufferRecord& buffer = array.parts.emplace_back();
      buffer.device = static_cast<int>(device);
      buffer.shape = array.shape;
      buffer.memory = parts.back();
      buffer.by_owners = by_owners;
    }
    for (BufferRecord& buffer : array.parts) {
      if (by_owners) {
        buffer.parts = parts;
        for (size_t owner = 0; owner < kDevices; ++owner) {
          buffer.owned.push_back({128, owner});
        }
      }
    }
  }
  records.note_names = {"step"};
  records.note_texts = {"17"};
  return records;
}

std::vector<std::byte> saved(SnapshotRecords& records) {
  std::vector<std::byte> file;
  spec::SnapshotWriter writer([&](std::span<const std::byte> bytes) {
    file.insert(file.end(), bytes.begin(), bytes.end());
  });
  writer.section("items");
  writer(records);
  writer.finish();
  return file;
}

// As restore_records() and take_snapshot_items() use them, without a board.
void use(const SnapshotRecords& records) {
  std::vector<std::array<bool, TPU_MAX_PROGRAMS>> used(kDevices);
  std::vector<uint64_t> held(kDevices);
  for (const RangeRecord& range : records.ranges) {
    held[static_cast<size_t>(range.device)] += range.bytes;
  }
  for (const ProgramRecord& program : records.programs) {
    const exe::ExecutableT exe = exe::read_executable(program.executable);
    check_program(program, exe, records);
    for (const ProgramRecord::Part& part : program.parts) {
      used[static_cast<size_t>(part.device)][part.id] = true;
      ASSERT_GE(records.ranges[part.code].bytes, exe.image.size());
      for (size_t s = 0; s < exe.slots.size(); ++s) {
        if (part.slots[s] != ProgramRecord::kNoRange) {
          ASSERT_GE(records.ranges[part.slots[s]].bytes, exe.slots[s]->bytes);
        }
      }
    }
  }
  for (const ArrayRecord& array : records.arrays) {
    for (const BufferRecord& part : array.parts) {
      held[static_cast<size_t>(part.device)] -= records.ranges[part.memory].bytes;
      for (const OwnedRun& run : part.owned) {
        held[static_cast<size_t>(records.ranges[part.parts[run.owner]].device)] += run.elements;
      }
      static_cast<void>(byte_count(part.dtype, part.shape));
    }
  }
  for (size_t i = 0; i < records.note_names.size(); ++i) {
    ASSERT_NE(records.note_names[i], records.note_texts[i] + "not");
  }
}

TEST(DriverFuzz, DamagedSnapshotRecordsAreRefusedOrUsed) {
  const uint32_t seed = test::fuzz_seed(20240606);
  std::vector<std::vector<std::byte>> files;
  for (const auto& executable : test::fuzz_corpus(TPU_PROGRAMS, ".tpuexe")) {
    SnapshotRecords records = sample(executable);
    check_records(records, kDevices);
    use(records);
    files.push_back(saved(records));
  }
  test::NumberMutator mutator(seed);
  int refused = 0;
  int accepted = 0;
  const int mutations = test::fuzz_inputs(kMutations);
  for (int i = 0; i < mutations; ++i) {
    SCOPED_TRACE("mutation " + std::to_string(i) + " of seed " + std::to_string(seed));
    test::SnapshotParts parts(files[static_cast<size_t>(i) % files.size()]);
    for (size_t n = 1 + mutator.below(3); n > 0; --n) {
      mutator.change(parts.sections[0].bytes);
    }
    const std::vector<std::byte> file = parts.file();
    try {
      spec::SnapshotReader reader(file);
      SnapshotRecords records;
      reader.section("items");
      reader(records);
      reader.finish();
      check_records(records, kDevices);
      use(records);
      ++accepted;
    } catch (const spec::ArchiveError&) {
      ++refused;
    } catch (const exe::ExecutableError&) {
      ++refused;
    }
  }
  std::printf("refused: %d, used: %d\n", refused, accepted);
  EXPECT_GT(refused, mutations / 20);
  EXPECT_GT(accepted, mutations / 50);
}

}  // namespace
}  // namespace tpu::driver
