#include "transport/vfio/dma_ranges.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>

#include "file/lost_pages.hpp"

namespace tpu::driver::vfio {

class MappedFile {
 public:
  /// Null: errno says why.
  static std::shared_ptr<MappedFile> map(int file, uint64_t bytes, bool write) {
    void* const data =
        ::mmap(nullptr, bytes, PROT_READ | (write ? PROT_WRITE : 0), MAP_SHARED, file, 0);
    return data == MAP_FAILED ? nullptr
                              : std::shared_ptr<MappedFile>(
                                    new MappedFile(static_cast<std::byte*>(data), bytes, write));
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    watch_.reset();
    ::munmap(data_, bytes_);
  }

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  bool writable() const { return writable_; }
  bool lost() const { return watch_->lost(); }

 private:
  MappedFile(std::byte* data, uint64_t bytes, bool writable)
      : data_(data),
        bytes_(bytes),
        writable_(writable),
        watch_(std::in_place, data, bytes, writable) {}

  std::byte* const data_;
  const uint64_t bytes_;
  const bool writable_;
  std::optional<WatchedMapping> watch_;  // a client that cuts its file does not end the server
};

DmaRanges::DmaRanges() = default;
DmaRanges::~DmaRanges() = default;

int DmaRanges::open(Range& range, base::Descriptor file) {
  struct stat status {};
  if (::fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return EINVAL;
  }
  const auto size = static_cast<uint64_t>(std::max<off_t>(status.st_size, 0));
  if (range.offset > size || range.size > size - range.offset) {
    return EINVAL;
  }
  const bool write = (range.flags & DmaMap::kWrite) != 0;
  std::weak_ptr<MappedFile>& known = files_[{status.st_dev, status.st_ino}];
  range.file = known.lock();
  if (range.file == nullptr || range.file->bytes() < range.offset + range.size ||
      (write && !range.file->writable()) || range.file->lost()) {
    range.file = MappedFile::map(file.number(), size, write);
    if (range.file == nullptr) {
      return errno;
    }
    known = range.file;
  }
  return 0;
}

int DmaRanges::map(const DmaMap& map, base::Descriptor file) {
  if (ranges_.size() == kMostRanges || map.size > kMostBytes - bytes_) {
    return ENOSPC;
  }
  const auto behind = ranges_.lower_bound(map.address);
  const bool free_behind = behind == ranges_.end() || behind->first - map.address >= map.size;
  const bool free_before = behind == ranges_.begin() ||
                           std::prev(behind)->second.size <= map.address - std::prev(behind)->first;
  if (!free_behind || !free_before) {
    return EEXIST;
  }
  Range range{map.size, map.flags, map.offset, nullptr};
  if (file.valid()) {
    if (const int error = open(range, std::move(file)); error != 0) {
      return error;
    }
  }
  bytes_ += map.size;
  ranges_.emplace(map.address, std::move(range));
  return 0;
}

std::pair<int, uint64_t> DmaRanges::unmap(uint64_t address, uint64_t size) {
  const uint64_t last = address + (size - 1);
  const auto cut_before = [this](uint64_t at) {
    const auto* const range = range_at(at);
    return range != nullptr && range->first != at;
  };
  if (size == 0 || last < address || cut_before(address) ||
      (last != UINT64_MAX && cut_before(last + 1))) {
    return {EINVAL, 0};
  }
  uint64_t bytes = 0;
  auto range = ranges_.lower_bound(address);
  while (range != ranges_.end() && range->first <= last) {
    bytes += range->second.size;
    range = ranges_.erase(range);
  }
  bytes_ -= bytes;
  std::erase_if(files_, [](const auto& file) { return file.second.expired(); });
  return {0, bytes};
}

void DmaRanges::clear() {
  ranges_.clear();
  files_.clear();
  bytes_ = 0;
}

const std::pair<const uint64_t, DmaRanges::Range>* DmaRanges::range_at(uint64_t address) const {
  const auto behind = ranges_.upper_bound(address);
  if (behind == ranges_.begin()) {
    return nullptr;
  }
  const auto& range = *std::prev(behind);
  return address - range.first < range.second.size ? &range : nullptr;
}

bool DmaRanges::pieces(uint64_t address, uint64_t bytes, bool write,
                       const std::function<void(const Piece&)>& take) const {
  const uint32_t need = write ? DmaMap::kWrite : DmaMap::kRead;
  while (bytes > 0) {
    const auto* const range = range_at(address);
    if (range == nullptr || (range->second.flags & need) == 0) {
      return false;
    }
    const uint64_t at = address - range->first;
    const uint64_t here = std::min(bytes, range->second.size - at);
    const auto& file = range->second.file;
    take({address, here, file == nullptr ? nullptr : file->data() + range->second.offset + at});
    address += here;
    bytes -= here;
  }
  return true;
}

std::span<std::byte> DmaRanges::together(uint64_t address, uint64_t bytes, bool write) const {
  std::span<std::byte> all;
  const bool there = pieces(address, bytes, write, [&](const Piece& piece) {
    if (piece.address == address && piece.bytes == bytes && piece.data != nullptr) {
      all = {piece.data, bytes};
    }
  });
  return there ? all : std::span<std::byte>();
}

}  // namespace tpu::driver::vfio
