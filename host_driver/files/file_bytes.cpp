// Mapped where that can be done. Pages that are lost are found by lost_pages.hpp; the rest of the
// last page of a file that was cut reads as zeros, so size and time are compared too.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "files/files.hpp"
#include "files/lost_pages.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {

struct FileBytes::Mapping {
  Mapping(int opened, const struct stat& found, void* made)
      : file(opened), info(found), data(made), watched(made, static_cast<size_t>(found.st_size)) {}
  ~Mapping() { ::close(file); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  int file;
  struct stat info;  // as it was opened
  void* data;
  WatchedMapping watched;
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
  const struct stat& then = mapping_->info;
  const bool same = ::fstat(mapping_->file, &now) == 0 && now.st_size == then.st_size &&
                    now.st_mtim.tv_sec == then.st_mtim.tv_sec &&
                    now.st_mtim.tv_nsec == then.st_mtim.tv_nsec;
  if (!same) {
    throw UnreadableFile(fmt::format(
        "{}: was changed while it was read ({} bytes then, {} now); let nobody write to it, and "
        "start again",
        path_, then.st_size, now.st_size));
  }
  if (mapping_->watched.lost()) {
    throw UnreadableFile(fmt::format(
        "{}: some of its bytes cannot be read from the disk; copy it again from its source",
        path_));
  }
}

}  // namespace tpu::driver
