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
  return address;
}

void RangeAllocator::give(int64_t address) {
  const auto it = taken_.find(address);
  int64_t bytes = it->second;
  taken_.erase(it);
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

}  // namespace tpu::compiler
