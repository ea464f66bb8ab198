// 64 KiB pages of HBM contents, reference-counted. Freed pages are kept and used again: the first
// touch of host memory is slow, so nothing is ever given back to the host before the pool dies.
// Kernel thread only; no SystemC here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "tpu/spec/rings.h"

namespace tpu::model {

inline constexpr uint64_t kHbmPageBytes = TPU_HBM_PAGE_BYTES;

struct HbmPage {
  uint8_t* data = nullptr;
  uint32_t owners = 0;     // page table entries that name it
  uint32_t read_pins = 0;  // jobs in flight
  uint32_t write_pins = 0;
  bool left =
      false;  // an owner gave the page up while jobs held it: a pin may belong to that owner
};

// Numbers pages as a snapshot has them: what several entries share is saved once.
struct PageNumbers {
  std::unordered_map<const HbmPage*, uint64_t> of;  // saving
  std::vector<HbmPage*> pages;                      // loading
};

class PagePool {
 public:
  PagePool();
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // A page with one owner. Contents are zero if `zeroed`, else anything. Throws std::bad_alloc.
  HbmPage* make(bool zeroed);
  // Gives up one owner or pin; the page returns to the pool when nothing holds it.
  void drop_owner(HbmPage* page);
  void unpin(HbmPage* page, bool write);

  const uint8_t* zero_page() const { return zero_page_; }
  size_t pages_in_use() const { return in_use_; }
  // In use, or left from use: these take host memory.
  size_t pages_touched() const { return in_use_ + used_.size(); }

 private:
  void release_if_unused(HbmPage* page);
  void grow();

  static constexpr size_t kChunkPages = 256;  // 16 MiB of address space a time
  std::deque<HbmPage> pages_;
  std::vector<HbmPage*> fresh_;  // never touched: zero
  std::vector<HbmPage*> used_;   // contents are old
  std::vector<void*> chunks_;
  uint8_t* zero_page_ = nullptr;
  size_t in_use_ = 0;
};

}  // namespace tpu::model
