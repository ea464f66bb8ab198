#include "processes/segments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "processes/wire/frame.hpp"
#include "tpu/error.hpp"

namespace tpu::pjrt {
namespace {

constexpr size_t kLeastSegment = size_t{1} << 20;
constexpr size_t kMostFreeBytes = size_t{256} << 20;

}  // namespace

std::shared_ptr<SegmentPool::Segment> SegmentPool::take(size_t bytes) {
  const size_t size = std::max(kLeastSegment, std::bit_ceil(bytes));
  const auto shared = [this](std::unique_ptr<Segment> own) {
    return std::shared_ptr<Segment>(
        own.release(), [this](Segment* done) { give_back(std::unique_ptr<Segment>(done)); });
  };
  uint64_t number = 0;
  {
    const base::MutexLock lock(mutex_);
    const auto it = free_.lower_bound(size);
    if (it != free_.end() && it->first <= 4 * size) {
      free_bytes_ -= it->first;
      std::unique_ptr<Segment> found = std::move(it->second);
      free_.erase(it);
      return shared(std::move(found));
    }
    number = ++last_number_;
  }
  auto made = std::make_unique<Segment>(Segment{number, SharedMemory::create(size)});
  tell_(number, &made->memory);
  made->memory.close_file();
  return shared(std::move(made));
}

void SegmentPool::give_back(std::unique_ptr<Segment> segment) {
  const size_t size = segment->memory.bytes().size();
  {
    const base::MutexLock lock(mutex_);
    if (free_bytes_ + size <= kMostFreeBytes) {
      free_bytes_ += size;
      free_.emplace(size, std::move(segment));
      return;
    }
  }
  tell_(segment->number, nullptr);
}

std::unique_ptr<wire::BytesT> SegmentPool::bytes_of(std::span<const std::byte> bytes,
                                                    std::shared_ptr<Segment>& segment) {
  auto made = std::make_unique<wire::BytesT>();
  if (bytes.size() <= kMostInFrame) {
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
    made->in_frame.assign(data, data + bytes.size());
    return made;
  }
  segment = take(bytes.size());
  std::memcpy(segment->memory.bytes().data(), bytes.data(), bytes.size());
  made->segment = segment->number;
  made->size = bytes.size();
  return made;
}

void SegmentTable::add(const wire::SegmentT& segment, Descriptor file) {
  auto mapped = std::make_shared<SharedMemory>(SharedMemory::map(std::move(file), segment.bytes));
  if (segment.segment == 0 || !segments_.emplace(segment.segment, std::move(mapped)).second) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument,
                        fmt::format("a process makes shared memory {} again", segment.segment));
  }
}

const SegmentTable::Segment& SegmentTable::at(uint64_t number, uint64_t bytes) const {
  const auto it = segments_.find(number);
  if (it == segments_.end() || bytes > it->second->bytes().size()) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument,
                        fmt::format("a process names {} bytes of shared memory {}, which it does "
                                    "not have",
                                    bytes, number));
  }
  return it->second;
}

std::span<const std::byte> SegmentTable::bytes_of(
    const std::unique_ptr<wire::BytesT>& bytes) const {
  if (bytes == nullptr) {
    return {};
  }
  if (bytes->segment != 0) {
    return at(bytes->segment, bytes->size)->bytes().first(bytes->size);
  }
  return std::as_bytes(std::span(bytes->in_frame));
}

}  // namespace tpu::pjrt
