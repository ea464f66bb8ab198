#include "plan/range_allocator.hpp"

#include <algorithm>

namespace tpu::compiler {

RangeAllocator::RangeAllocator(int64_t size) { free_[0] = size; }

std::optional<int64_t> RangeAllocator::take(int64_t bytes) {
  bytes = std::max(round_up(bytes, kAlign), kAlign);
  const auto fits = [&](const auto& hole) { return hole.second >= bytes; };
  auto it = std::find_if(free_.lower_bound(cursor_), free_.end(), fits);
  if (it == free_.end()) {
    it = std::find_if(free_.begin(), free_.end(), fits);
  }
  if (it == free_.end()) {
    return std::nullopt;
  }
  const auto [address, size] = *it;
  free_.erase(it);
  if (size > bytes) {
    free_[address + bytes] = size - bytes;
  }
  taken_[address] = bytes;
  cursor_ = address + bytes;
  peak_end_ = std::max(peak_end_, cursor_);
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
