// Pages of past accesses, see access_history.hpp.
#include "program/access_history.hpp"

#include <algorithm>

namespace tpu::compiler {
namespace {

// A tile is some hundred KiB in HBM and VMEM: few small pages each, few tiles a page. Windows of
// convolutions and whole buffers reach over megabytes.
constexpr int64_t kSmallPage = int64_t{64} << 10, kLargePage = int64_t{16} << 20;
constexpr int64_t kMostPages = 64;

struct PageSpan {
  int64_t first = 0, last = -1;
};

PageSpan pages_of(const MemRange& range, int64_t bytes) {
  const auto page = [bytes](int64_t address) {
    return address >= 0 ? address / bytes : -((-address + bytes - 1) / bytes);
  };
  return {page(range.lo), page(range.hi - 1)};
}

bool few(const MemRange& range, int64_t bytes) {
  const PageSpan span = pages_of(range, bytes);
  return range.hi > range.lo && span.last - span.first < kMostPages;
}

size_t index_of(int64_t page) { return static_cast<size_t>(page < 0 ? -(page + 1) : page); }

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

std::vector<uint32_t>& AccessHistory::Pages::at(int64_t page) {
  std::vector<std::vector<uint32_t>>& lists = page < 0 ? below_ : lists_;
  const size_t index = index_of(page);
  if (index >= lists.size()) {
    lists.resize(index + 1);
  }
  return lists[index];
}

const std::vector<uint32_t>* AccessHistory::Pages::find(int64_t page) const {
  const std::vector<std::vector<uint32_t>>& lists = page < 0 ? below_ : lists_;
  const size_t index = index_of(page);
  return index < lists.size() ? &lists[index] : nullptr;
}

// Entries whose pages meet those of `range`; an entry of several pages may come several times.
template <typename F>
void AccessHistory::for_each_near(const MemRange& range, F f) const {
  const auto visit = [&](const Pages& pages, int64_t bytes) {
    const PageSpan span = pages_of(range, bytes);
    for (int64_t page = span.first; page <= span.last; ++page) {
      if (const std::vector<uint32_t>* found = pages.find(page)) {
        std::for_each(found->begin(), found->end(), f);
      }
    }
  };
  std::for_each(whole_.begin(), whole_.end(), f);
  if (!few(range, kLargePage)) {
    for (uint32_t index = 0; index < entries_.size(); ++index) {
      f(index);
    }
    return;
  }
  visit(wide_, kLargePage);
  if (few(range, kSmallPage)) {
    visit(small_, kSmallPage);
  } else {
    visit(large_, kLargePage);
  }
}

// The lists that an entry of `range` is in.
template <typename F>
void AccessHistory::for_each_list(const MemRange& range, F f) {
  const auto visit = [&](Pages& pages, int64_t bytes) {
    const PageSpan span = pages_of(range, bytes);
    for (int64_t page = span.first; page <= span.last; ++page) {
      f(pages.at(page));
    }
  };
  if (few(range, kSmallPage)) {
    visit(small_, kSmallPage);
    visit(large_, kLargePage);
  } else if (few(range, kLargePage)) {
    visit(wide_, kLargePage);
  } else {
    f(whole_);
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
  for (size_t i = free_before; i < free_.size(); ++i) {
    for_each_list(entries_[free_[i]].range, [&](std::vector<uint32_t>& list) {
      std::erase_if(list, [&](uint32_t index) { return !entries_[index].live; });
    });
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
  for_each_list(range, [&](std::vector<uint32_t>& list) { list.push_back(index); });
}

}  // namespace tpu::compiler
