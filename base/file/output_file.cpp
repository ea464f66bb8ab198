// POSIX calls, since streams tell neither the reason of a failure nor when data is on the disk.
#include "file/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <system_error>
#include <utility>

namespace tpu::spec {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kUsualMode = 0666;
constexpr size_t kRandomDigits = 16;
// 64 random bits are taken twice by somebody who counts them, not by chance.
constexpr int kNamesTried = 16;

[[noreturn]] void fail(int error, const std::string& path) {
  throw std::system_error(error, std::generic_category(), path);
}

// Cut where the whole would be longer than a name may be.
std::string random_name(const std::string& target) {
  uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) {
    fail(errno, target);
  }
  const fs::path path(target);
  const std::string end = fmt::format(".{:0{}x}{}", bits, kRandomDigits, kPartSuffix);
  const std::string name = path.filename().string().substr(0, NAME_MAX - end.size());
  return (path.parent_path() / (name + end)).string();
}

std::string folder_of(const std::string& target) {
  const std::string folder = fs::path(target).parent_path().string();
  return folder.empty() ? "." : folder;
}

// How a file without a name gets one; a system without /proc has no such way.
std::string proc_name(int file) { return fmt::format("/proc/self/fd/{}", file); }

}  // namespace

std::string_view part_target(std::string_view name) {
  if (!name.ends_with(kPartSuffix)) {
    return {};
  }
  name.remove_suffix(kPartSuffix.size());
  if (name.size() < kRandomDigits + 2 || name[name.size() - kRandomDigits - 1] != '.') {
    return {};
  }
  const std::string_view digits = name.substr(name.size() - kRandomDigits);
  if (digits.find_first_not_of("0123456789abcdef") != std::string_view::npos) {
    return {};
  }
  return name.substr(0, name.size() - kRandomDigits - 1);
}

OutputFile::OutputFile(const std::string& path, Unfinished unfinished) : path_(path) {
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    fail(EISDIR, path);
  }
  if (exists && !S_ISREG(info.st_mode)) {
    file_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file_ < 0) {
      fail(errno, path);
    }
    return;
  }
  if (exists && ::access(path.c_str(), W_OK) != 0) {
    fail(errno, path);
  }
  // What a link points to is replaced, not the link.
  std::error_code failed;
  const fs::path found = fs::weakly_canonical(path, failed);
  target_ = failed ? path : found.string();
  begin(exists ? info.st_mode & 07777 : kUsualMode, unfinished);
}

void OutputFile::begin(mode_t mode, Unfinished unfinished) {
  if (unfinished == Unfinished::kWithoutName) {
    file_ = ::open(folder_of(target_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  }
  if (file_ >= 0 && ::access(proc_name(file_).c_str(), F_OK) == 0) {
    return;
  }
  if (file_ >= 0) {
    ::close(std::exchange(file_, -1));
  }
  for (int tried = 0; file_ < 0; ++tried) {
    named_ = random_name(target_);
    file_ = ::open(named_.c_str(), O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    if (file_ < 0 && (errno != EEXIST || tried == kNamesTried)) {
      named_.clear();
      fail(errno, path_);
    }
  }
}

OutputFile::~OutputFile() {
  if (file_ >= 0) {
    ::close(file_);
  }
  remove_named();
}

void OutputFile::remove_named() noexcept {
  if (!named_.empty()) {
    ::unlink(named_.c_str());
    named_.clear();
  }
}

void OutputFile::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      fail(n < 0 ? errno : EIO, path_);
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void OutputFile::name_it() {
  for (int tried = 0; named_.empty(); ++tried) {
    std::string name = random_name(target_);
    if (::linkat(AT_FDCWD, proc_name(file_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) ==
        0) {
      named_ = std::move(name);
    } else if (errno != EEXIST || tried == kNamesTried) {
      fail(errno, path_);
    }
  }
}

// Errors of a delayed write may come here.
void OutputFile::close_file() {
  if (::close(std::exchange(file_, -1)) != 0) {
    fail(errno, path_);
  }
}

void OutputFile::finish(bool synced) {
  if (target_.empty()) {
    return close_file();
  }
  if (synced && ::fsync(file_) != 0) {
    fail(errno, path_);
  }
  name_it();
  close_file();
  if (::rename(named_.c_str(), target_.c_str()) != 0) {
    fail(errno, path_);
  }
  named_.clear();
  if (synced) {
    sync_folder(folder_of(target_));
  }
}

void sync_folder(const std::string& path) {
  const std::string name = path.empty() ? "." : path;
  const int folder = ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) {
    fail(errno, name);
  }
  const int error = ::fsync(folder) == 0 ? 0 : errno;
  ::close(folder);
  // File systems that cannot do this (EINVAL) keep their own order.
  if (error != 0 && error != EINVAL) {
    fail(error, name);
  }
}

}  // namespace tpu::spec
