// What a snapshot keeps of the driver's objects: ranges of HBM, programs, arrays. Ranges are named
// by their place in one list, so that what shares memory shares it again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exe/executable.hpp"
#include "file/archive.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/board_handles.hpp"
#include "src/operations/buffer_state.hpp"
#include "src/operations/operation.hpp"
#include "tpu/board.hpp"

namespace tpu::driver {

/// A type of elements: the numbers of those that there are have a gap.
void visit_dtype(spec::Archive& archive, DType& dtype);

struct RangeRecord {
  int device = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
  std::string label;
  std::shared_ptr<Allocation> memory;  ///< once it is restored

  void visit_state(spec::Archive& archive) { archive(device, address, bytes, label); }
};

struct BufferRecord {
  int device = 0;
  DType dtype{};
  Shape shape;
  bool by_owners = false;
  std::vector<OwnedRun> owned;
  uint32_t memory = 0;
  std::vector<uint32_t> parts;  ///< memory of all owners

  void visit_state(spec::Archive& archive) {
    archive(device);
    visit_dtype(archive, dtype);
    archive(shape, by_owners, owned, memory, parts);
  }
};

struct ArrayRecord {
  std::string name;
  DType dtype{};
  Shape shape;
  Layout layout;
  std::vector<BufferRecord> parts;

  void visit_state(spec::Archive& archive) {
    archive(name);
    visit_dtype(archive, dtype);
    archive(shape, layout.local, layout.offsets, layout.replicated, layout.terms, parts);
  }
};

struct ProgramRecord {
  static constexpr uint32_t kNoRange = UINT32_MAX;
  struct Part {
    int device = 0;
    uint16_t id = 0;
    bool sent = false;
    uint32_t code = 0;
    std::vector<uint32_t> slots;  ///< kNoRange: neither constant nor scratch

    void visit_state(spec::Archive& archive) { archive(device, id, sent, code, slots); }
  };
  std::vector<std::string> names;
  std::vector<std::byte> executable;
  std::string file;  ///< as of LoadedProgram
  std::vector<int> devices;
  uint64_t last_use = 0;
  std::vector<Part> parts;                 ///< empty: it is not on its cores at present
  std::shared_ptr<LoadedProgram> program;  ///< as saved, or once it is restored

  void visit_state(spec::Archive& archive) {
    archive(names, executable, file, devices, last_use, parts);
  }
};

struct SnapshotRecords {
  std::vector<RangeRecord> ranges;
  std::vector<ProgramRecord> programs;
  std::vector<ArrayRecord> arrays;
  std::vector<std::string> note_names, note_texts;

  void visit_state(spec::Archive& archive) {
    archive(ranges, programs, arrays, note_names, note_texts);
  }
};

/// Of what was loaded, before anything is made of it: every number that names a device, a range or
/// an owner does so, and every range has the bytes of what lies there. Throws ArchiveError.
void check_records(const SnapshotRecords& records, size_t devices);
/// The same of a program's parts: those of its executable.
void check_program(const ProgramRecord& record, const exe::ExecutableT& exe,
                   const SnapshotRecords& records);

/// Makes records of objects.
class SnapshotCollector {
 public:
  /// Throws InvalidArgument for what is empty, not live, or of another board.
  SnapshotCollector(const BoardHandles& handles, const SnapshotItems& items)
      TPU_REQUIRES(board_lock);
  SnapshotRecords take() { return std::move(records_); }

 private:
  uint32_t range(const std::shared_ptr<Allocation>& memory);
  void add(const std::string& name, const Array& array) TPU_REQUIRES(board_lock);
  void add(const std::string& name, const std::shared_ptr<LoadedProgram>& program)
      TPU_REQUIRES(board_lock);
  BufferRecord record(const std::string& name, const Buffer& buffer);

  const BoardHandles& handles_;
  SnapshotRecords records_;
  std::map<const Allocation*, uint32_t> ranges_;
};

}  // namespace tpu::driver
