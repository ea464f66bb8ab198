// POSIX calls, since streams tell neither the reason of a failure nor when data is on the disk.
#include "file/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "check/checked.hpp"
#include "check/host_room.hpp"
#include "file/output_file.hpp"
#include "file/whole_file.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

std::string reason(int error) {
  const std::string text = std::strerror(error);
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return text + "; make room or choose another place";
    case EACCES:
    case EPERM:
    case EROFS:
      return text + "; choose a place that may be written to";
    case ENOENT:
      return text + "; the folder must exist";
    case EISDIR:
      return "it is a folder; name a file";
    default:
      return text;
  }
}

// A full disk is a lack of room; all else is a matter of what stands where the file is to go.
ErrorCode write_code(int error) {
  return error == ENOSPC || error == EDQUOT || error == EFBIG ? ErrorCode::kResourceExhausted
                                                              : ErrorCode::kFailedPrecondition;
}

[[noreturn]] void cannot_write(const std::string& path, int error) {
  throw Error(write_code(error), fmt::format("{}: cannot be written: {}", path, reason(error)));
}

}  // namespace

bool write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return false;
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

std::vector<std::byte> read_file(const std::string& path) {
  std::error_code untold;  // of a pipe
  const uintmax_t size = std::filesystem::file_size(path, untold);
  if (!untold) {
    need_host_room(size, path);
  }
  try {
    return spec::read_whole_file(path, host_room());
  } catch (const spec::FileError& error) {
    throw UnreadableFile(error.what());
  }
}

FileWriter::FileWriter(const std::string& path, Durability durability)
    : name_(path), durability_(durability) {
  attempt([&] { file_ = std::make_unique<spec::OutputFile>(path); });
}

FileWriter::~FileWriter() = default;

template <typename Action>
void FileWriter::attempt(Action action) {
  try {
    action();
  } catch (const std::system_error& error) {
    cannot_write(name_, error.code().value());
  }
}

void FileWriter::add(std::span<const std::byte> bytes) {
  attempt([&] { file_->add(bytes); });
}

void FileWriter::add_zeros(uint64_t count) {
  // A hole where the file can have one.
  const int file = file_->descriptor();
  if (const off_t at = ::lseek(file, 0, SEEK_CUR); at >= 0) {
    const auto end = checked_sum(static_cast<uint64_t>(at), count);
    if (end && std::in_range<off_t>(*end) && ::ftruncate(file, static_cast<off_t>(*end)) == 0 &&
        ::lseek(file, 0, SEEK_END) >= 0) {
      return;
    }
  }
  const std::vector<std::byte> piece(std::min<uint64_t>(count, uint64_t{1} << 16));
  for (uint64_t left = count; left > 0;) {
    const uint64_t now = std::min<uint64_t>(left, piece.size());
    add(std::span(piece).first(now));
    left -= now;
  }
}

void FileWriter::finish() {
  attempt([&] { file_->finish(durability_ == Durability::kSynced); });
}

void need_writable(const std::string& path) {
  std::error_code none;
  const std::filesystem::file_status status = std::filesystem::status(path, none);
  if (!std::filesystem::is_other(status)) {
    const FileWriter begun(path);
  }
}

void write_file(const std::string& path, std::span<const std::byte> bytes, Durability durability) {
  FileWriter file(path, durability);
  file.add(bytes);
  file.finish();
}

void make_folder(const std::filesystem::path& path) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (failed || !std::filesystem::is_directory(path, failed)) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: cannot create this folder: {}; choose another path", path.string(),
                            failed ? failed.message() : "a file has this name"));
  }
}

FolderLock::FolderLock(const std::filesystem::path& path)
    : folder_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (folder_ >= 0 && ::flock(folder_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(folder_);
    throw Error(
        ErrorCode::kFailedPrecondition,
        fmt::format("{}: another run writes there; give each run its own folder", path.string()));
  }
}

FolderLock::~FolderLock() {
  if (folder_ >= 0) {
    ::close(folder_);
  }
}

void sync_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int error = file < 0 || ::fsync(file) != 0 ? errno : 0;
  if (file >= 0) {
    ::close(file);
  }
  if (error != 0 && error != EINVAL) {
    cannot_write(path, error);
  }
}

std::string default_cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && *cache == '/') {
    return std::string(cache) + "/tpuboard";
  }
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/tpuboard" : std::string();
}

}  // namespace tpu::driver
