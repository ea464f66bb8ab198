// Files and folders of the command, with errors that say which path, why, and what to do. Output
// never stands half written under its name: it is made beside it and renamed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tpu::driver {

/// Whole file; throws InvalidArgument when it cannot be read or is a folder.
std::vector<std::byte> read_file(const std::string& path);

/// kSynced: on the disk, name and contents, when the call returns.
enum class Durability : uint8_t { kCached, kSynced };

/// Replaces the file in one step: on an error (Internal, for example: disk full) the old one stays
/// as it was. Devices and pipes are written to as they are.
void write_file(const std::string& path, std::span<const std::byte> bytes,
                Durability durability = Durability::kCached);

/// Makes a folder and those above it; throws InvalidArgument.
void make_folder(const std::filesystem::path& path);

/// A folder that one process at a time writes to; the lock ends with the object or its process.
class FolderLock {
 public:
  /// Throws InvalidArgument when it is taken. Where a file system has no locks nothing is locked.
  explicit FolderLock(const std::filesystem::path& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int folder_;
};

/// Writes a file that is not there yet, and waits until it is on the disk. Throws Internal.
void write_synced_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

/// Waits until the names in a folder are on the disk. Throws Internal.
void sync_folder(const std::filesystem::path& path);

/// All of `bytes` to an open file; false with errno on the first error.
bool write_all(int file, std::span<const std::byte> bytes);

}  // namespace tpu::driver
