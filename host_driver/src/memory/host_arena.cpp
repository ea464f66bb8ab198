// Arenas are anonymous mappings: untouched pages cost nothing.
#include "src/memory/host_arena.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

constexpr uint64_t kRingAlign = 4096;

std::byte* map_memory(uint64_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("cannot map {} bytes of host memory for the board: {}", bytes,
                            std::strerror(errno)));
  }
  return static_cast<std::byte*>(data);
}

}  // namespace

HostArena::Mapping HostArena::make_mapping(uint64_t bytes,
                                           std::optional<base::SharedMemory>* shared) {
  if (shared == nullptr) {
    return {map_memory(bytes), bytes};
  }
  shared->emplace(base::SharedMemory::create(bytes));
  return {(*shared)->bytes().data(), bytes};
}

HostArena::HostArena(uint64_t ring_bytes, uint64_t staging_bytes, bool shared)
    : rings_(make_mapping(ring_bytes, shared ? &shared_rings_ : nullptr)),
      allocator_(kStagingBase, staging_bytes) {
  try {
    staging_ = make_mapping(staging_bytes, shared ? &shared_staging_ : nullptr);
  } catch (...) {
    if (!shared_rings_) {
      munmap(rings_.data, rings_.bytes);
    }
    throw;
  }
}

HostArena::~HostArena() {
  if (!shared_rings_) {
    munmap(rings_.data, rings_.bytes);
    munmap(staging_.data, staging_.bytes);
  }
}

std::vector<SharedRange> HostArena::shared_ranges() const {
  if (!shared_rings_) {
    return {};
  }
  return {{kRingBase, rings_.bytes, shared_rings_->file()},
          {kStagingBase, staging_.bytes, shared_staging_->file()}};
}

std::span<std::byte> HostArena::span(uint64_t iova, uint64_t bytes, bool /*write*/) {
  const auto inside = [&](uint64_t base, const Mapping& map) -> std::span<std::byte> {
    if (iova < base || iova - base > map.bytes || bytes > map.bytes - (iova - base)) {
      return {};
    }
    return {map.data + (iova - base), bytes};
  };
  if (iova >= kSingleBase) {
    const base::MutexLock guard(mutex_);
    const auto behind = singles_.upper_bound(iova);
    if (behind == singles_.begin()) {
      return {};
    }
    const auto& [base, map] = *std::prev(behind);
    return inside(base, map);
  }
  const std::span<std::byte> staged = inside(kStagingBase, staging_);
  return staged.data() != nullptr ? staged : inside(kRingBase, rings_);
}

uint64_t HostArena::take_ring(uint64_t bytes) {
  const uint64_t start = ring_used_;
  ring_used_ += (bytes + kRingAlign - 1) / kRingAlign * kRingAlign;
  if (ring_used_ > rings_.bytes) {
    throw Error(ErrorCode::kInternal, "the ring arena is too small");
  }
  return kRingBase + start;
}

std::shared_ptr<StagingRange> StagingRange::make(const std::shared_ptr<HostArena>& arena,
                                                 uint64_t bytes) {
  const std::shared_ptr<StagingRange> range(new StagingRange(arena));
  const base::MutexLock guard(arena->mutex_);
  const auto iova = arena->allocator_.allocate(bytes);
  if (!iova) {
    return nullptr;
  }
  range->iova_ = *iova;
  range->bytes_ = {arena->staging_.data + (*iova - HostArena::kStagingBase), bytes};
  return range;
}

std::shared_ptr<StagingRange> StagingRange::make_single(const std::shared_ptr<HostArena>& arena,
                                                        uint64_t bytes) {
  const std::shared_ptr<StagingRange> range(new StagingRange(arena));
  const HostArena::Mapping map{map_memory(bytes), bytes};
  range->bytes_ = {map.data, bytes};
  range->single_ = true;
  const base::MutexLock guard(arena->mutex_);
  range->iova_ = arena->next_single_;
  // One page stays free between two ranges: what runs over the end of one is refused.
  arena->next_single_ += (bytes / kRingAlign + 2) * kRingAlign;
  arena->singles_.emplace(range->iova_, map);
  return range;
}

StagingRange::~StagingRange() {
  const base::MutexLock guard(arena_->mutex_);
  if (single_) {
    arena_->singles_.erase(iova_);
    munmap(bytes_.data(), bytes_.size());
  } else if (iova_ != 0) {
    arena_->allocator_.free(iova_);
  }
}

}  // namespace tpu::driver
