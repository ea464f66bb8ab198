// A number for each byte of a memory, kept as runs of equal ones in pages: what
// a checker knows of the bytes is behind the number, so that an access to many
// bytes decides about few numbers. A page has its runs in one array; pages that
// nobody has changed do not exist.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tpu::model {

class ByteStates {
 public:
  using State = uint32_t;

  explicit ByteStates(State initial) : initial_(initial) {}

  // Calls state = next(low, high, state) for the runs of bytes [low, high),
  // ascending.
  template <class Next>
  void update(uint64_t low, uint64_t high, const Next& next) {
    while (low < high) {
      const uint64_t page = low / kPageBytes;
      const uint64_t end = std::min(high, (page + 1) * kPageBytes);
      update_page(page, static_cast<uint32_t>(low % kPageBytes),
                  static_cast<uint32_t>(end - page * kPageBytes), next);
      low = end;
    }
  }

  // Calls state = next(state) for every run.
  template <class Next>
  void rename(const Next& next) {
    for (auto& [number, page] : pages_) {
      size_t kept = 0;
      for (Run run : page) {
        run.state = next(run.state);
        if (kept == 0 || page[kept - 1].state != run.state) {
          page[kept++] = run;
        }
      }
      page.resize(kept);
    }
  }

  void clear() {
    pages_.clear();
    last_page_ = nullptr;
  }

 private:
  static constexpr uint64_t kPageBytes = 16 * 1024;

  struct Run {  // up to the next one, or the end of the page
    uint32_t begin;
    State state;
  };
  using Page = std::vector<Run>;

  Page& page_at(uint64_t number) {
    if (last_page_ == nullptr || last_number_ != number) {
      last_page_ = &pages_.try_emplace(number, Page{{0, initial_}}).first->second;
      last_number_ = number;
    }
    return *last_page_;
  }

  template <class Next>
  void update_page(uint64_t number, uint32_t low, uint32_t high, const Next& next) {
    Page& page = page_at(number);
    const uint64_t base = number * kPageBytes;
    const auto first =
        std::upper_bound(page.begin(), page.end(), low,
                         [](uint32_t at, const Run& run) { return at < run.begin; }) -
        1;
    fresh_.clear();
    const auto add = [this](uint32_t begin, State state) {
      if (fresh_.empty() || fresh_.back().state != state) {
        fresh_.push_back({begin, state});
      }
    };
    if (first->begin < low) {
      add(first->begin, first->state);
    }
    auto run = first;
    for (; run != page.end() && run->begin < high; ++run) {
      const bool last = run + 1 == page.end();
      const uint32_t end = last ? static_cast<uint32_t>(kPageBytes) : (run + 1)->begin;
      const uint32_t from = std::max(run->begin, low);
      const uint32_t to = std::min(end, high);
      add(from, next(base + from, base + to, run->state));
      if (end > high) {
        add(high, run->state);
      }
    }
    splice(page, first - page.begin(), run - page.begin());
  }

  // Puts fresh_ in the place of runs [first, last).
  void splice(Page& page, ptrdiff_t first, ptrdiff_t last) {
    const auto room = static_cast<size_t>(last - first);
    const auto shared = static_cast<ptrdiff_t>(std::min(room, fresh_.size()));
    std::copy_n(fresh_.begin(), shared, page.begin() + first);
    if (fresh_.size() > room) {
      page.insert(page.begin() + last, fresh_.begin() + shared, fresh_.end());
    } else {
      page.erase(page.begin() + first + shared, page.begin() + last);
    }
  }

  const State initial_;
  std::unordered_map<uint64_t, Page> pages_;
  uint64_t last_number_ = 0;
  Page* last_page_ = nullptr;
  std::vector<Run> fresh_;  // of update_page()
};

}  // namespace tpu::model
