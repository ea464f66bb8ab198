// Mapped where that can be done. Pages that are lost are found by lost_pages.hpp; the rest of the
// last page of a file that was cut reads as zeros, so size and time are compared too. Of a file of
// usual size a checksum tells one that was only touched, or written anew with the same bytes, from
// one that changed. Of a larger one, which may not fit into memory, the time is all that is known.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>

#include "file/crc32c.hpp"
#include "file/files.hpp"
#include "file/lost_pages.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {

namespace {

constexpr size_t kMostSummed = size_t{256} << 20;

}  // namespace

struct FileBytes::Mapping {
  Mapping(int opened, const struct stat& found, void* made)
      : file(opened), info(found), data(made), watched(made, static_cast<size_t>(found.st_size)) {
    if (bytes().size() <= kMostSummed) {
      sum = spec::crc32c(bytes());
    }
  }
  ~Mapping() { ::close(file); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(data), static_cast<size_t>(info.st_size)};
  }
  bool touched(const struct stat& now) const {
    return now.st_mtim.tv_sec != info.st_mtim.tv_sec || now.st_mtim.tv_nsec != info.st_mtim.tv_nsec;
  }

  int file;
  struct stat info;  // as it was opened, or as it was when its bytes were looked at last
  void* data;
  WatchedMapping watched;
  std::optional<uint32_t> sum;  // of all bytes, when it was opened
  std::mutex mutex;             // of `info`
};

FileBytes::FileBytes(const std::string& path) : path_(path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    throw UnreadableFile(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  }
  struct stat info {};
  const bool known = ::fstat(file, &info) == 0;
  if (known && S_ISREG(info.st_mode) && info.st_size > 0) {
    const auto size = static_cast<size_t>(info.st_size);
    void* made = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (made != MAP_FAILED) {
      mapping_ = std::make_unique<Mapping>(file, info, made);
      bytes_ = {static_cast<const std::byte*>(made), size};
      ::madvise(made, size, MADV_SEQUENTIAL);
      return;
    }
  }
  ::close(file);
  read_ = read_file(path);
  bytes_ = read_;
}

FileBytes::~FileBytes() {
  if (mapping_ != nullptr) {
    void* const data = mapping_->data;
    mapping_.reset();
    ::munmap(data, bytes_.size());
  }
}

void FileBytes::check() const {
  if (mapping_ == nullptr) {
    return;
  }
  struct stat now {};
  const std::lock_guard lock(mapping_->mutex);
  const bool known = ::fstat(mapping_->file, &now) == 0;
  const auto refuse = [&](const char* why) {
    throw UnreadableFile(
        fmt::format("{}: changed while it was read ({} bytes at first, {} bytes now{}); stop other "
                    "writers, and start again",
                    path_, mapping_->info.st_size, now.st_size, why));
  };
  if (!known || now.st_size != mapping_->info.st_size) {
    refuse("");
  }
  if (mapping_->touched(now)) {
    if (!mapping_->sum) {
      refuse(", with a later modification time; a file of this size has no checksum");
    }
    if (spec::crc32c(mapping_->bytes()) != *mapping_->sum) {
      refuse(", with other contents");
    }
    mapping_->info = now;
  }
  if (mapping_->watched.lost()) {
    throw UnreadableFile(fmt::format(
        "{}: some of its bytes cannot be read from the disk; copy it again from its source",
        path_));
  }
}

}  // namespace tpu::driver
