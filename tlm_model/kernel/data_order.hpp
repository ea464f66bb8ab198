// The order of jobs by the bytes that they touch. Each memory (VMEM and SMEM of a core, an HBM) has
// a DataOrder, which keeps what the jobs in flight read and write there. A job follows those that
// write what it reads, and those that read or write what it writes. So the kernel thread need not
// wait for jobs: the data of a command may come later than its end in simulated time. What the
// kernel thread reads or writes itself it waits for. Ranges may be larger than what a job touches:
// then it waits longer than it had to. Kernel thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "command/stride_pattern.hpp"
#include "kernel/job_pool.hpp"

namespace tpu::model {

// Bytes [low, high); with a period only those whose address is `low` to `low + run - 1`, modulo
// the period: columns of an array.
struct DataRange {
  uint64_t low = 0;
  uint64_t high = 0;
  uint64_t period = 0;
  uint64_t run = 0;

  bool shares_bytes(const DataRange& other) const {
    return low < other.high && other.low < high &&
           (period == 0 || period != other.period || columns_meet(other));
  }
  // All bytes of `other`, as far as this is easily seen.
  bool holds(const DataRange& other) const {
    return low <= other.low && other.high <= high &&
           (period == 0 || (low == other.low && period == other.period && run >= other.run));
  }

 private:
  bool columns_meet(const DataRange& other) const {
    const uint64_t ahead = (other.low % period + period - low % period) % period;
    return ahead < run || period - ahead < other.run;
  }
};

// Around a pattern of addresses that are not negative.
DataRange data_range(const spec::StridePattern& pattern);

class DataOrder {
 public:
  // Adds those in flight that a job must follow that reads or writes the range; while the pool
  // keeps a trace, also those that are done.
  void find(const DataRange& range, bool write, std::vector<JobRef>& before);
  // Likewise for a job that is launched next, and then added. What it overwrites all of is
  // forgotten: whoever must follow that will follow this job.
  void find_for_next(const DataRange& range, bool write, std::vector<JobRef>& before);
  // A job, launched just now, reads or writes the range.
  void add(const DataRange& range, bool write, Job& job);

  // Returns when the kernel thread may read or write bytes of [low, high).
  void wait(uint64_t low, uint64_t high, bool write) {
    if (!writes_.empty() || !reads_.empty()) {
      wait_for({.low = low, .high = high}, write);
    }
  }

 private:
  static constexpr size_t kLeastUses = 64;
  static constexpr size_t kTracedUses = 256;  // more cost the forecast more than they tell

  struct Use {
    DataRange range;
    JobRef job;
  };
  // Reads, or writes, of jobs in flight, and of some that are done.
  class Uses {
   public:
    bool empty() const { return uses_.empty(); }
    // `hide`: forgets those that the range holds.
    void find(const DataRange& range, bool keep_done, bool hide, std::vector<JobRef>& before);
    void add(const DataRange& range, bool keep_done, const JobRef& job);

   private:
    // Bounds of four uses, in lines of kLine bytes, rounded to the outside. No use: none meets it.
    struct Four {
      std::array<int32_t, 4> first, end;
    };
    static constexpr uint64_t kLine = 256;
    static Four no_uses();
    static int32_t first_line(const DataRange& range) {
      return static_cast<int32_t>(std::min<uint64_t>(range.low / kLine, INT32_MAX - 1));
    }
    static int32_t end_line(const DataRange& range) {
      return static_cast<int32_t>(std::min<uint64_t>((range.high - 1) / kLine + 1, INT32_MAX));
    }
    void set_bounds(size_t index, int32_t first, int32_t end) {
      bounds_[index / 4].first[index % 4] = first;
      bounds_[index / 4].end[index % 4] = end;
    }
    void forget_done();
    void forget(size_t index);

    std::vector<Four> bounds_;  // of uses_, close together: most uses are elsewhere
    std::vector<Use> uses_;
    size_t look_at_ = kLeastUses;
  };

  void find(const DataRange& range, bool write, bool hide, std::vector<JobRef>& before);
  void wait_for(const DataRange& range, bool write);

  Uses reads_;
  Uses writes_;
  std::vector<JobRef> waits_;  // of wait_for()
  bool traced_ = false;        // the latest job
};

// What one job is going to touch. Kept by its owner and used again.
class DataUses {
 public:
  void clear() {
    uses_.clear();
    before_.clear();
  }
  void add(DataOrder& order, const DataRange& range, bool write) {
    uses_.push_back({&order, range, write});
  }
  void follow(const JobRef& before) { before_.push_back(before); }
  void follow(std::span<const JobRef> before) {
    before_.insert(before_.end(), before.begin(), before.end());
  }

  // Launches the job behind those that it has to follow; then this is clear.
  void launch(JobPool& pool, Job& job) { launch(pool, nullptr, job); }
  void launch(JobPool& pool, JobStrand& strand, Job& job) { launch(pool, &strand, job); }

 private:
  struct Use {
    DataOrder* order;
    DataRange range;
    bool write;
  };

  void launch(JobPool& pool, JobStrand* strand, Job& job);

  std::vector<Use> uses_;
  std::vector<JobRef> before_;
};

}  // namespace tpu::model
