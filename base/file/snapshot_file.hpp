// File of a snapshot: sections of state, each with its checksum, and an index at the end, so that
// it is written front to back. Bytes are as an x86-64 host has them in memory.
//   head:    magic, format version
//   payload: the sections, one after the other
//   index:   of each section name, offset, bytes, CRC-32C
//   tail:    offset of the index, its CRC-32C, magic
// Specification: docs/snapshots.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "file/archive.hpp"

namespace tpu::spec {

/// Counts what changes the meaning of the bytes: the state of any block, or of the driver.
inline constexpr uint32_t kSnapshotVersion = 8;

struct SnapshotSection {
  std::string name;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint32_t crc = 0;

  void visit_state(Archive& archive) { archive(name, offset, bytes, crc); }
};

class SnapshotWriter final : public Archive {
 public:
  using Output = std::function<void(std::span<const std::byte>)>;

  /// Hands the file's bytes to `output`, front to back; what that throws ends the call.
  explicit SnapshotWriter(Output output);

  void section(const std::string& name) override;
  void bytes(std::span<std::byte> data) override;
  uint64_t left() const override { return 0; }
  /// The last call.
  void finish();
  uint64_t written() const { return written_; }

 private:
  void put(std::span<const std::byte> data);
  void flush();

  const Output output_;
  std::vector<std::byte> small_;  // what is not worth a call of its own
  std::vector<SnapshotSection> sections_;
  uint64_t written_ = 0;
};

class SnapshotReader final : public Archive {
 public:
  /// Checks all of the file, which must stay; throws ArchiveError: no snapshot, of another version,
  /// cut off, damaged in a section that it names.
  explicit SnapshotReader(std::span<const std::byte> file);

  void section(const std::string& name) override;
  void bytes(std::span<std::byte> data) override;
  uint64_t left() const override { return rest_.size(); }
  /// The next bytes where they lie.
  std::span<const std::byte> view(uint64_t count);
  /// The last call: everything has been loaded.
  void finish();

 private:
  void read_index();
  void end_section() const;

  const std::span<const std::byte> file_;
  std::vector<SnapshotSection> sections_;
  size_t next_ = 0;
  std::span<const std::byte> rest_;  // of the section that is being loaded
};

}  // namespace tpu::spec
