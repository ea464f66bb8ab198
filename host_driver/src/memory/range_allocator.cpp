// Best fit with coalescing. Holes are kept twice: by address for joining, by size for the search.
#include "src/memory/range_allocator.hpp"

#include <algorithm>
#include <iterator>

namespace tpu::driver {
namespace {

uint64_t align_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

}  // namespace

RangeAllocator::RangeAllocator(uint64_t base, uint64_t size) : base_(base), capacity_(size) {
  if (size > 0) {
    add_hole(base, size);
  }
}

uint64_t RangeAllocator::rounded(uint64_t bytes) {
  return align_up(std::max<uint64_t>(bytes, 1), bytes >= kPage ? kPage : kAlign);
}

void RangeAllocator::add_hole(uint64_t address, uint64_t size) {
  holes_.emplace(address, size);
  by_size_.emplace(size, address);
}

void RangeAllocator::remove_hole(std::map<uint64_t, uint64_t>::iterator hole) {
  by_size_.erase({hole->second, hole->first});
  holes_.erase(hole);
}

std::optional<uint64_t> RangeAllocator::allocate(uint64_t bytes) {
  if (bytes > capacity_) {
    return std::nullopt;
  }
  const uint64_t need = rounded(bytes);
  const uint64_t alignment = bytes >= kPage ? kPage : kAlign;
  // The smallest hole first; one that is only big enough before alignment is passed over.
  for (auto it = by_size_.lower_bound({need, 0}); it != by_size_.end(); ++it) {
    const auto [size, hole] = *it;
    const uint64_t start = align_up(hole, alignment);
    if (start - hole > size - need) {
      continue;
    }
    cut(holes_.find(hole), start, need);
    return start;
  }
  return std::nullopt;
}

bool RangeAllocator::take(uint64_t address, uint64_t bytes) {
  const uint64_t need = rounded(bytes);
  const auto behind = holes_.upper_bound(address);
  if (behind == holes_.begin() || bytes > capacity_) {
    return false;
  }
  const auto hole = std::prev(behind);
  if (address - hole->first > hole->second || need > hole->second - (address - hole->first)) {
    return false;
  }
  cut(hole, address, need);
  return true;
}

// What is left of the hole keeps its nodes: memory is asked for where two holes are left of one.
void RangeAllocator::cut(std::map<uint64_t, uint64_t>::iterator hole, uint64_t start,
                         uint64_t need) {
  const auto [address, size] = *hole;
  const uint64_t before = start - address;
  const uint64_t rest = size - before - need;
  if (before > 0) {
    resize_hole(hole, address, before);
    if (rest > 0) {
      add_hole(start + need, rest);
    }
  } else if (rest > 0) {
    resize_hole(hole, start + need, rest);
  } else {
    remove_hole(hole);
  }
  taken_.emplace(start, need);
  used_ += need;
  peak_ = std::max(peak_, used_);
  ++ever_;
  largest_ever_ = std::max(largest_ever_, need);
}

void RangeAllocator::resize_hole(std::map<uint64_t, uint64_t>::iterator hole, uint64_t address,
                                 uint64_t size) {
  auto by_size = by_size_.extract({hole->second, hole->first});
  by_size.value() = {size, address};
  by_size_.insert(std::move(by_size));
  auto by_address = holes_.extract(hole);
  by_address.key() = address;
  by_address.mapped() = size;
  holes_.insert(std::move(by_address));
}

bool RangeAllocator::retire(uint64_t address) {
  const uint64_t page = address / kPage * kPage;
  if (page < base_ || page - base_ >= capacity_ || !retired_.insert(page).second) {
    return false;
  }
  take_retired(page);
  return true;
}

// Takes what is free of a page: ranges of less than a page may share it, and come here when they
// are given back.
void RangeAllocator::take_retired(uint64_t page) {
  auto hole = holes_.upper_bound(page);
  if (hole != holes_.begin() && std::prev(hole)->first + std::prev(hole)->second > page) {
    --hole;
  }
  while (hole != holes_.end() && hole->first < page + kPage) {
    const uint64_t first = std::max(hole->first, page);
    const uint64_t end = std::min(hole->first + hole->second, page + kPage);
    cut(hole, first, end - first);
    hole = holes_.lower_bound(end);
  }
}

void RangeAllocator::free(uint64_t address) {
  const auto taken = taken_.find(address);
  if (taken == taken_.end()) {
    return;
  }
  const uint64_t size = taken->second;
  used_ -= size;
  taken_.erase(taken);
  join_hole(address, size);
  for (auto page = retired_.lower_bound(address / kPage * kPage);
       page != retired_.end() && *page < address + size; ++page) {
    take_retired(*page);
  }
}

void RangeAllocator::join_hole(uint64_t start, uint64_t size) {
  const auto next = holes_.lower_bound(start);
  const bool joins_next = next != holes_.end() && next->first == start + size;
  size += joins_next ? next->second : 0;
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == start) {
      if (joins_next) {
        remove_hole(next);
      }
      resize_hole(before, before->first, before->second + size);
      return;
    }
  }
  if (joins_next) {
    resize_hole(next, start, size);
  } else {
    add_hole(start, size);
  }
}

// From a page on, sizes are whole pages at the start of one.
uint64_t RangeAllocator::largest_fit() const {
  uint64_t largest = 0;
  for (const auto& [address, size] : holes_) {
    const uint64_t before_page = align_up(address, kPage) - address;
    const uint64_t pages = size < before_page ? 0 : (size - before_page) / kPage * kPage;
    largest = std::max(largest, pages > 0 ? pages : std::min(size, kPage - kAlign));
  }
  return largest;
}

uint64_t RangeAllocator::largest_hole() const {
  return by_size_.empty() ? 0 : by_size_.rbegin()->first;
}

}  // namespace tpu::driver
