// Transfers from HBM to one core's VMEM whose bytes nobody has moved: readers find them where they
// lie, in pages of HBM that are held as they are, and a range of VMEM gets them only when somebody
// needs them there. What overwrites the range ends that without a copy. Time is not here: a
// transfer that is deferred takes its cycles all the same. Copies are jobs in the order of the
// VMEM: who reads or writes it follows them (kernel/data_order.hpp). Kernel thread only, when
// commands start.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/copy_work.hpp"
#include "kernel/data_order.hpp"
#include "kernel/hbm_if.hpp"
#include "kernel/job_pool.hpp"
#include "kernel/page_set.hpp"

namespace tpu::model {

class DeferredCopies {
  struct Source;

 public:
  // Sources that a command in flight reads.
  using Uses = std::vector<Source*>;

  // Transfers of fewer bytes are no more work than what is noted of them.
  static constexpr uint64_t kLeastBytes = 32 << 10;

  DeferredCopies(uint8_t* vmem, uint64_t vmem_bytes, DataOrder& order, JobPool& pool);

  // Puts off a transfer from [address, address + bytes) of `hbm` to VMEM from `at` on. False if it
  // must be done, since the bytes do not lie together in the host's memory. The caller has told of
  // the transfer by write().
  bool defer(uint64_t at, uint64_t bytes, HbmIf& hbm, uint64_t address);

  // For one who reads bytes among [low, high) of VMEM: how many bytes behind their place in VMEM
  // they lie in the host's memory, until `uses` are released. `reader`: follows what still writes
  // there.
  ptrdiff_t read(uint64_t low, uint64_t high, Uses& uses, DataUses& reader);
  void release(Uses& uses);

  // Before bytes of [low, high) of VMEM are written: all of them, as `whole` promises, by one who
  // reads none, or some.
  void write(uint64_t low, uint64_t high, bool whole);

  // Brings what is deferred among [low, high) to VMEM, by a job.
  void settle(uint64_t low, uint64_t high) { write(low, high, false); }
  // Returns when all copies so far are done.
  void finish();

  bool empty() const { return ranges_.empty(); }
  // Some byte of [low, high) is deferred.
  bool touches(uint64_t low, uint64_t high) const { return first_behind(low) < next_from(high); }

 private:
  // Bytes of HBM that are held.
  struct Source {
    HbmIf* hbm = nullptr;
    PageSet pages;
    uint64_t bytes = 0;
    uint64_t number = 0;  // the older, the smaller
    uint32_t uses = 0;    // ranges, copies and commands
    uint32_t ranges = 0;
    std::vector<JobRef> writers;
  };
  struct Copy {
    CopyWork work{HostWork::kDmaIn};
    Uses uses;
  };
  static constexpr size_t kMostCopies = 16;  // in flight
  struct Range {
    uint64_t low = 0, high = 0;
    ptrdiff_t shift = 0;  // from VMEM to where the bytes lie
    Source* source = nullptr;
  };

  // Indices of ranges_: the first that ends behind `at`, the first that begins at `at` or behind.
  size_t first_behind(uint64_t at) const;
  size_t next_from(uint64_t at) const;
  void copy(size_t first, size_t last, uint64_t low, uint64_t high);
  void release_done();
  void cut(size_t first, size_t last, uint64_t low, uint64_t high);
  void unuse(Source* source);
  void drop_range(Source* source);
  void settle_oldest();

  uint8_t* const vmem_;
  const uint64_t most_held_;
  DataOrder& order_;
  JobPool& pool_;
  DataUses touches_;                      // of the next copy
  std::array<Copy, kMostCopies> copies_;  // used by turns
  size_t next_copy_ = 0;
  std::vector<Range> ranges_;  // by place, apart from each other
  std::deque<Source> sources_;
  std::vector<Source*> free_;
  uint64_t held_ = 0;    // bytes of sources with ranges
  uint64_t number_ = 0;  // of sources so far
};

}  // namespace tpu::model
