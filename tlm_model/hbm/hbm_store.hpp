// Contents of one core's HBM: a sparse table of 64 KiB pages, shared copy-on-write between stores
// of the same pool. An absent page reads as zero. Addresses are checked by the caller. Jobs of
// engines reach the bytes through a PageSet that is resolved (and unshared, for writes) when the
// command starts, and may come later than all that is done here: what reads or writes bytes waits
// for those jobs (order()). No time here; kernel thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "file/archive.hpp"
#include "hbm/page_pool.hpp"
#include "kernel/data_order.hpp"
#include "kernel/page_set.hpp"

namespace tpu::model {

class HbmStore {
 public:
  // `bytes` is a multiple of the page size.
  HbmStore(PagePool& pool, uint64_t bytes);
  ~HbmStore();
  HbmStore(const HbmStore&) = delete;
  HbmStore& operator=(const HbmStore&) = delete;

  uint64_t bytes() const { return pages_ * kHbmPageBytes; }
  // Of jobs by the addresses of this store.
  DataOrder& order() { return order_; }

  void read(uint64_t address, std::span<uint8_t> data) const;
  // Pages of zero are dropped, or not made; what another store of the pool has in the same place is
  // shared, page by page.
  void write(uint64_t address, std::span<const uint8_t> data);
  // Repeats the pattern, low byte first. Pages of zero are dropped, or not made.
  void fill(uint64_t address, uint64_t bytes, uint32_t pattern);
  // Copies from `source` (may be this store); whole pages are shared when both sides are
  // page-aligned. Ranges must not overlap.
  void copy_from(const HbmStore& source, uint64_t source_address, uint64_t address, uint64_t bytes);

  // Takes the page with this address from those that are held of another store, where jobs that
  // have it write nothing any more; none, if it is `zero`.
  void share(const PageSet& held, uint64_t address, bool zero);

  // Adds the pages of [address, address + bytes) to `set`, pinned for one job. With `write` they
  // are made and unshared; `overwrite` promises that every byte of the range is written, so that
  // old contents need not be copied.
  void pin(PageSet& set, uint64_t address, uint64_t bytes, bool write, bool overwrite);
  // A page that the job overwrote with zeros (PageSet::look_for_zeros), and that is zero all over,
  // is dropped: a device that clears an array takes no memory of the host for it.
  void unpin(PageSet& set);

  // The bytes of [address, address + bytes) as they are now, in one piece of the host's memory,
  // where they stay until release(); what is written meanwhile goes elsewhere. Null, and nothing
  // held, when they do not lie so, or a job writes there. Not `done`: jobs in flight may write
  // there, which readers must follow.
  const uint8_t* hold(PageSet& set, uint64_t address, uint64_t bytes, bool done = true);
  void release(PageSet& set);

  // Another number whenever the page with this address is opened for writing, and of no other page
  // of the pool; 0 for one that is absent.
  uint64_t version(uint64_t address) const {
    const HbmPage* const page = table_[address / kHbmPageBytes];
    return page != nullptr ? page->version : 0;
  }

  // The page with this address, which a job has pinned for writing, may become another one by
  // share() when its bytes come: before somebody looks at it, the store settles them. Until they
  // are settled, or the page is given back.
  void expect(uint64_t address, PagesToCome& bytes) {
    table_[address / kHbmPageBytes]->to_come = &bytes;
  }
  void settled(uint64_t address, PagesToCome& bytes);

  // With no page in the hands of a job; one that is loaded is empty. All stores of a pool use the
  // same numbers, in the same order.
  void visit_state(spec::Archive& archive, PageNumbers& numbers);

  // True if any byte of the range lies in a page that exists (for checks and tests).
  bool present(uint64_t address, uint64_t bytes) const;

 private:
  void drop(uint64_t page);  // reads as zero from now on
  // Its bytes are looked at: from now on the table has the page that they are in.
  void settle(uint64_t page) const {
    if (table_[page] != nullptr && table_[page]->to_come != nullptr) {
      table_[page]->to_come->settle();
    }
  }
  bool cleared(const PageSet::Pin& pin) const;
  // `run`: pages that are made from here on, this one included.
  uint8_t* writable(uint64_t page, bool overwrite, uint64_t run = 1);
  void load_page(spec::Archive& archive, PageNumbers& numbers);
  static void save_page(uint64_t index, HbmPage* page, spec::Archive& archive,
                        PageNumbers& numbers);

  // A page for place `page` of the table.
  HbmPage* make(uint64_t page, bool zeroed, uint64_t run);
  const HbmPage* newest(uint64_t page) const;
  // Makes page `page` that of another store that has `part` from `offset` on there, and zeros else,
  // if there is one.
  bool share_equal(uint64_t page, uint64_t offset, std::span<const uint8_t> part);
  void take(uint64_t page, HbmPage* shared);  // null: one that is absent

  struct Free {
    void operator()(HbmPage** table) const;
  };
  void set(uint64_t page, HbmPage* entry) {
    table_[page] = entry;
    end_ = page < end_ ? end_ : page + 1;
  }

  PagePool& pool_;
  const uint64_t pages_;
  // By page. Parts that were never set take no memory of the host: a pod has thousands of tables.
  std::unique_ptr<HbmPage*[], Free> table_;
  mutable DataOrder order_;
  uint64_t end_ = 0;            // no page from here on was ever there
  std::vector<uint32_t> home_;  // by block of pages: where in the pool it lies if nothing is there
};

}  // namespace tpu::model
