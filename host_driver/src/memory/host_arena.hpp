// Host memory that the board may touch: one arena for the rings, one for staging, and single ranges
// for what must lie together and finds no room there. Addresses that the board uses (iova) are
// offsets in these registered ranges; anything else is refused, which the board sees as a master
// abort.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "socket/shared_memory.hpp"
#include "src/memory/range_allocator.hpp"
#include "src/memory/shared_range.hpp"
#include "sync/mutex.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {

/// Is told of memory that comes and goes, so that it can be mapped elsewhere.
class ArenaWatcher {
 public:
  virtual ~ArenaWatcher() = default;
  /// `memory`: whole pages, of which the range may have less. Its file is -1 where the arena is not
  /// shared. May throw: the memory is not there then.
  virtual void added(const SharedRange& range, std::span<std::byte> memory) = 0;
  virtual void removed(uint64_t iova, uint64_t bytes) noexcept = 0;
};

class HostArena : public HostMemory {
 public:
  static constexpr uint64_t kRingBase = 0x10000;
  static constexpr uint64_t kStagingBase = uint64_t{1} << 32;
  static constexpr uint64_t kMaxStagingBytes = uint64_t{1} << 40;
  static constexpr uint64_t kSingleBase = uint64_t{1} << 44;

  /// `shared`: rings and staging are files without names, which another process can map.
  HostArena(uint64_t ring_bytes, uint64_t staging_bytes, bool shared = false);
  ~HostArena() override;
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  std::span<std::byte> span(uint64_t iova, uint64_t bytes, bool write) override;

  /// Ring memory is never given back. Zeroed, 4 KiB aligned. Returns the iova.
  uint64_t take_ring(uint64_t bytes);

  /// Rings and staging of a shared arena: where they are, and their files.
  std::vector<SharedRange> shared_ranges() const;

  /// Told of the memory that there is, and of single ranges from here on; null: nobody. Throws what
  /// the watcher throws.
  void set_watcher(ArenaWatcher* watcher);

  /// Size of the staging arena.
  uint64_t staging_bytes() const { return staging_.bytes; }

 private:
  friend class StagingRange;
  struct Mapping {
    std::byte* data = nullptr;
    uint64_t bytes = 0;
  };

  void add_single(uint64_t iova, uint64_t bytes) TPU_REQUIRES(mutex_);
  void remove_single(uint64_t iova);
  static Mapping make_mapping(uint64_t bytes, std::optional<base::SharedMemory>* shared);

  std::optional<base::SharedMemory> shared_rings_, shared_staging_;
  Mapping rings_;
  Mapping staging_;
  uint64_t ring_used_ = 0;
  base::Mutex mutex_;  // leaf lock
  RangeAllocator allocator_ TPU_GUARDED_BY(mutex_);
  std::map<uint64_t, Mapping> singles_ TPU_GUARDED_BY(mutex_);                    // by iova
  std::map<uint64_t, base::SharedMemory> shared_singles_ TPU_GUARDED_BY(mutex_);  // the same
  ArenaWatcher* watcher_ TPU_GUARDED_BY(mutex_) = nullptr;
  uint64_t next_single_ TPU_GUARDED_BY(mutex_) = kSingleBase;
};

/// A piece of staging memory; gives itself back. May be destroyed under any lock.
class StagingRange {
 public:
  /// Null when the arena is full.
  static std::shared_ptr<StagingRange> make(const std::shared_ptr<HostArena>& arena,
                                            uint64_t bytes);
  /// A range of its own beside the arena. Throws ResourceExhausted when the host has no room.
  static std::shared_ptr<StagingRange> make_single(const std::shared_ptr<HostArena>& arena,
                                                   uint64_t bytes);
  ~StagingRange();
  StagingRange(const StagingRange&) = delete;
  StagingRange& operator=(const StagingRange&) = delete;

  uint64_t iova() const { return iova_; }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit StagingRange(std::shared_ptr<HostArena> arena) : arena_(std::move(arena)) {}

  std::shared_ptr<HostArena> arena_;
  uint64_t iova_ = 0;  // 0: nothing to give back
  std::span<std::byte> bytes_;
  bool single_ = false;
};

}  // namespace tpu::driver
