// Page pool on anonymous memory maps.
#include "hbm/page_pool.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernel/host_pages.hpp"

namespace tpu::model {

PagePool::PagePool() : zero_page_(map_host_pages(kHbmPageBytes)) {}

PagePool::~PagePool() {
  unmap_host_pages(zero_page_, kHbmPageBytes);
  for (void* block : blocks_) {
    unmap_host_pages(block, kBlockPages * kHbmPageBytes + kGuardBytes);
  }
}

uint32_t PagePool::reserve_block() {
  uint8_t* const block = map_host_pages(kBlockPages * kHbmPageBytes + kGuardBytes, PROT_NONE);
  blocks_.push_back(block);
  const size_t first = pages_.size();
  for (size_t i = 0; i < kBlockPages; ++i) {
    pages_.push_back(
        HbmPage{.data = block + i * kHbmPageBytes, .index = static_cast<uint32_t>(first + i)});
  }
  free_.resize(pages_.size() / 64, ~uint64_t{0});
  fresh_.resize(pages_.size() / 64, ~uint64_t{0});
  return static_cast<uint32_t>(first);
}

HbmPage* PagePool::make(bool zeroed, uint32_t home, const HbmPage* after, uint64_t run) {
  const size_t index = place(home, after, run);
  const uint64_t bit = uint64_t{1} << (index % 64);
  HbmPage* const page = &pages_[index];
  if (fresh_[index / 64] == ~uint64_t{0}) {  // the first of these 64
    open_host_pages(pages_[index / 64 * 64].data, 64 * kHbmPageBytes + kGuardBytes);
  }
  if ((fresh_[index / 64] & bit) != 0) {
    fresh_[index / 64] &= ~bit;
    ++touched_;
  } else if (zeroed) {
    std::memset(page->data, 0, kHbmPageBytes);
  }
  free_[index / 64] &= ~bit;
  page->owners = 1;
  ++in_use_;
  return page;
}

// Of the next page to be made. Fresh ones only while few are free that were touched, a tenth of
// all.
size_t PagePool::place(uint32_t home, const HbmPage* after, uint64_t run) {
  const bool may_grow = (touched_ - in_use_) * 10 <= touched_;
  const auto usable = [&](size_t index) {
    return is_free(index) && (may_grow || (fresh_[index / 64] >> (index % 64) & 1) == 0);
  };
  if (after != nullptr && (after->index + 1) % kBlockPages != 0 && usable(after->index + 1)) {
    return after->index + size_t{1};
  }
  if (home != kNoHome && usable(home)) {
    return home;
  }
  for (uint64_t wanted = std::bit_floor(std::clamp<uint64_t>(run, 1, 32)); wanted != 0;
       wanted /= 2) {
    if (const std::optional<size_t> found = used_run(wanted)) {
      return *found;
    }
  }
  while (spare_ != spare_end_ && !is_free(spare_)) {
    ++spare_;
  }
  if (spare_ == spare_end_) {
    spare_ = reserve_block();
    spare_end_ = spare_ + kBlockPages;
  }
  return spare_;
}

// The first of `run` (a power of two) free pages inside of 64 that were used before.
std::optional<size_t> PagePool::used_run(uint64_t run) const {
  for (size_t word = 0; word < free_.size(); ++word) {
    uint64_t starts = free_[word] & ~fresh_[word];
    for (uint64_t have = 1; have < run && starts != 0; have *= 2) {
      starts &= starts >> have;
    }
    if (starts != 0) {
      return word * 64 + static_cast<size_t>(std::countr_zero(starts));
    }
  }
  return std::nullopt;
}

void PagePool::drop_owner(HbmPage* page) {
  --page->owners;
  page->left = page->read_pins != 0 || page->write_pins != 0;
  release_if_unused(page);
}

void PagePool::unpin(HbmPage* page, bool write) {
  --(write ? page->write_pins : page->read_pins);
  page->left = page->left && (page->read_pins != 0 || page->write_pins != 0);
  release_if_unused(page);
}

void PagePool::drop_hold(HbmPage* page) {
  --page->holds;
  release_if_unused(page);
}

void PagePool::release_if_unused(HbmPage* page) {
  if (page->owners == 0 && page->read_pins == 0 && page->write_pins == 0 && page->holds == 0) {
    page->left = false;
    free_[page->index / 64] |= uint64_t{1} << (page->index % 64);
    --in_use_;
  }
}

}  // namespace tpu::model
