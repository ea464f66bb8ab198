// HBM of one core as the driver hands it out, and the ranges in it. An Allocation gives itself back
// when its last holder (buffer handle or command in flight) is gone, under any lock.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "src/lock/board_lock.hpp"
#include "src/memory/range_allocator.hpp"
#include "sync/mutex.hpp"

namespace tpu::driver {

constexpr int kTracks = 3;

class Allocation;

struct MemoryUse {
  uint64_t used = 0;
  uint64_t peak = 0;
  uint64_t largest_free = 0;
  uint64_t ranges = 0;
  uint64_t ranges_ever = 0;
  uint64_t largest_ever = 0;
};

class DeviceMemory {
 public:
  DeviceMemory(int device, uint64_t bytes);

  int device() const { return device_; }
  uint64_t used() { return use().used; }
  MemoryUse use();
  uint64_t capacity() const { return capacity_; }

  /// The page that holds this address is bad: nobody gets it any more. The label of what holds the
  /// address now, or nothing. False: it has been retired before.
  bool retire(uint64_t address, std::string& label);
  uint64_t retired();

  /// What has been, without the ranges.
  void visit_state(spec::Archive& archive);

  /// "largest live buffers": one line for each of the `count` biggest.
  std::string largest(size_t count);

 private:
  friend class Allocation;

  const int device_;
  const uint64_t capacity_;
  base::Mutex mutex_;  // leaf lock
  RangeAllocator ranges_ TPU_GUARDED_BY(mutex_);
  std::set<Allocation*> live_ TPU_GUARDED_BY(mutex_);
};

class Allocation {
 public:
  /// Null when there is no room. `label` is for people.
  static std::shared_ptr<Allocation> make(const std::shared_ptr<DeviceMemory>& memory,
                                          uint64_t bytes, std::string label);
  /// At this address, as it was made once; null when something is there.
  static std::shared_ptr<Allocation> make_at(const std::shared_ptr<DeviceMemory>& memory,
                                             uint64_t address, uint64_t bytes, std::string label);
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  int device() const { return memory_->device(); }
  uint64_t address() const { return address_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t capacity() const { return RangeAllocator::rounded(bytes_); }
  const std::string& label() const { return label_; }

  // Track counts that must be reached before the range may be written (after readers and writers)
  // or read (after writers). `set` says which are meaningful.
  struct TrackPoints {
    std::array<uint32_t, kTracks> count{};
    std::array<bool, kTracks> set{};
    uint32_t reset = 0;  // Tracks::resets() that the counts belong to; older ones are met
  };
  TrackPoints writers TPU_GUARDED_BY(board_lock);
  TrackPoints readers TPU_GUARDED_BY(board_lock);

 private:
  Allocation(std::shared_ptr<DeviceMemory> memory, uint64_t bytes, std::string label);

  std::shared_ptr<DeviceMemory> memory_;
  uint64_t address_ = 0;
  uint64_t bytes_;
  std::string label_;
};

}  // namespace tpu::driver
