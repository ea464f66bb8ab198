#include "plan/range_allocator.hpp"

#include <algorithm>

namespace tpu::compiler {

namespace {

constexpr int64_t kFrontShare = 8, kSmallShare = 256;  // of all bytes
constexpr int64_t kBlock = 4096;                       // a vector block of 8 x 128 words

// None in a memory so small that no block is small in it: it should not be cut up.
int64_t front_of(int64_t size) {
  return size / kSmallShare < kBlock ? 0 : size / kFrontShare / kAlign * kAlign;
}

}  // namespace

RangeAllocator::RangeAllocator(int64_t size, bool apart)
    : size_(size), front_(apart ? front_of(size) : 0), cursor_(front_) {
  free_[0] = size;
}

int64_t& RangeAllocator::cursor_of(int64_t bytes) {
  return front_ > 0 && bytes <= size_ / kSmallShare ? small_cursor_ : cursor_;
}

std::optional<int64_t> RangeAllocator::find(int64_t bytes, int64_t from, int64_t to) const {
  auto it = free_.upper_bound(from);
  if (it != free_.begin()) {
    --it;
  }
  for (; it != free_.end() && it->first < to; ++it) {
    const int64_t start = std::max(it->first, from);
    if (start + bytes <= std::min(it->first + it->second, to)) {
      return start;
    }
  }
  return std::nullopt;
}

std::optional<int64_t> RangeAllocator::find(int64_t bytes) const {
  if (front_ == 0) {
    const auto fits = [&](const auto& hole) { return hole.second >= bytes; };
    const auto hole = std::find_if(free_.lower_bound(cursor_), free_.end(), fits);
    return hole != free_.end() ? std::optional(hole->first) : find(bytes, 0, size_);
  }
  const bool small = bytes <= size_ / kSmallShare;
  const int64_t from = small ? 0 : front_, to = small ? front_ : size_;
  auto found = find(bytes, small ? small_cursor_ : cursor_, to);
  if (!found) {
    found = find(bytes, from, to);
  }
  return found ? found : find(bytes, 0, size_);
}

std::optional<int64_t> RangeAllocator::take(int64_t bytes) {
  bytes = std::max(round_up(bytes, kAlign), kAlign);
  const std::optional<int64_t> found = find(bytes);
  if (!found) {
    return std::nullopt;
  }
  const int64_t address = *found;
  const auto hole = std::prev(free_.upper_bound(address));
  const int64_t start = hole->first, end = start + hole->second;
  free_.erase(hole);
  if (start < address) {
    free_[start] = address - start;
  }
  if (address + bytes < end) {
    free_[address + bytes] = end - address - bytes;
  }
  taken_[address] = bytes;
  cursor_of(bytes) = address + bytes;
  peak_end_ = std::max(peak_end_, address + bytes);
  note({address, bytes, true});
  return address;
}

void RangeAllocator::give(int64_t address) {
  const auto it = taken_.find(address);
  const int64_t bytes = it->second;
  taken_.erase(it);
  release(address, bytes);
  note({address, bytes, false});
}

// Joins the holes beside the range.
void RangeAllocator::release(int64_t address, int64_t bytes) {
  auto next = free_.lower_bound(address);
  if (next != free_.end() && next->first == address + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto prev = std::prev(next);
    if (prev->first + prev->second == address) {
      prev->second += bytes;
      return;
    }
  }
  free_[address] = bytes;
}

void RangeAllocator::note(const Change& change) {
  if (marks_ > 0) {
    changes_.push_back(change);
  }
}

RangeAllocator::Mark RangeAllocator::mark() {
  ++marks_;
  return {changes_.size(), peak_end_};
}

void RangeAllocator::keep(const Mark&) {
  if (--marks_ == 0) {
    changes_.clear();
  }
}

void RangeAllocator::undo(const Mark& mark) {
  for (; changes_.size() > mark.changes; changes_.pop_back()) {
    const Change& c = changes_.back();
    if (c.taken) {
      taken_.erase(c.address);
      release(c.address, c.bytes);
      continue;
    }
    const auto hole = std::prev(free_.upper_bound(c.address));
    const auto [start, size] = *hole;
    free_.erase(hole);
    if (start < c.address) {
      free_[start] = c.address - start;
    }
    if (c.address + c.bytes < start + size) {
      free_[c.address + c.bytes] = start + size - c.address - c.bytes;
    }
    taken_[c.address] = c.bytes;
  }
  peak_end_ = mark.peak_end;
  keep(mark);
}

}  // namespace tpu::compiler
