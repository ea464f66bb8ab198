#include "socket/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tpu/error.hpp"

namespace tpu::base {
namespace {

[[noreturn]] void refuse_no_room(size_t bytes) {
  throw driver::Error(driver::ErrorCode::kResourceExhausted,
                      fmt::format("no shared memory of {} bytes: {}", bytes, std::strerror(errno)));
}

std::span<std::byte> mapped(const Descriptor& file, size_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (at == MAP_FAILED) {
    refuse_no_room(bytes);
  }
  return {static_cast<std::byte*>(at), bytes};
}

}  // namespace

SharedMemory SharedMemory::create(size_t bytes) {
  Descriptor file(::memfd_create("tpuboard", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid() || ::ftruncate(file.number(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(file.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    refuse_no_room(bytes);
  }
  const std::span<std::byte> place = mapped(file, bytes);
  return {std::move(file), place};
}

SharedMemory SharedMemory::map(Descriptor file, size_t bytes) {
  struct stat status {};
  const int seals = file.valid() ? ::fcntl(file.number(), F_GET_SEALS) : -1;
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(file.number(), &status) != 0 ||
      bytes == 0 || status.st_size < static_cast<off_t>(bytes)) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument,
                        fmt::format("shared memory of another process: expected a sealed file of "
                                    "{} bytes",
                                    bytes));
  }
  return {Descriptor(), mapped(file, bytes)};
}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) {
    ::munmap(bytes_.data(), bytes_.size());
  }
}

}  // namespace tpu::base
