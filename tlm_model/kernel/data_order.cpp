// Which jobs touch the same bytes. Few are in flight in one memory: a walk over all is cheaper than
// a tree, and most are told apart by their bounds.
#include "kernel/data_order.hpp"

#include <algorithm>
#include <array>

namespace tpu::model {

DataRange data_range(const spec::StridePattern& pattern) {
  const spec::ByteExtent extent = pattern.extent();
  DataRange range{.low = static_cast<uint64_t>(extent.low),
                  .high = static_cast<uint64_t>(extent.high)};
  std::array<spec::StridePattern::Level, 8> levels;  // by stride
  size_t count = 0;
  for (const spec::StridePattern::Level& level : pattern.levels()) {
    size_t at = count++;
    for (; at > 0 && levels[at - 1].stride > level.stride; --at) {
      levels[at] = levels[at - 1];
    }
    levels[at] = level;
  }
  int64_t run = pattern.run();
  int64_t period = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto& [times, stride] = levels[i];
    if (stride < 0 || (period != 0 && stride % period != 0)) {
      return range;
    }
    if (period == 0 && stride <= run) {
      run += (times - 1) * stride;
    } else if (period == 0) {
      period = stride;
    }
  }
  range.period = static_cast<uint64_t>(period);
  range.run = static_cast<uint64_t>(run);
  return range;
}

// Calls visit(use) for those near the range, which returns whether to forget the use.
template <class Visit>
void DataOrder::Uses::visit(const DataRange& range, const Visit& visit) {
  for (size_t i = bounds_.size(); i-- > 0;) {
    if (bounds_[i].low < range.high && range.low < bounds_[i].high && visit(uses_[i])) {
      forget(i);
    }
  }
}

void DataOrder::Uses::forget(size_t index) {
  bounds_[index] = bounds_.back();
  bounds_.pop_back();
  uses_[index] = uses_.back();
  uses_.pop_back();
}

void DataOrder::Uses::find(const DataRange& range, bool keep_done, std::vector<JobRef>& before) {
  visit(range, [&](const Use& use) {
    if (!range.shares_bytes(use.range)) {
      return false;
    }
    const bool done = use.job.done();
    if (!done || keep_done) {
      before.push_back(use.job);
    }
    return done && !keep_done;
  });
}

void DataOrder::Uses::add(const DataRange& range, bool keep_done, const JobRef& job) {
  if (uses_.size() >= (keep_done ? std::max(look_at_, kTracedUses) : look_at_)) {
    forget_done();
  }
  bounds_.push_back({range.low, range.high});
  uses_.push_back({range, job});
}

void DataOrder::Uses::hide(const DataRange& range, const Job& job) {
  visit(range, [&](const Use& use) { return range.holds(use.range) && use.job.job != &job; });
}

void DataOrder::Uses::forget_done() {
  for (size_t i = uses_.size(); i-- > 0;) {
    if (uses_[i].job.done()) {
      forget(i);
    }
  }
  look_at_ = std::max(kLeastUses, 2 * uses_.size());
}

void DataOrder::find(const DataRange& range, bool write, std::vector<JobRef>& before) {
  writes_.find(range, traced_, before);
  if (write) {
    reads_.find(range, traced_, before);
  }
}

void DataOrder::add(const DataRange& range, bool write, Job& job) {
  const JobRef ref = job.latest();
  traced_ = ref.traced != 0;
  if (ref.done() && !traced_) {
    return;
  }
  if (write) {
    writes_.hide(range, job);
    reads_.hide(range, job);
  }
  (write ? writes_ : reads_).add(range, traced_, ref);
}

void DataOrder::wait_for(const DataRange& range, bool write) {
  waits_.clear();
  find(range, write, waits_);
  for (const JobRef& job : waits_) {
    job.join();
  }
}

void DataUses::launch(JobPool& pool, JobStrand* strand, Job& job) {
  if (pool.threads() > 1 || pool.traces()) {
    for (const Use& use : uses_) {
      use.order->find(use.range, use.write, before_);
    }
  }
  if (strand != nullptr) {
    pool.launch(*strand, job, before_);
  } else {
    pool.launch(job, before_);
  }
  for (const Use& use : uses_) {
    use.order->add(use.range, use.write, job);
  }
  clear();
}

}  // namespace tpu::model
