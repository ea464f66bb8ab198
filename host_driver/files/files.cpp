// POSIX calls, since streams tell neither the reason of a failure nor when data is on the disk.
#include "files/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "file/whole_file.hpp"
#include "files/checked.hpp"
#include "src/memory/host_room.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

constexpr mode_t kUsualMode = 0666;

class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) {}
  ~Descriptor() {
    if (file_ >= 0) {
      ::close(file_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return file_; }
  bool valid() const { return file_ >= 0; }
  // Errors of a delayed write may come here.
  bool close() { return ::close(std::exchange(file_, -1)) == 0; }

 private:
  int file_;
};

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

[[noreturn]] void cannot_read(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, why));
}

Descriptor open_to_read(const std::string& path, struct stat& info) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    cannot_read(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  if (::fstat(file, &info) == 0 && S_ISDIR(info.st_mode)) {
    ::close(file);
    cannot_read(path, "is a folder; name a file");
  }
  return Descriptor(file);
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
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
}

FileBytes::FileBytes(const std::string& path) {
  struct stat info {};
  const Descriptor file = open_to_read(path, info);
  const auto size = static_cast<size_t>(info.st_size);
  if (S_ISREG(info.st_mode) && size > 0) {
    void* made = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (made != MAP_FAILED) {
      mapping_ = made;
      bytes_ = {static_cast<const std::byte*>(made), size};
      ::madvise(made, size, MADV_SEQUENTIAL);
      return;
    }
  }
  read_ = read_file(path);
  bytes_ = read_;
}

FileBytes::~FileBytes() {
  if (mapping_ != nullptr) {
    ::munmap(mapping_, bytes_.size());
  }
}

FileWriter::FileWriter(const std::string& path, Durability durability)
    : name_(path), durability_(durability) {
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: cannot be written: it is a folder; name a file", path));
  }
  const bool replaces = !exists || S_ISREG(info.st_mode);
  if (replaces && exists && ::access(path.c_str(), W_OK) != 0) {
    cannot_write(path, errno);
  }
  if (replaces) {
    // What a link points to is replaced, not the link.
    std::error_code failed;
    const std::filesystem::path found = std::filesystem::weakly_canonical(path, failed);
    target_ = failed ? path : found.string();
    beside_ = fmt::format("{}.{}.part", target_, ::getpid());
  }
  file_ = ::open((replaces ? beside_ : path).c_str(),
                 O_WRONLY | O_CLOEXEC | (replaces ? O_CREAT | O_TRUNC : 0),
                 exists ? info.st_mode & 07777 : kUsualMode);
  if (file_ < 0) {
    cannot_write(name_, errno);
  }
}

FileWriter::~FileWriter() {
  if (file_ >= 0) {
    ::close(file_);
    ::unlink(beside_.c_str());
  }
}

void FileWriter::add(std::span<const std::byte> bytes) {
  if (!write_all(file_, bytes)) {
    cannot_write(name_, errno);
  }
}

void FileWriter::add_zeros(uint64_t count) {
  // A hole where the file can have one.
  if (const off_t at = ::lseek(file_, 0, SEEK_CUR); at >= 0) {
    const auto end = checked_sum(static_cast<uint64_t>(at), count);
    if (end && std::in_range<off_t>(*end) && ::ftruncate(file_, static_cast<off_t>(*end)) == 0 &&
        ::lseek(file_, 0, SEEK_END) >= 0) {
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
  if (!target_.empty() && durability_ == Durability::kSynced && ::fsync(file_) != 0) {
    cannot_write(name_, errno);
  }
  // Errors of a delayed write may come here.
  const bool closed = ::close(std::exchange(file_, -1)) == 0;
  if (target_.empty() && closed) {
    return;
  }
  if (!closed || ::rename(beside_.c_str(), target_.c_str()) != 0) {
    const int error = errno;
    ::unlink(beside_.c_str());
    cannot_write(name_, error);
  }
  if (durability_ == Durability::kSynced) {
    sync_folder(std::filesystem::path(target_).parent_path());
  }
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
                fmt::format("{}: the folder cannot be made: {}; choose another place",
                            path.string(), failed ? failed.message() : "a file has this name"));
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

void write_synced_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_CREAT | O_TRUNC, kUsualMode));
  if (!file.valid()) {
    cannot_write(path, errno);
  }
  if (!write_all(file.get(), bytes) || ::fsync(file.get()) != 0 || !file.close()) {
    const int error = errno;
    ::unlink(path.c_str());
    cannot_write(path, error);
  }
}

void sync_folder(const std::filesystem::path& path) {
  const std::string name = path.empty() ? "." : path.string();
  Descriptor folder(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) {
    cannot_write(name, errno);
  }
  // File systems that cannot do this (EINVAL) keep their own order.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) {
    cannot_write(name, errno);
  }
}

}  // namespace tpu::driver
