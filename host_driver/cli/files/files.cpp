// POSIX calls, since streams tell neither the reason of a failure nor when data is on the disk.
#include "cli/files/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/memory/host_room.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

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

// The zeros at the end: a hole where the file can have one.
bool write_zeros(int file, const FileParts& parts) {
  const uint64_t all = parts.head.size() + parts.body.size() + parts.zeros;
  if (parts.zeros == 0 ||
      (std::in_range<off_t>(all) && ::ftruncate(file, static_cast<off_t>(all)) == 0)) {
    return true;
  }
  const std::vector<std::byte> piece(size_t{1} << 16);
  for (uint64_t left = parts.zeros; left > 0;) {
    const uint64_t now = std::min<uint64_t>(left, piece.size());
    if (!write_all(file, std::span(piece).first(now))) {
      return false;
    }
    left -= now;
  }
  return true;
}

// Makes the file `path`, complete, or throws and leaves none.
void write_whole(const std::string& path, const std::string& name, int flags, mode_t mode,
                 const FileParts& parts, Durability durability) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, mode));
  if (!file.valid()) {
    cannot_write(name, errno);
  }
  const bool written = write_all(file.get(), parts.head) && write_all(file.get(), parts.body) &&
                       write_zeros(file.get(), parts) &&
                       (durability == Durability::kCached || ::fsync(file.get()) == 0);
  const int error = errno;
  if (!written || !file.close()) {
    const int why = written ? errno : error;
    if ((flags & O_CREAT) != 0) {
      ::unlink(path.c_str());
    }
    cannot_write(name, why);
  }
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
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, what));
  };
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    refuse(fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  struct stat info {};
  if (::fstat(file.get(), &info) == 0 && S_ISDIR(info.st_mode)) {
    refuse("is a folder; name a file");
  }
  need_host_room(static_cast<uint64_t>(info.st_size), path);
  // One byte more than the size shows the end at once; pipes and devices tell no size.
  constexpr size_t kPiece = size_t{1} << 16;
  std::vector<std::byte> bytes(std::max<size_t>(static_cast<size_t>(info.st_size) + 1, kPiece));
  size_t used = 0;
  for (;;) {
    if (used == bytes.size()) {
      bytes.resize(bytes.size() * 2);
    }
    const ssize_t n = ::read(file.get(), bytes.data() + used, bytes.size() - used);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
    }
    if (n == 0) {
      break;
    }
    used += static_cast<size_t>(n);
  }
  bytes.resize(used);
  return bytes;
}

void write_file(const std::string& path, const FileParts& parts, Durability durability) {
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: cannot be written: it is a folder; name a file", path));
  }
  if (exists && !S_ISREG(info.st_mode)) {
    write_whole(path, path, 0, 0, parts, Durability::kCached);
    return;
  }
  if (exists && ::access(path.c_str(), W_OK) != 0) {
    cannot_write(path, errno);
  }
  // What a link points to is replaced, not the link.
  std::error_code failed;
  const std::filesystem::path found = std::filesystem::weakly_canonical(path, failed);
  const std::filesystem::path target = failed ? std::filesystem::path(path) : found;
  const std::string beside = fmt::format("{}.{}.part", target.string(), ::getpid());
  constexpr mode_t kUsual = 0666;
  write_whole(beside, path, O_CREAT | O_TRUNC, exists ? info.st_mode & 07777 : kUsual, parts,
              durability);
  if (::rename(beside.c_str(), target.c_str()) != 0) {
    const int error = errno;
    ::unlink(beside.c_str());
    cannot_write(path, error);
  }
  if (durability == Durability::kSynced) {
    sync_folder(target.parent_path());
  }
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
  constexpr mode_t kUsual = 0666;
  write_whole(path, path, O_CREAT | O_TRUNC, kUsual, {bytes, {}, 0}, Durability::kSynced);
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
