// Pages of past accesses, see access_history.hpp.
#include "codegen/access_history.hpp"

#include <algorithm>

namespace tpu::compiler {
namespace {

// A tile is some hundred KiB in HBM and VMEM: few pages each, few tiles a page.
constexpr int64_t kPageBytes = 64 * 1024;
constexpr int64_t kMaxPages = 64;

int64_t page_of(int64_t address) {
  return address >= 0 ? address / kPageBytes : -((-address + kPageBytes - 1) / kPageBytes);
}

bool is_wide(const MemRange& range) {
  return range.hi <= range.lo || page_of(range.hi - 1) - page_of(range.lo) >= kMaxPages;
}

// Every byte of `inner` is in `outer`.
bool covers(const MemRange& outer, const MemRange& inner) {
  if (inner.lo < outer.lo || inner.hi > outer.hi) {
    return false;
  }
  if (outer.pitch == 0) {
    return true;
  }
  return inner.pitch == outer.pitch &&
         (inner.lo - outer.lo) % outer.pitch + inner.width <= outer.width;
}

}  // namespace

// Entries whose pages meet those of `range`; an entry of several pages may come several times.
template <typename F>
void AccessHistory::for_each_near(const MemRange& range, F f) const {
  for (const uint32_t index : wide_) {
    f(index);
  }
  if (is_wide(range)) {
    for (uint32_t index = 0; index < entries_.size(); ++index) {
      f(index);
    }
    return;
  }
  for (int64_t page = page_of(range.lo); page <= page_of(range.hi - 1); ++page) {
    const auto found = pages_.find(page);
    if (found != pages_.end()) {
      for (const uint32_t index : found->second) {
        f(index);
      }
    }
  }
}

void AccessHistory::conflicts(const MemRange& range, std::vector<int>& out) const {
  for_each_near(range, [&](uint32_t index) {
    const Entry& e = entries_[index];
    if (e.live && (e.range.write || range.write) && ranges_overlap(e.range, range)) {
      out.push_back(e.item);
    }
  });
}

void AccessHistory::forget_covered(const MemRange& range, size_t queue) {
  const size_t free_before = free_.size();
  for_each_near(range, [&](uint32_t index) {
    Entry& e = entries_[index];
    const bool needless = range.write || (!e.range.write && e.queue == queue);
    if (e.live && needless && covers(range, e.range)) {
      e.live = false;
      free_.push_back(index);
    }
  });
  if (free_.size() == free_before) {
    return;
  }
  // All pages of a covered entry are pages of `range`.
  const auto dead = [&](uint32_t index) { return !entries_[index].live; };
  std::erase_if(wide_, dead);
  if (is_wide(range)) {
    for (auto& [page, indices] : pages_) {
      std::erase_if(indices, dead);
    }
    return;
  }
  for (int64_t page = page_of(range.lo); page <= page_of(range.hi - 1); ++page) {
    const auto found = pages_.find(page);
    if (found != pages_.end()) {
      std::erase_if(found->second, dead);
    }
  }
}

void AccessHistory::add(const MemRange& range, int item, size_t queue) {
  forget_covered(range, queue);
  auto index = static_cast<uint32_t>(entries_.size());
  if (free_.empty()) {
    entries_.push_back({range, item, queue, true});
  } else {
    index = free_.back();
    free_.pop_back();
    entries_[index] = {range, item, queue, true};
  }
  if (is_wide(range)) {
    wide_.push_back(index);
    return;
  }
  for (int64_t page = page_of(range.lo); page <= page_of(range.hi - 1); ++page) {
    pages_[page].push_back(index);
  }
}

}  // namespace tpu::compiler
