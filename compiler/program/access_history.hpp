// Past accesses of one memory, for insert_semaphores: which of them a new access conflicts with.
// Accesses are found by the pages they touch, so that a buffer which is streamed in thousands of
// tiles costs a look at its neighbours only. Forgotten is what can give no edge any more: an access
// inside of a later write, and a read inside of a later read by the same queue. Whatever comes
// behind either of them is ordered after the later access, hence after the earlier one too.
#pragma once

#include <cstdint>
#include <vector>

#include "program/listing.hpp"

namespace tpu::compiler {

class AccessHistory {
 public:
  /// Appends the items whose access must be ordered before `range`, some perhaps twice.
  void conflicts(const MemRange& range, std::vector<int>& out) const;
  /// Items must come in ascending order.
  void add(const MemRange& range, int item, size_t queue);

 private:
  struct Entry {
    MemRange range;
    int item = 0;
    size_t queue = 0;
    bool live = true;
  };
  // Entries by number of the page, which may be negative.
  class Pages {
   public:
    std::vector<uint32_t>& at(int64_t page);
    const std::vector<uint32_t>* find(int64_t page) const;  // null: none was ever there

   private:
    std::vector<std::vector<uint32_t>> lists_, below_;  // below_: page -1, -2, ..
  };

  template <typename F>
  void for_each_list(const MemRange& range, F f);
  template <typename F>
  void for_each_near(const MemRange& range, F f) const;
  void forget_covered(const MemRange& range, size_t queue);

  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;   // of entries_, to be used again
  Pages small_;                  // entries of few small pages
  Pages large_;                  // the same entries by large pages
  Pages wide_;                   // entries of many small pages, by large pages
  std::vector<uint32_t> whole_;  // entries of many large pages, and of no byte
};

}  // namespace tpu::compiler
