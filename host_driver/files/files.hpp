// Files and folders of the command, with errors that say which path, why, and what to do. Output
// never stands half written under its name: it is made beside it and renamed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tpu::driver {

/// Whole file; throws InvalidArgument when it cannot be read or is a folder or a device,
/// ResourceExhausted when the host has no memory for it.
std::vector<std::byte> read_file(const std::string& path);

/// The bytes of a file that need not fit into memory: an ordinary file is mapped and must not be
/// cut while this is there; what cannot be mapped is read. Throws as read_file().
class FileBytes {
 public:
  explicit FileBytes(const std::string& path);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  std::span<const std::byte> get() const { return bytes_; }

 private:
  void* mapping_ = nullptr;
  std::vector<std::byte> read_;
  std::span<const std::byte> bytes_;
};

/// kSynced: on the disk, name and contents, when the call returns.
enum class Durability : uint8_t { kCached, kSynced };

/// A file that is written front to back. It replaces the one of its name in one step when it is
/// finished: before, and on an error (ResourceExhausted: disk full; else FailedPrecondition), the
/// old one stays as it was. Devices and pipes are written to as they are.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path, Durability durability = Durability::kCached);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void add(std::span<const std::byte> bytes);
  /// Zero bytes, which take no room on file systems that can leave them out.
  void add_zeros(uint64_t count);
  /// The last call.
  void finish();

 private:
  std::string name_;    // for errors
  std::string target_;  // what is replaced; empty: nothing is
  std::string beside_;  // what is written until then
  Durability durability_;
  int file_ = -1;
};

/// Throws as write_file() would now, before the work whose result is to be written there. Leaves
/// all as it was; devices and pipes are not looked at.
void need_writable(const std::string& path);

/// All of a file at once.
void write_file(const std::string& path, std::span<const std::byte> bytes,
                Durability durability = Durability::kCached);

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
