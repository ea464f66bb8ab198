// See output.hpp. System calls: the reason of a failure belongs to the message.
#include "cli/output.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "ir/error.hpp"

namespace tpu::compiler {

namespace {

[[noreturn]] void fail(const std::string& path, int error) {
  throw Error("cannot write '" + path + "': " + std::strerror(error) +
              "; nothing was written there");
}

// 0, or the reason.
int write_all(const std::string& path, int flags, std::span<const std::byte> bytes) {
  const int file = ::open(path.c_str(), flags | O_WRONLY | O_CLOEXEC, 0666);
  if (file < 0) {
    return errno;
  }
  int error = 0;
  for (size_t at = 0; at < bytes.size() && error == 0;) {
    const ssize_t n = ::write(file, bytes.data() + at, bytes.size() - at);
    if (n >= 0) {
      at += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (::close(file) != 0 && error == 0) {
    error = errno;
  }
  return error;
}

}  // namespace

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  struct stat info {};
  const bool there = ::stat(path.c_str(), &info) == 0;
  if (there && !S_ISREG(info.st_mode)) {  // a folder is refused by the system
    if (const int error = write_all(path, 0, bytes); error != 0) {
      fail(path, error);
    }
    return;
  }
  // A link stays a link: the file behind it is replaced.
  std::error_code ignored;
  const std::string target = there ? std::filesystem::canonical(path, ignored).string() : path;
  const std::string temporary = target + "." + std::to_string(::getpid()) + ".part";
  int error = write_all(temporary, O_CREAT | O_TRUNC, bytes);
  if (error == 0 && ::rename(temporary.c_str(), target.c_str()) != 0) {
    error = errno;
  }
  if (error != 0) {
    ::unlink(temporary.c_str());
    fail(path, error);
  }
}

std::string default_output(const std::string& program) {
  return std::filesystem::path(program).stem().string() + ".tpuexe";
}

}  // namespace tpu::compiler
