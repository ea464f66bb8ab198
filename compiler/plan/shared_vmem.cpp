#include "plan/shared_vmem.hpp"

#include <algorithm>

namespace tpu::compiler {

void SharedVmem::add(int64_t address, int64_t allocation) {
  allocation_[address] = allocation;
  note({address, allocation, true});
}

std::optional<int64_t> SharedVmem::give(int64_t address) {
  const auto it = allocation_.find(address);
  if (it == allocation_.end()) {
    return address;
  }
  const int64_t allocation = it->second;
  note({address, allocation, false});
  allocation_.erase(it);
  const bool last = std::none_of(allocation_.begin(), allocation_.end(),
                                 [&](const auto& other) { return other.second == allocation; });
  return last ? std::optional(allocation) : std::nullopt;
}

void SharedVmem::note(const Change& change) {
  if (marks_ > 0) {
    changes_.push_back(change);
  }
}

size_t SharedVmem::mark() {
  ++marks_;
  return changes_.size();
}

void SharedVmem::undo(size_t mark) {
  for (; changes_.size() > mark; changes_.pop_back()) {
    const Change& c = changes_.back();
    if (c.added) {
      allocation_.erase(c.address);
    } else {
      allocation_[c.address] = c.allocation;
    }
  }
  keep();
}

void SharedVmem::keep() {
  if (--marks_ == 0) {
    changes_.clear();
  }
}

}  // namespace tpu::compiler
