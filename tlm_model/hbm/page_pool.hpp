// 64 KiB pages of HBM contents, reference-counted. Freed pages are kept and used again: the first
// touch of host memory is slow, so nothing is ever given back to the host before the pool dies.
// Pages that are made one after the other lie side by side in the host's memory where they can, so
// that ranges of HBM can be read there as they are. Kernel thread only; no SystemC here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tpu/spec/rings.h"

namespace tpu::model {

inline constexpr uint64_t kHbmPageBytes = TPU_HBM_PAGE_BYTES;

class HbmStore;
class PagesToCome;

struct HbmPage {
  uint8_t* data = nullptr;
  uint32_t index = 0;      // in the pool
  uint32_t owners = 0;     // page table entries that name it
  uint32_t read_pins = 0;  // jobs in flight
  uint32_t write_pins = 0;
  uint32_t holds = 0;              // readers to come, for whom its contents must stay
  uint64_t version = 0;            // HbmStore::version
  PagesToCome* to_come = nullptr;  // by whom; HbmStore::expect
  bool left = false;  // an owner gave it up while jobs held it: a pin may belong to that owner
};

// Numbers pages as a snapshot has them: what several entries share is saved once.
struct PageNumbers {
  std::unordered_map<const HbmPage*, uint64_t> of;  // saving
  std::vector<HbmPage*> pages;                      // loading
};

class PagePool {
 public:
  static constexpr uint32_t kBlockPages = 2048;  // 128 MiB
  static constexpr uint32_t kNoHome = UINT32_MAX;

  PagePool();
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // Address space of the host for kBlockPages pages that follow each other, from the number
  // returned on: a range of HBM has its pages there, as long as nobody else does. Throws
  // std::bad_alloc.
  uint32_t reserve_block();

  // Where a new page best lies.
  struct Wish {
    uint32_t home = kNoHome;
    const HbmPage* after = nullptr;
    uint64_t run = 1;
    // For one that takes the place of a page that other stores share: number `offset` of range
    // `range` of HBM.
    const HbmPage* shared = nullptr;
    uint64_t range = 0;
    uint32_t offset = 0;
    const HbmPage* newest = nullptr;  // that a store has before it
  };

  // A page with one owner. Contents are zero if `zeroed`, else anything. The page behind `after`,
  // if there is one and it is free; else number `home`, if that is free; else one that has up to
  // `run` - 1 free pages behind it, if there is one among those that were used before. Pages for
  // `shared` ones lie in two blocks of their own by turns, since what they replace stays until the
  // last store has left it. Throws std::bad_alloc.
  HbmPage* make(bool zeroed, const Wish& wish);
  HbmPage* make(bool zeroed) { return make(zeroed, Wish{}); }
  // Gives up one owner, pin or hold; the page returns to the pool when nothing has it.
  void drop_owner(HbmPage* page);
  void unpin(HbmPage* page, bool write);
  void drop_hold(HbmPage* page);

  // All stores with pages of the pool.
  std::vector<HbmStore*>& stores() { return stores_; }

  // For a page that is opened for writing.
  uint64_t next_version() { return ++versions_; }

  const uint8_t* zero_page() const { return zero_page_; }
  size_t pages_in_use() const { return in_use_; }
  // In use, or left from use: these take host memory.
  size_t pages_touched() const { return touched_; }

 private:
  void release_if_unused(HbmPage* page);
  bool is_free(size_t index) const { return free_[index / 64] >> (index % 64) & 1; }
  std::optional<size_t> used_run(uint64_t run) const;
  std::optional<size_t> shared_place(const Wish& wish);
  // Of a page in one of the blocks for shared ones; else -1.
  int side_of(const HbmPage* page) const;
  size_t place(const Wish& wish);

  static constexpr size_t kGuardBytes = 4096;  // wide host loads behind a page stay inside memory
  std::deque<HbmPage> pages_;                  // block by block, by address in each
  std::vector<uint64_t> free_;                 // a bit a page
  std::vector<uint64_t> fresh_;                // of these: never touched, zero
  size_t spare_ = 0;  // fresh pages [spare_, spare_end_) of a block without a home
  size_t spare_end_ = 0;
  std::vector<std::array<uint32_t, 2>> shared_;  // by range of HBM: blocks of shared pages
  std::vector<int8_t> sides_;                    // by block: which of the two it is, or -1
  std::vector<HbmStore*> stores_;
  std::vector<void*> blocks_;
  uint8_t* zero_page_ = nullptr;
  size_t in_use_ = 0;
  size_t touched_ = 0;
  size_t waiting_ = 0;  // touched, not in use, and kept for shared pages
  uint64_t versions_ = 0;
};

}  // namespace tpu::model
