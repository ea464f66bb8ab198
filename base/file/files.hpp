// Files and folders of the command, with errors that say which path, why, and what to do. Output
// never stands half written under its name: it is made apart from it and renamed (output_file.hpp).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tpu/error.hpp"

namespace tpu::spec {
class OutputFile;
}

namespace tpu::driver {

/// A file that cannot be opened or read just now, or was changed while it was read: that says
/// nothing about what it holds.
class UnreadableFile : public Error {
 public:
  explicit UnreadableFile(const std::string& message)
      : Error(ErrorCode::kInvalidArgument, message) {}
};

/// Whole file; throws UnreadableFile when it cannot be read or is a folder or a device,
/// ResourceExhausted when the host has no memory for it.
std::vector<std::byte> read_file(const std::string& path);

/// The bytes of a file that need not fit into memory: an ordinary file is mapped; what cannot be
/// mapped is read. Throws as read_file().
class FileBytes {
 public:
  explicit FileBytes(const std::string& path);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  /// What is made of them counts when check() has returned since.
  std::span<const std::byte> get() const { return bytes_; }
  /// Throws UnreadableFile when another process has changed the file since it was opened, or some
  /// of it could not be read: the bytes may be anything then. One that was touched, or written anew
  /// with the same bytes, is as it was, up to 256 MiB; of a larger one that is not known.
  void check() const;
  /// `body` of the bytes, and check(), whose error is the one that counts.
  template <typename Body>
  auto use(const Body& body) const {
    try {
      if constexpr (std::is_void_v<decltype(body(bytes_))>) {
        body(bytes_);
        check();
      } else {
        auto result = body(bytes_);
        check();
        return result;
      }
    } catch (...) {
      check();
      throw;
    }
  }

 private:
  struct Mapping;

  std::string path_;
  std::unique_ptr<Mapping> mapping_;
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
  template <typename Action>
  void attempt(Action action);

  std::string name_;  // for errors
  Durability durability_;
  std::unique_ptr<spec::OutputFile> file_;
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

/// Waits until what has been written to a file is on the disk. Throws as write_file().
void sync_file(const std::string& path);

/// All of `bytes` to an open file; false with errno on the first error.
bool write_all(int file, std::span<const std::byte> bytes);

/// Of compiled programs, for whoever names none: `tpuboard` in XDG_CACHE_HOME or ~/.cache; empty:
/// there is no home folder.
std::string default_cache_folder();

}  // namespace tpu::driver
