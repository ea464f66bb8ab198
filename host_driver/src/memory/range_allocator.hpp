// Allocator of address ranges: best fit, 512-byte aligned, ranges of 64 KiB and more aligned to
// pages, so that the board's page store can share them. It only counts addresses: the memory is
// elsewhere (HBM of a core, the staging arena). Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "file/archive.hpp"
#include "tpu/spec/rings.h"

namespace tpu::driver {

class RangeAllocator {
 public:
  static constexpr uint64_t kAlign = 512;
  static constexpr uint64_t kPage = TPU_HBM_PAGE_BYTES;

  /// Hands out [base, base + size).
  RangeAllocator(uint64_t base, uint64_t size);

  /// Address of a range of at least `bytes` (0 counts as 1); nullopt when no hole fits.
  std::optional<uint64_t> allocate(uint64_t bytes);

  /// Takes exactly this range, as an earlier allocate() has; false when it is not free.
  bool take(uint64_t address, uint64_t bytes);

  /// Gives back an address that allocate() returned.
  void free(uint64_t address);

  /// Hands out no more the page that holds this address; what holds it keeps it until it is given
  /// back. False: it has been retired before, or is not in the range.
  bool retire(uint64_t address);
  /// Bytes of pages that were retired; they count as used once nobody else holds them.
  uint64_t retired() const { return retired_.size() * kPage; }

  uint64_t used() const { return used_; }
  uint64_t capacity() const { return capacity_; }
  /// Most that was used at a time.
  uint64_t peak() const { return peak_; }
  uint64_t largest_hole() const;
  /// The largest size that allocate() has room for.
  uint64_t largest_fit() const;
  size_t allocations() const { return taken_.size(); }
  /// Handed out so far, and the largest of them.
  uint64_t allocations_ever() const { return ever_; }
  uint64_t largest_ever() const { return largest_ever_; }
  /// What has been, without the ranges.
  void visit_state(spec::Archive& archive) { archive(peak_, ever_, largest_ever_); }

  /// Size that `bytes` takes up.
  static uint64_t rounded(uint64_t bytes);

 private:
  void join_hole(uint64_t start, uint64_t size);
  void take_retired(uint64_t page);
  void cut(std::map<uint64_t, uint64_t>::iterator hole, uint64_t start, uint64_t need);
  void add_hole(uint64_t address, uint64_t size);
  void remove_hole(std::map<uint64_t, uint64_t>::iterator hole);
  void resize_hole(std::map<uint64_t, uint64_t>::iterator hole, uint64_t address, uint64_t size);

  uint64_t base_;
  uint64_t capacity_;
  uint64_t used_ = 0;
  uint64_t peak_ = 0;
  uint64_t ever_ = 0;
  uint64_t largest_ever_ = 0;
  std::map<uint64_t, uint64_t> holes_;               // address -> size
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // {size, address}
  std::map<uint64_t, uint64_t> taken_;               // address -> size
  std::set<uint64_t> retired_;                       // pages
};

}  // namespace tpu::driver
