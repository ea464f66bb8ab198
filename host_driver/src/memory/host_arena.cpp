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

uint64_t whole_pages(uint64_t bytes) { return (bytes + kRingAlign - 1) / kRingAlign * kRingAlign; }

}  // namespace

HostArena::Mapping HostArena::make_mapping(uint64_t bytes,
                                           std::optional<base::SharedMemory>* shared) {
  if (shared == nullptr) {
    return {map_memory(bytes), bytes};
  }
  shared->emplace(base::SharedMemory::create(whole_pages(bytes)));
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
  ring_used_ += whole_pages(bytes);
  if (ring_used_ > rings_.bytes) {
    throw Error(ErrorCode::kInternal, "the ring arena is too small");
  }
  return kRingBase + start;
}

void HostArena::set_watcher(ArenaWatcher* watcher) {
  const base::MutexLock guard(mutex_);
  if (watcher == nullptr) {
    watcher_ = nullptr;
    return;
  }
  const auto tell = [&](uint64_t iova, const Mapping& map,
                        const std::optional<base::SharedMemory>& shared) {
    watcher->added({iova, map.bytes, shared ? shared->file() : -1},
                   {map.data, whole_pages(map.bytes)});
  };
  tell(kRingBase, rings_, shared_rings_);
  tell(kStagingBase, staging_, shared_staging_);
  watcher_ = watcher;  // not one that has thrown
}

void HostArena::add_single(uint64_t iova, uint64_t bytes) {
  if (watcher_ == nullptr) {
    singles_.emplace(iova, Mapping{map_memory(bytes), bytes});
    return;
  }
  const uint64_t pages = whole_pages(bytes);
  if (shared_rings_) {
    auto shared = base::SharedMemory::create(pages);
    watcher_->added({iova, bytes, shared.file()}, shared.bytes());
    shared.close_file();  // the mappings last without it
    singles_.emplace(iova, Mapping{shared.bytes().data(), bytes});
    shared_singles_.emplace(iova, std::move(shared));
    return;
  }
  const Mapping map{map_memory(bytes), bytes};
  try {
    watcher_->added({iova, bytes, -1}, {map.data, pages});
  } catch (...) {
    munmap(map.data, map.bytes);
    throw;
  }
  singles_.emplace(iova, map);
}

void HostArena::remove_single(uint64_t iova) {
  const base::MutexLock guard(mutex_);
  const auto found = singles_.find(iova);
  if (watcher_ != nullptr) {
    watcher_->removed(iova, whole_pages(found->second.bytes));
  }
  if (shared_singles_.erase(iova) == 0) {
    munmap(found->second.data, found->second.bytes);
  }
  singles_.erase(found);
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
  const base::MutexLock guard(arena->mutex_);
  const uint64_t iova = arena->next_single_;
  arena->add_single(iova, bytes);
  // One page stays free between two ranges: what runs over the end of one is refused.
  arena->next_single_ += (bytes / kRingAlign + 2) * kRingAlign;
  range->iova_ = iova;
  range->single_ = true;
  range->bytes_ = {arena->singles_.at(iova).data, bytes};
  return range;
}

StagingRange::~StagingRange() {
  if (single_) {
    arena_->remove_single(iova_);
    return;
  }
  const base::MutexLock guard(arena_->mutex_);
  if (iova_ != 0) {
    arena_->allocator_.free(iova_);
  }
}

}  // namespace tpu::driver
