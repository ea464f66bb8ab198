// Which jobs touch the same bytes. Few are in flight in one memory: a walk over all is cheaper than
// a tree, and most are told apart by their bounds, four at a time.
#include "kernel/data_order.hpp"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <bit>

namespace tpu::model {
namespace {

// Of four uses, those that begin before `end` and end behind `first`: a bit for each.
unsigned meeting(const std::array<int32_t, 4>& firsts, const std::array<int32_t, 4>& ends,
                 int32_t first, int32_t end) {
#if defined(__x86_64__)
  const auto load = [](const std::array<int32_t, 4>& from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from.data()));
  };
  const __m128i meets = _mm_and_si128(_mm_cmplt_epi32(load(firsts), _mm_set1_epi32(end)),
                                      _mm_cmplt_epi32(_mm_set1_epi32(first), load(ends)));
  return static_cast<unsigned>(_mm_movemask_ps(_mm_castsi128_ps(meets)));
#else
  unsigned places = 0;
  for (unsigned i = 0; i < firsts.size(); ++i) {
    places |= (firsts[i] < end && first < ends[i]) ? 1U << i : 0U;
  }
  return places;
#endif
}

}  // namespace

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

DataOrder::Uses::Four DataOrder::Uses::no_uses() {
  Four none;
  none.first.fill(INT32_MAX);
  none.end.fill(0);
  return none;
}

// The last takes its place.
void DataOrder::Uses::forget(size_t index) {
  const size_t last = uses_.size() - 1;
  const Four& four = bounds_[last / 4];
  set_bounds(index, four.first[last % 4], four.end[last % 4]);
  set_bounds(last, INT32_MAX, 0);
  if (last % 4 == 0) {
    bounds_.pop_back();
  }
  uses_[index] = uses_.back();
  uses_.pop_back();
}

void DataOrder::Uses::find(const DataRange& range, bool keep_done, bool hide,
                           std::vector<JobRef>& before) {
  const int32_t first = first_line(range);
  const int32_t end = end_line(range);
  for (size_t four = bounds_.size(); four-- > 0;) {
    unsigned near = meeting(bounds_[four].first, bounds_[four].end, first, end);
    while (near != 0) {  // from the last on, since those behind fill gaps
      const auto lane = static_cast<unsigned>(std::bit_width(near)) - 1;
      near &= ~(1U << lane);
      const Use& use = uses_[4 * four + lane];
      if (!range.shares_bytes(use.range)) {
        continue;
      }
      const bool done = use.job.done();
      if (!done || keep_done) {
        before.push_back(use.job);
      }
      if ((done && !keep_done) || (hide && range.holds(use.range))) {
        forget(4 * four + lane);
      }
    }
  }
}

void DataOrder::Uses::add(const DataRange& range, bool keep_done, const JobRef& job) {
  if (uses_.size() >= (keep_done ? std::max(look_at_, kTracedUses) : look_at_)) {
    forget_done();
  }
  if (uses_.size() % 4 == 0) {
    bounds_.push_back(no_uses());
  }
  uses_.push_back({range, job});
  set_bounds(uses_.size() - 1, first_line(range), end_line(range));
}

void DataOrder::Uses::forget_done() {
  for (size_t i = uses_.size(); i-- > 0;) {
    if (uses_[i].job.done()) {
      forget(i);
    }
  }
  look_at_ = std::max(kLeastUses, 2 * uses_.size());
}

void DataOrder::find(const DataRange& range, bool write, bool hide, std::vector<JobRef>& before) {
  writes_.find(range, traced_, hide, before);
  if (write) {
    reads_.find(range, traced_, hide, before);
  }
}

void DataOrder::find(const DataRange& range, bool write, std::vector<JobRef>& before) {
  find(range, write, false, before);
}

void DataOrder::find_for_next(const DataRange& range, bool write, std::vector<JobRef>& before) {
  find(range, write, write, before);
}

void DataOrder::add(const DataRange& range, bool write, Job& job) {
  const JobRef ref = job.latest();
  traced_ = ref.traced != 0;
  if (!ref.done() || traced_) {
    (write ? writes_ : reads_).add(range, traced_, ref);
  }
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
      use.order->find_for_next(use.range, use.write, before_);
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
