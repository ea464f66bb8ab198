// Past accesses of one memory, for insert_semaphores: which of them a new access conflicts with.
// Accesses are found by the pages they touch, so that a buffer which is streamed in thousands of
// tiles costs a look at its neighbours only. What the accessing queue knows to be done is passed
// over, the older part of a page without a look at it. What all queues know can give no edge any
// more, nor can an access inside of a later write (whatever comes behind that write is ordered
// after the earlier access too): a page that has grown to twice its length drops both.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "program/listing.hpp"

namespace tpu::compiler {

// Latest item of each queue that is known to be done; -1: none.
using Clock = std::array<int, spec::kQueueCount>;

// What a queue knows about the items of queues.
struct Knowledge {
  Clock known{};
  int all = -1;  // every item up to this one is known, whatever its queue
};

struct PastItem {
  int item = 0;
  uint32_t queue = 0;
};

class AccessHistory {
 public:
  /// Appends the items that `knowledge` does not have and whose access must be ordered before
  /// `range`, some perhaps twice.
  void conflicts(const MemRange& range, const Knowledge& knowledge,
                 std::vector<PastItem>& out) const;
  /// Items must come in ascending order. `settled`: what every queue knows that has commands yet.
  void add(const MemRange& range, PastItem item, const Clock& settled);

 private:
  struct Entry {
    MemRange range;
    uint32_t lists = 0;  // in which it stands
  };
  struct Node {
    PastItem past;
    uint32_t entry = 0;
  };
  using List = std::vector<Node>;  // in the order of the items
  // Lists by number of the page, which may be negative.
  class Pages {
   public:
    List& at(int64_t page);
    template <typename F>
    void for_each(int64_t first, int64_t last, F f) const;  // of the lists that were ever there

   private:
    std::vector<List> lists_, below_;  // below_: page -1, -2, ..
  };

  template <typename F>
  void for_each_list(const MemRange& range, F f);
  template <typename F>
  void for_each_near(const MemRange& range, F f) const;
  uint32_t take_entry(const MemRange& range);
  void leave(const Node& node);
  void append(List& list, const Node& node, const Clock& settled);
  void drop_covered(List& list);

  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;  // of entries_, to be used again
  Pages small_;                 // entries of few small pages
  Pages large_;                 // the same entries by large pages
  Pages wide_;                  // entries of many small pages, by large pages
  List whole_;                  // entries of many large pages, and of no byte
};

}  // namespace tpu::compiler
