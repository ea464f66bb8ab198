// Transfers from HBM to one core's VMEM whose bytes nobody has moved: readers find them where they
// lie, in pages of HBM that are held as they are, and a range of VMEM gets them only when somebody
// needs them there. What overwrites the range ends that without a copy. Time is not here: a
// transfer that is put off takes its cycles all the same. Kernel thread only, when commands start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/copy_work.hpp"
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

  DeferredCopies(uint8_t* vmem, uint64_t vmem_bytes, JobPool& pool);

  // Puts off a transfer from [address, address + bytes) of `hbm` to VMEM from `at` on. False if it
  // must be done, since the bytes do not lie together in the host's memory. The caller has told of
  // the transfer by write().
  bool defer(uint64_t at, uint64_t bytes, HbmIf& hbm, uint64_t address);

  // For one who reads bytes among [low, high) of VMEM: how many bytes behind their place in VMEM
  // they lie in the host's memory, until `uses` are released.
  ptrdiff_t read(uint64_t low, uint64_t high, Uses& uses);
  void release(Uses& uses);

  // Before bytes of [low, high) of VMEM are written: all of them, as `whole` promises, by one who
  // reads none, or some.
  void write(uint64_t low, uint64_t high, bool whole);

  // Brings what is put off among [low, high) to VMEM.
  void settle(uint64_t low, uint64_t high) { write(low, high, false); }

  bool empty() const { return ranges_.empty(); }
  // Some byte of [low, high) is put off.
  bool touches(uint64_t low, uint64_t high) const { return first_behind(low) < next_from(high); }

 private:
  // Bytes of HBM that are held.
  struct Source {
    HbmIf* hbm = nullptr;
    PageSet pages;
    uint64_t bytes = 0;
    uint64_t number = 0;  // the older, the smaller
    uint32_t uses = 0;    // ranges and commands
  };
  struct Range {
    uint64_t low = 0, high = 0;
    ptrdiff_t shift = 0;  // from VMEM to where the bytes lie
    Source* source = nullptr;
  };

  // Indices of ranges_: the first that ends behind `at`, the first that begins at `at` or behind.
  size_t first_behind(uint64_t at) const;
  size_t next_from(uint64_t at) const;
  void copy(size_t first, size_t last, uint64_t low, uint64_t high);
  void cut(size_t first, size_t last, uint64_t low, uint64_t high);
  void unuse(Source* source);
  void settle_oldest();

  uint8_t* const vmem_;
  const uint64_t most_held_;
  JobPool& pool_;
  JobStrand strand_;
  CopyWork copies_{HostWork::kDmaIn};
  std::vector<Range> ranges_;  // by place, apart from each other
  std::deque<Source> sources_;
  std::vector<Source*> free_;
  uint64_t held_ = 0;    // bytes of sources in use
  uint64_t number_ = 0;  // of sources so far
};

}  // namespace tpu::model
