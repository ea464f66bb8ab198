// A number for each byte of a memory, kept as runs of equal ones in pages: what
// a checker knows of the bytes is behind the number, so that an access to many
// bytes decides about few numbers. A page has its runs in one array; pages that
// nobody has changed have none.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
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
    for (const std::unique_ptr<Chunk>& chunk : chunks_) {
      if (chunk != nullptr) {
        for (Page& page : *chunk) {
          rename_page(page, next);
        }
      }
    }
  }

  void clear() { chunks_.clear(); }

 private:
  static constexpr uint64_t kPageBytes = 16 * 1024;

  struct Run {  // up to the next one, or the end of the page
    uint32_t begin;
    State state;
  };
  using Page = std::vector<Run>;  // empty: nobody has changed it
  static constexpr size_t kChunkPages = 256;
  using Chunk = std::array<Page, kChunkPages>;

  Page& page_at(uint64_t number) {
    const size_t at = number / kChunkPages;
    if (at >= chunks_.size()) {
      chunks_.resize(at + 1);
    }
    if (chunks_[at] == nullptr) {
      chunks_[at] = std::make_unique<Chunk>();
    }
    Page& page = (*chunks_[at])[number % kChunkPages];
    if (page.empty()) {
      page.push_back({0, initial_});
    }
    return page;
  }

  template <class Next>
  static void rename_page(Page& page, const Next& next) {
    size_t kept = 0;
    for (Run run : page) {
      run.state = next(run.state);
      if (kept == 0 || page[kept - 1].state != run.state) {
        page[kept++] = run;
      }
    }
    page.resize(kept);
  }

  template <class Next>
  void update_page(uint64_t number, uint32_t low, uint32_t high, const Next& next) {
    Page& page = page_at(number);
    const uint64_t base = number * kPageBytes;
    const auto first =
        std::upper_bound(page.begin(), page.end(), low,
                         [](uint32_t at, const Run& run) { return at < run.begin; }) -
        1;
    const auto behind = first + 1;
    const uint32_t first_end =
        behind == page.end() ? static_cast<uint32_t>(kPageBytes) : behind->begin;
    if (high <= first_end) {  // most often: all within one run
      return update_run(page, first, {low, high, first_end}, base, next);
    }
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

  struct Part {  // bytes [low, high) of a run that ends at `end`
    uint32_t low, high, end;
  };

  template <class Next>
  void update_run(Page& page, Page::iterator run, const Part& part, uint64_t base,
                  const Next& next) {
    const State old = run->state;
    const State state = next(base + part.low, base + part.high, old);
    if (state == old) {
      return;
    }
    const ptrdiff_t at = run - page.begin();
    const bool head = run->begin < part.low;
    const bool tail = part.high < part.end;
    const bool joins_before = !head && at > 0 && (run - 1)->state == state;
    const bool joins_behind = !tail && run + 1 != page.end() && (run + 1)->state == state;
    if (joins_before || joins_behind) {  // seldom: as where several runs are concerned
      fresh_.clear();
      if (head) {
        fresh_.push_back({run->begin, old});
      }
      if (!joins_before) {
        fresh_.push_back({part.low, state});
      }
      if (tail) {
        fresh_.push_back({part.high, old});
      }
      splice(page, at, at + (joins_behind ? 2 : 1));
      return;
    }
    if (!head) {
      run->state = state;
    }
    if (head && tail) {
      const std::array<Run, 2> added = {Run{part.low, state}, Run{part.high, old}};
      page.insert(run + 1, added.begin(), added.end());
    } else if (head) {
      page.insert(run + 1, Run{part.low, state});
    } else if (tail) {
      page.insert(run + 1, Run{part.high, old});
    }
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
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<Run> fresh_;  // of update_page()
};

}  // namespace tpu::model
