// A snapshot that is being read: the file and its reader, with errors that name the file.
#pragma once

#include <fmt/format.h>

#include <string>

#include "file/files.hpp"
#include "file/snapshot_file.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {

class SnapshotSource {
 public:
  /// Checks all of it. Throws InvalidArgument, ResourceExhausted.
  explicit SnapshotSource(const std::string& path)
      : path_(path), bytes_(path), reader_(checked(path, bytes_)) {}

  /// Loads by `body(archive)`. Throws InvalidArgument for state that does not fit.
  template <typename Body>
  void load(const Body& body) {
    try {
      bytes_.use([&](auto /*of reader_*/) { body(reader_); });
    } catch (const spec::ArchiveError& error) {
      throw bad(path_, error);
    }
  }

 private:
  static Error bad(const std::string& path, const spec::ArchiveError& error) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, error.what()));
  }
  static spec::SnapshotReader checked(const std::string& path, const FileBytes& bytes) {
    try {
      return bytes.use([](auto all) { return spec::SnapshotReader(all); });
    } catch (const spec::ArchiveError& error) {
      throw bad(path, error);
    }
  }

  const std::string path_;
  const FileBytes bytes_;
  spec::SnapshotReader reader_;
};

}  // namespace tpu::driver
