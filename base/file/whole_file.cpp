// POSIX calls, since streams tell neither the reason of a failure nor what kind of file it is.
#include "file/whole_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

namespace tpu::spec {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw FileError(fmt::format("{}: {}", path, what));
}

[[noreturn]] void too_large(const std::string& path, uint64_t max_bytes) {
  refuse(path, fmt::format("is too large: expected at most {} bytes", max_bytes));
}

// The size that the system tells; 0 of a pipe.
uint64_t checked_size(const std::string& path, int file) {
  struct stat info {};
  if (::fstat(file, &info) != 0) {
    refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  }
  if (S_ISDIR(info.st_mode)) {
    refuse(path, "is a folder; name a file");
  }
  if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) {
    refuse(path, "is a device; name a file");
  }
  return S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : 0;
}

void read_all(const std::string& path, int file, uint64_t max_bytes, std::vector<std::byte>& out) {
  size_t used = 0;
  for (;;) {
    if (used == out.size()) {
      out.resize(out.size() * 2);
    }
    const ssize_t n = ::read(file, out.data() + used, out.size() - used);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)));
    }
    if (n == 0) {
      break;
    }
    used += static_cast<size_t>(n);
    if (used > max_bytes) {
      too_large(path, max_bytes);
    }
  }
  out.resize(used);
}

}  // namespace

std::vector<std::byte> read_whole_file(const std::string& path, uint64_t max_bytes) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    refuse(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  const std::unique_ptr<const int, void (*)(const int*)> closed(&file,
                                                                [](const int* f) { ::close(*f); });
  const uint64_t size = checked_size(path, file);
  if (size > max_bytes) {
    too_large(path, max_bytes);
  }
  // One byte more than the size shows the end at once.
  constexpr uint64_t kPiece = uint64_t{1} << 16;
  std::vector<std::byte> bytes(std::max(size + 1, kPiece));
  read_all(path, file, max_bytes, bytes);
  return bytes;
}

void refuse_overwrite(const std::string& output, std::span<const std::string> inputs) {
  namespace fs = std::filesystem;
  for (const std::string& input : inputs) {
    std::error_code none;  // what is not there is no input
    if (fs::is_regular_file(input, none) && fs::equivalent(output, input, none)) {
      refuse(output, fmt::format("would be written over the input {}; choose another file", input));
    }
  }
}

}  // namespace tpu::spec
