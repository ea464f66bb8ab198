// Cutting of jobs for the fast engine.
#include "mxu/mxu_fast_plan.hpp"

#include <algorithm>
#include <cstdlib>

namespace tpu::model {
namespace {

// Appends the offsets of indices [begin, end) of a counted-stride nest (index 0 outermost), which
// count from `base`.
template <size_t kLevels>
void add_offsets(const std::array<int64_t, kLevels>& count,
                 const std::array<int64_t, kLevels>& stride, int64_t begin, int64_t end,
                 int64_t base, std::vector<int64_t>& to) {
  constexpr size_t kInner = kLevels - 1;
  std::array<int64_t, kLevels> index{};
  int64_t rest = begin;
  for (size_t level = kLevels; level-- > 0;) {
    index[level] = rest % count[level];
    rest /= count[level];
  }
  const size_t size = to.size();
  to.resize(size + static_cast<size_t>(std::max<int64_t>(end - begin, 0)));
  int64_t* at = to.data() + size;
  while (begin < end) {
    int64_t offset = base;
    for (size_t level = 0; level < kLevels; ++level) {
      offset += index[level] * stride[level];
    }
    const int64_t run = std::min(end - begin, count[kInner] - index[kInner]);
    for (int64_t i = 0; i < run; ++i) {
      at[i] = offset + i * stride[kInner];
    }
    at += run;
    begin += run;
    index[kInner] = 0;
    for (size_t level = kInner; level-- > 0 && ++index[level] == count[level];) {
      index[level] = 0;
    }
  }
}

// Bytes from `base` to `place`, which may lie in the memory of another core.
int64_t apart(const uint8_t* place, const uint8_t* base) {
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(place) - reinterpret_cast<intptr_t>(base));
}

}  // namespace

void MxuFastPlan::make(std::span<const MxuJob> jobs, const spec::MxuShape& shape, int64_t nr) {
  const MxuJob& first = jobs.front();
  row_lhs.clear();
  row_out.clear();
  k_rhs.clear();
  job_rows.clear();
  for (const MxuJob& job : jobs) {
    const int64_t end = job.row_begin + job.rows();
    job_rows.push_back({.first = row_lhs.size(), .count = static_cast<size_t>(job.rows())});
    add_offsets(job.m_count, job.m_lhs_stride, job.row_begin, end, apart(job.lhs, first.lhs),
                row_lhs);
    add_offsets(job.m_count, job.m_out_stride, job.row_begin, end, apart(job.out, first.out),
                row_out);
  }
  add_offsets(first.k_count, first.k_rhs_stride, 0, first.k(), 0, k_rhs);
  make_segments(first, static_cast<int64_t>(shape.rows));
  make_panels(first, nr);
}

void MxuFastPlan::make_segments(const MxuJob& job, int64_t tile_rows) {
  segments.clear();
  for (int64_t t0 = 0; t0 < job.t_count[0]; ++t0) {
    for (int64_t t1 = 0; t1 < job.t_count[1]; ++t1) {
      for (int64_t t2 = 0; t2 < job.t_count[2]; ++t2) {
        const int64_t lhs =
            t0 * job.t_lhs_stride[0] + t1 * job.t_lhs_stride[1] + t2 * job.t_lhs_stride[2];
        const int64_t rhs =
            t0 * job.t_rhs_stride[0] + t1 * job.t_rhs_stride[1] + t2 * job.t_rhs_stride[2];
        for (int64_t tile = 0; tile < job.k(); tile += tile_rows) {
          const int64_t end = std::min(job.k(), tile + tile_rows);
          for (int64_t k = tile; k < end; k += kMxuSegment) {
            segments.push_back({.lhs_offset = lhs + k * job.lhs_element(),
                                .rhs_tap = rhs,
                                .k_first = k,
                                .k = std::min(kMxuSegment, end - k),
                                .pad = false});
          }
          segments.back().pad = end - tile <= tile_rows - kMxuSegment;
        }
      }
    }
  }
}

void MxuFastPlan::make_panels(const MxuJob& job, int64_t nr) {
  panels.clear();
  const int64_t outer_count = job.n_count[0];
  const int64_t inner = job.n_count[1];
  if (inner >= nr || outer_count == 1) {
    for (int64_t outer = 0; outer < outer_count; ++outer) {
      for (int64_t n = 0; n < inner; n += nr) {
        panels.push_back({.rhs_offset = outer * job.n_rhs_stride[0] + n * job.n_rhs_stride[1],
                          .out_offset = outer * job.n_out_stride[0] + n * job.n_out_stride[1],
                          .count = std::min(nr, inner - n),
                          .rhs_columns = nullptr,
                          .out_columns = nullptr});
      }
    }
    return;
  }
  // Short inner runs: columns of several fill a panel. Each column sums on its own, so this changes
  // no result.
  const int64_t columns = job.n();
  columns_.resize(static_cast<size_t>(2 * columns));
  int64_t* const rhs = columns_.data();
  int64_t* const out = rhs + columns;
  for (int64_t n = 0; n < columns; ++n) {
    rhs[n] = n / inner * job.n_rhs_stride[0] + n % inner * job.n_rhs_stride[1];
    out[n] = n / inner * job.n_out_stride[0] + n % inner * job.n_out_stride[1];
  }
  // Results often lie side by side all the same.
  const bool out_runs_on = job.n_out_stride[0] == inner * job.n_out_stride[1];
  for (int64_t n = 0; n < columns; n += nr) {
    panels.push_back({.rhs_offset = 0,
                      .out_offset = out_runs_on ? out[n] : 0,
                      .count = std::min(nr, columns - n),
                      .rhs_columns = rhs + n,
                      .out_columns = out_runs_on ? nullptr : out + n});
  }
}

bool MxuFastPlan::fits_slots(const MxuJob& job, const MxuRows& rows,
                             const MxuKernelSet& set) const {
  const int64_t step = job.lhs_element() * set.range_step;  // a power of two
  for (const MxuSegment& segment : segments) {
    if ((segment.lhs_offset - segments.front().lhs_offset) % step != 0 ||
        segment.k % set.range_terms != 0) {
      return false;
    }
  }
  const int64_t* const row = row_lhs.data() + rows.first;
  const auto count = static_cast<int64_t>(rows.count);
  int64_t apart = 0;  // bits that any row has beside the first one's
  for (int64_t i = 0; i < count; ++i) {
    apart |= row[i] - row[0];
  }
  if ((apart & (step - 1)) != 0) {
    return false;
  }
  int64_t runs = 0;
  for (int64_t i = 0; set.even_rows > 1 && i < count; ++runs) {
    i += even_run(row + i, count - i);
  }
  return runs <= (count - 1) / set.even_rows + 1;
}

bool MxuFastPlan::lhs_in_place(const MxuJob& job, const MxuKernelSet& set) const {
  return set.bf16_in_place && job.lhs_is_bf16 &&
         fits_slots(job, {.first = 0, .count = row_lhs.size()}, set);
}

// Worth it when the range is hardly larger than what a packed copy would hold (it is much smaller
// when taps overlap), when rows do not meet in the same cache sets, and when each of several jobs
// has a run of rows of its own. Kernels that read bf16 in place do not know it as a range.
MxuLhsRange MxuFastPlan::lhs_range(const MxuJob& job, const MxuRows& rows,
                                   const MxuKernelSet& set) const {
  constexpr int64_t kMaxElements = int64_t{1} << 20;
  constexpr int64_t kBadPitch = 512;  // elements: multiples of it share few cache sets
  const int64_t element = job.lhs_element();
  const int64_t* const row = row_lhs.data() + rows.first;
  const auto ends = std::minmax_element(row, row + rows.count);
  int64_t low = segments.front().lhs_offset;
  int64_t high = low;
  for (const MxuSegment& segment : segments) {
    low = std::min(low, segment.lhs_offset);
    high = std::max(high, segment.lhs_offset + segment.k * element);
  }
  MxuLhsRange range;
  range.first = low + *ends.first;
  range.count = (high + *ends.second - range.first) / element;
  const int64_t packed = static_cast<int64_t>(rows.count) * job.taps() * job.k();
  const int64_t pitch = rows.count < 2 ? 0 : std::llabs(row[1] - row[0]) / element;
  const bool even = job_rows.size() == 1 || static_cast<int64_t>(rows.count) >= set.even_rows;
  range.use = even && !(set.bf16_in_place && job.lhs_is_bf16) && range.count <= kMaxElements &&
              range.count <= packed + packed / 4 && (pitch < kBadPitch || pitch % kBadPitch != 0) &&
              fits_slots(job, rows, set);
  return range;
}

}  // namespace tpu::model
