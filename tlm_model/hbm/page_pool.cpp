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
  sides_.push_back(-1);
  return static_cast<uint32_t>(first);
}

HbmPage* PagePool::make(bool zeroed, const Wish& wish) {
  const size_t index = place(wish);
  const uint64_t bit = uint64_t{1} << (index % 64);
  HbmPage* const page = &pages_[index];
  if (fresh_[index / 64] == ~uint64_t{0}) {  // the first of these 64
    open_host_pages(pages_[index / 64 * 64].data, 64 * kHbmPageBytes + kGuardBytes);
  }
  if ((fresh_[index / 64] & bit) != 0) {
    fresh_[index / 64] &= ~bit;
    ++touched_;
  } else {
    waiting_ -= side_of(page) >= 0 ? 1 : 0;
    if (zeroed) {
      std::memset(page->data, 0, kHbmPageBytes);
    }
  }
  free_[index / 64] &= ~bit;
  page->owners = 1;
  ++in_use_;
  return page;
}

// Of the next page to be made. Fresh ones only while few are free that were touched, a tenth of
// all.
size_t PagePool::place(const Wish& wish) {
  if (wish.shared != nullptr) {
    if (const std::optional<size_t> found = shared_place(wish)) {
      return *found;
    }
  }
  const bool may_grow = (touched_ - in_use_ - waiting_) * 10 <= touched_;
  const auto usable = [&](size_t index) {
    return is_free(index) && (may_grow || (fresh_[index / 64] >> (index % 64) & 1) == 0);
  };
  if (wish.after != nullptr && (wish.after->index + 1) % kBlockPages != 0 &&
      usable(wish.after->index + 1)) {
    return wish.after->index + size_t{1};
  }
  if (wish.home != kNoHome && usable(wish.home)) {
    return wish.home;
  }
  for (uint64_t wanted = std::bit_floor(std::clamp<uint64_t>(wish.run, 1, 32)); wanted != 0;
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

// On the side of the page before it, which a store has just written too as a rule; else on the
// other side than what it replaces.
std::optional<size_t> PagePool::shared_place(const Wish& wish) {
  if (shared_.size() <= wish.range) {
    shared_.resize(wish.range + 1, {kNoHome, kNoHome});
  }
  std::array<uint32_t, 2>& blocks = shared_[wish.range];
  if (blocks[0] == kNoHome) {
    blocks = {reserve_block(), reserve_block()};
    for (size_t side = 0; side < blocks.size(); ++side) {
      sides_[blocks[side] / kBlockPages] = static_cast<int8_t>(side);
    }
  }
  const int near = side_of(wish.newest);
  const size_t first = near >= 0 ? static_cast<size_t>(near) : side_of(wish.shared) == 0 ? 1 : 0;
  for (const size_t side : {first, 1 - first}) {
    if (is_free(blocks[side] + wish.offset)) {
      return blocks[side] + wish.offset;
    }
  }
  return std::nullopt;
}

int PagePool::side_of(const HbmPage* page) const {
  return page != nullptr ? sides_[page->index / kBlockPages] : -1;
}

// The first of `run` (a power of two) free pages inside of 64 that were used before.
std::optional<size_t> PagePool::used_run(uint64_t run) const {
  for (size_t word = 0; word < free_.size(); ++word) {
    if (sides_[word * 64 / kBlockPages] >= 0) {
      continue;  // what lies there would be in the way next time
    }
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
    page->to_come = nullptr;
    free_[page->index / 64] |= uint64_t{1} << (page->index % 64);
    --in_use_;
    waiting_ += side_of(page) >= 0 ? 1 : 0;
  }
}

}  // namespace tpu::model
