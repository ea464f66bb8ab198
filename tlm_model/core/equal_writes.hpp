// Transfers of several cores of a gang to the same place of their HBMs. Cores that keep copies of
// one array, as of parameters that each has gathered, write the same bytes there at about the same
// time: the first transfer moves them, the others compare what they bring with what it brings, and
// their HBMs share its pages of the host where all of a page is equal. What a core reads never
// depends on it. Kernel thread only, but for Write::compare().
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "core/copy_work.hpp"
#include "kernel/hbm_if.hpp"
#include "kernel/job_pool.hpp"

namespace tpu::model {

class EqualWrites {
  struct Round;

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

  // A transfer under way. Kept by its owner, at one place from begin() to settle().
  class Write {
   public:
    // Pages that it touches are counted from that of its first byte.
    size_t page_count() const;
    Bytes bytes_of(size_t page) const;
    // Whether this may be equal to another.
    bool follows() const { return !pages_.empty(); }
    // A page that is not opened, since it was shared until now: it hardly differs.
    bool leaves_out(size_t page) const { return pages_[page].left_out; }
    // Some byte of [low, high) is the transfer's.
    bool touches(uint64_t low, uint64_t high) const {
      return place_.address < high && place_.address + place_.bytes > low;
    }
    // Whether all of the page is equal: then the work need not bring it. From the work, once for
    // each page.
    bool compare(size_t page);
    // The work of the one that it may be equal to, which finds the same bytes; null: is done.
    Job* leader() const { return leader_ != nullptr ? leader_->work_ : nullptr; }

   private:
    friend class EqualWrites;
    struct Page {
      const uint8_t* other = nullptr;  // what it may be equal to; null: it is not all written
      uint64_t version = 0;            // of the other's page, written
      bool left_out = false;
      bool equal = false;
    };
    uint64_t address_of(size_t page) const { return place_.address + bytes_of(page).first; }
    const uint8_t* from(size_t page) const { return from_ + bytes_of(page).first; }

    Place place_;
    const uint8_t* from_ = nullptr;
    Job* work_ = nullptr;
    Round* round_ = nullptr;  // that it leads
    std::vector<Write*> followers_;
    // Of a follower.
    std::vector<Page> pages_;
    HbmIf* other_ = nullptr;
    Write* leader_ = nullptr;  // while that is under way
    PageSet held_;             // pages of one that has ended
  };

  explicit EqualWrites(JobPool& pool) : pool_(pool) {}

  // A transfer begins that brings the bytes at `from`, which stay there until settle(), by `work`.
  // Its pages are opened next, but for those that it leaves out; then comes opened(), then the
  // launch.
  void begin(Write& write, const Place& place, const uint8_t* from, Job& work);
  void opened(Write& write);
  // When the transfer is done, before its pages are given back, or before another command reads or
  // writes what it writes: what it left out is there, and nobody compares it any more. Again:
  // nothing.
  void settle(Write& write);

 private:
  // Of transfers to one place, each of another core.
  struct Round {
    Place place;                              // of the first
    std::vector<uint64_t> replaced, written;  // versions of its pages, before and since
    std::vector<const HbmIf*> members;
    Write* leader = nullptr;  // while it is under way
  };
  static constexpr size_t kMostRounds = 64;  // cores are not so far apart

  Round* find(const Place& place);
  void lead(Write& write);
  void follow(Write& write, Round& round);
  void share(Write& write);
  void bring(Write& write);

  JobPool& pool_;
  std::list<Round> rounds_;                              // the latest first
  std::vector<std::pair<uint64_t, Round*>> by_address_;  // the latest last
  // Of pages that proved different.
  CopyWork copies_{HostWork::kDmaOut};
  PageSet pages_;
};

}  // namespace tpu::model
