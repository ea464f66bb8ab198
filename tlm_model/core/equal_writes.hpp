// Transfers of several cores of a gang to the same place of their HBMs. Cores that keep copies of
// one array, as of parameters that each has gathered, write the same bytes there at about the same
// time: the first transfer moves them. The others compare what they bring with the pages of the
// first, and their HBMs get those pages where all of a page is equal, and else pages of their own.
// Which of the two is known when the data are there: whoever looks at such a page before waits for
// them. What a core reads never depends on it. Kernel thread only, but for Write::compare().
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "kernel/data_order.hpp"
#include "kernel/hbm_if.hpp"
#include "kernel/page_set.hpp"

namespace tpu::model {

class EqualWrites {
 public:
  // Consecutive bytes of a core's HBM, which a step of a gang writes.
  struct Place {
    HbmIf* hbm = nullptr;
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint32_t gang = 0;
    uint64_t step = 0;
  };

  // Of a transfer.
  struct Bytes {
    uint64_t first = 0, count = 0;
  };

  // A transfer that follows another core's, from begin() to settle(); else nothing.
  class Write : private PagesToCome {
   public:
    bool follows() const { return other_ != nullptr; }
    // Pages that it touches are counted from that of its first byte.
    size_t page_count() const { return pages_.size(); }
    Bytes bytes_of(size_t page) const { return EqualWrites::bytes_of(place_, page); }
    // Whether all of a page is what the transfer brings there, which is at `from`: then its work
    // need not bring it. From the work, once for each page.
    bool compare(size_t page, const uint8_t* from);
    // Before the pages of the work are given back: equal pages are shared, unless somebody has
    // written there since. Waits for the work. Again, or of a transfer that follows none: nothing.
    void settle() override;

   private:
    friend class EqualWrites;
    struct Page {
      const uint8_t* other = nullptr;  // what it may be equal to; null: it is not all written
      uint64_t version = 0;            // of the own page
      bool equal = false;
      bool zero = false;  // and it is zero
    };

    Place place_;
    JobPool* pool_ = nullptr;
    Job* work_ = nullptr;
    std::vector<Page> pages_;
    HbmIf* other_ = nullptr;  // of the first transfer
    PageSet held_;            // its pages, as it has written them
  };

  explicit EqualWrites(JobPool& pool) : pool_(pool) {}

  // A transfer begins, which `work` does. If it follows another, `touches` does, too.
  void begin(Write& write, const Place& place, Job& work, DataUses& touches);
  // Its pages are opened, and the launch of its work is next.
  void opened(Write& write);

 private:
  // Of transfers to one place, each of another core.
  struct Round {
    Place place;                    // of the first
    std::vector<uint64_t> written;  // versions of its pages
    std::vector<const HbmIf*> members;
  };
  static constexpr size_t kMostRounds = 64;  // cores are not so far apart

  static size_t page_count(const Place& place);
  static Bytes bytes_of(const Place& place, size_t page);
  static uint64_t address_of(const Place& place, size_t page) {
    return place.address + bytes_of(place, page).first;
  }
  Round* find(const Place& place);
  void lead(const Place& place);
  void follow(Write& write, Round& round, DataUses& touches);

  JobPool& pool_;
  std::list<Round> rounds_;                              // the latest first
  std::vector<std::pair<uint64_t, Round*>> by_address_;  // the latest last
  Round* led_ = nullptr;                                 // from begin() to opened()
  std::vector<JobRef> before_;
};

}  // namespace tpu::model
