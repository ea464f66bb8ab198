// Shared memory for the bytes of calls: what a process keeps ready for its calls, and what the
// process with the board has of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>

#include "process_wire_generated.h"
#include "socket/shared_memory.hpp"
#include "sync/mutex.hpp"

namespace tpu::pjrt {

using base::Descriptor;
using base::SharedMemory;

/// Of the process that calls.
class SegmentPool {
 public:
  struct Segment {
    uint64_t number;
    SharedMemory memory;
  };
  /// Tells the other process of a segment, or, with none, that this one is gone.
  using Tell = std::function<void(uint64_t number, const SharedMemory* memory)>;
  explicit SegmentPool(Tell tell) : tell_(std::move(tell)) {}

  /// At least so many bytes, which go back when the last handle does.
  std::shared_ptr<Segment> take(size_t bytes);
  /// `bytes` in the frame, or in `segment`, which lives until the call is over.
  std::unique_ptr<wire::BytesT> bytes_of(std::span<const std::byte> bytes,
                                         std::shared_ptr<Segment>& segment);

 private:
  void give_back(std::unique_ptr<Segment> segment);

  const Tell tell_;
  base::Mutex mutex_;
  uint64_t last_number_ TPU_GUARDED_BY(mutex_) = 0;
  std::multimap<size_t, std::unique_ptr<Segment>> free_ TPU_GUARDED_BY(mutex_);
  size_t free_bytes_ TPU_GUARDED_BY(mutex_) = 0;
};

/// Of the process that is called. One thread.
class SegmentTable {
 public:
  using Segment = std::shared_ptr<SharedMemory>;

  /// Throws driver::Error as SharedMemory::map(), and for a number that is there.
  void add(const wire::SegmentT& segment, Descriptor file);
  void drop(uint64_t number) { segments_.erase(number); }
  /// Throws driver::Error (InvalidArgument) for one that is not there or has fewer bytes.
  const Segment& at(uint64_t number, uint64_t bytes) const;
  /// Throws as at(). None for null.
  std::span<const std::byte> bytes_of(const std::unique_ptr<wire::BytesT>& bytes) const;

 private:
  std::unordered_map<uint64_t, Segment> segments_;
};

}  // namespace tpu::pjrt
