// Pages of past accesses, see access_history.hpp.
#include "program/access_history.hpp"

#include <algorithm>

namespace tpu::compiler {
namespace {

// A tile is some hundred KiB in HBM and VMEM: one or two small pages each, few tiles a page.
// Windows of convolutions and whole buffers reach over megabytes.
constexpr int64_t kSmallPage = int64_t{512} << 10, kLargePage = int64_t{16} << 20;
constexpr int64_t kMostPages = 64;

constexpr size_t kFewNodes = 16;   // a list of so few is not cleared up
constexpr ptrdiff_t kNewest = 32;  // nodes by which an earlier one may be covered

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

AccessHistory::List& AccessHistory::Pages::at(int64_t page) {
  std::vector<List>& lists = page < 0 ? below_ : lists_;
  const size_t index = index_of(page);
  if (index >= lists.size()) {
    lists.resize(index + 1);
  }
  return lists[index];
}

template <typename F>
void AccessHistory::Pages::for_each(int64_t first, int64_t last, F f) const {
  first = std::max(first, -static_cast<int64_t>(below_.size()));
  last = std::min(last, static_cast<int64_t>(lists_.size()) - 1);
  for (int64_t page = first; page <= last; ++page) {
    const std::vector<List>& lists = page < 0 ? below_ : lists_;
    if (const size_t index = index_of(page); index < lists.size()) {
      f(lists[index]);
    }
  }
}

// Lists of the entries whose pages meet those of `range`; an entry may be in several.
template <typename F>
void AccessHistory::for_each_near(const MemRange& range, F f) const {
  const auto visit = [&](const Pages& pages, int64_t bytes) {
    const auto [first, last] = pages_of(range, bytes);
    pages.for_each(std::min(first, last), std::max(first, last), f);  // of no byte: last < first
  };
  f(whole_);
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

void AccessHistory::conflicts(const MemRange& range, const Knowledge& knowledge,
                              std::vector<PastItem>& out) const {
  for_each_near(range, [&](const List& list) {
    for (auto node = list.rbegin(); node != list.rend() && node->past.item > knowledge.all;
         ++node) {
      if (node->past.item <= knowledge.known[node->past.queue]) {
        continue;
      }
      const MemRange& past = entries_[node->entry].range;
      if ((past.write || range.write) && ranges_overlap(past, range)) {
        out.push_back(node->past);
      }
    }
  });
}

uint32_t AccessHistory::take_entry(const MemRange& range) {
  if (free_.empty()) {
    entries_.push_back({range});
    return static_cast<uint32_t>(entries_.size() - 1);
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  entries_[index] = {range};
  return index;
}

void AccessHistory::leave(const Node& node) {
  if (--entries_[node.entry].lists == 0) {
    free_.push_back(node.entry);
  }
}

// Drops each access inside of a write of the list that comes soon behind it, and each read inside
// of such a read by the same queue.
void AccessHistory::drop_covered(List& list) {
  size_t kept = list.size();  // nodes from here on stay
  for (size_t i = list.size(); i-- > 0;) {
    const MemRange& range = entries_[list[i].entry].range;
    const auto first = list.begin() + static_cast<ptrdiff_t>(kept);
    const auto last = first + std::min(kNewest, list.end() - first);
    const bool covered = std::any_of(first, last, [&](const Node& node) {
      const MemRange& later = entries_[node.entry].range;
      const bool orders = later.write || (!range.write && node.past.queue == list[i].past.queue);
      return orders && covers(later, range);
    });
    if (covered) {
      leave(list[i]);
    } else {
      list[--kept] = list[i];
    }
  }
  list.erase(list.begin(), list.begin() + static_cast<ptrdiff_t>(kept));
}

void AccessHistory::append(List& list, const Node& node, const Clock& settled) {
  const size_t room = list.capacity();
  if (list.size() == room && room >= kFewNodes) {
    std::erase_if(list, [&](const Node& past) {
      const bool known = past.past.item <= settled[past.past.queue];
      if (known) {
        leave(past);
      }
      return known;
    });
    if (list.size() > room / 2) {
      drop_covered(list);
    }
    if (list.size() > room / 2) {
      list.reserve(2 * room);
    }
  }
  ++entries_[node.entry].lists;
  list.push_back(node);
}

void AccessHistory::add(const MemRange& range, PastItem item, const Clock& settled) {
  const Node node{item, take_entry(range)};
  for_each_list(range, [&](List& list) { append(list, node, settled); });
}

}  // namespace tpu::compiler
