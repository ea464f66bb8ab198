// Files and folders of the command, with errors that say which path, why, and what to do. Output
// never stands half written under its name: it is made beside it and renamed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tpu::driver {

/// Whole file; throws InvalidArgument when it cannot be read or is a folder, ResourceExhausted when
/// the host has no memory for it.
std::vector<std::byte> read_file(const std::string& path);

/// kSynced: on the disk, name and contents, when the call returns.
enum class Durability : uint8_t { kCached, kSynced };

/// What a file is made of: `head`, `body`, and zero bytes behind them, which take no room on file
/// systems that can leave them out.
struct FileParts {
  std::span<const std::byte> head;
  std::span<const std::byte> body;
  uint64_t zeros = 0;
};

/// Replaces the file in one step: on an error (ResourceExhausted: disk full; else
/// FailedPrecondition) the old one stays as it was. Devices and pipes are written to as they are.
void write_file(const std::string& path, const FileParts& parts,
                Durability durability = Durability::kCached);
inline void write_file(const std::string& path, std::span<const std::byte> bytes,
                       Durability durability = Durability::kCached) {
  write_file(path, FileParts{bytes, {}, 0}, durability);
}

/// Makes a folder and those above it; throws FailedPrecondition.
void make_folder(const std::filesystem::path& path);

/// A folder that one process at a time writes to; the lock ends with the object or its process.
class FolderLock {
 public:
  /// Throws FailedPrecondition when it is taken. Where a file system has no locks nothing is
  /// locked.
  explicit FolderLock(const std::filesystem::path& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int folder_;
};

/// Writes a file that is not there yet, and waits until it is on the disk. Throws as
/// write_file().
void write_synced_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

/// Waits until the names in a folder are on the disk. Throws as write_file().
void sync_folder(const std::filesystem::path& path);

/// All of `bytes` to an open file; false with errno on the first error.
bool write_all(int file, std::span<const std::byte> bytes);

}  // namespace tpu::driver
