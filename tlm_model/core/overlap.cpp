// Search for a byte that two runs share. Runs at D + sum x[i] * stride[i], x[i] in known ranges:
// two of them share a byte when that sum comes into a window around 0.
#include "core/overlap.hpp"

#include <algorithm>
#include <vector>

namespace tpu::model {
namespace {

using Wide = __int128;

Wide floor_div(Wide a, Wide b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
Wide ceil_div(Wide a, Wide b) { return -floor_div(-a, b); }

// Does D + sum x * stride fall into [low, high] for some x in their ranges?
class Equation {
 public:
  Equation(Wide low, Wide high) : low_(low), high_(high) {}

  void add(Wide low, Wide high, Wide stride) {
    if (stride < 0) {
      stride = -stride;
      std::swap(low, high);
      low = -low;
      high = -high;
    }
    if (stride == 0 || (low == 0 && high == 0)) {
      return;
    }
    for (Term& term : terms_) {
      if (term.stride == stride) {
        term.low += low;
        term.high += high;
        return;
      }
    }
    terms_.push_back({low, high, stride, 0, 0});
  }

  // `nontrivial`: not all x may be 0.
  bool solvable(bool nontrivial) {
    std::ranges::sort(terms_, std::ranges::greater{}, &Term::stride);
    Wide low = 0, high = 0;
    for (size_t i = terms_.size(); i-- > 0;) {
      terms_[i].rest_low = low;
      terms_[i].rest_high = high;
      low += terms_[i].low * terms_[i].stride;
      high += terms_[i].high * terms_[i].stride;
    }
    steps_ = kOverlapSteps;
    return search(0, 0, nontrivial);
  }

 private:
  struct Term {
    Wide low, high, stride;
    Wide rest_low, rest_high;  // what the terms behind it can add
  };

  bool search(size_t at, Wide sum, bool nontrivial) {
    if (at == terms_.size()) {
      return !nontrivial && sum >= low_ && sum <= high_;
    }
    const Term& term = terms_[at];
    const Wide first = std::max(term.low, ceil_div(low_ - sum - term.rest_high, term.stride));
    const Wide last = std::min(term.high, floor_div(high_ - sum - term.rest_low, term.stride));
    if (at + 1 == terms_.size()) {
      return first < last || (first == last && (!nontrivial || first != 0));
    }
    for (Wide x = first; x <= last; ++x) {
      if (--steps_ < 0 || search(at + 1, sum + x * term.stride, nontrivial && x == 0)) {
        return true;
      }
    }
    return false;
  }

  const Wide low_, high_;
  std::vector<Term> terms_;
  int steps_ = 0;
};

// Bytes [low, high) that a pattern touches.
struct Range {
  Wide low, high;
};
Range range_of(const StridePattern& pattern) {
  Range range{pattern.base(), Wide{pattern.base()} + pattern.run()};
  for (const StridePattern::Level& level : pattern.levels()) {
    const Wide reach = Wide{level.count - 1} * level.stride;
    (reach < 0 ? range.low : range.high) += reach;
  }
  return range;
}

StridePattern transpose_side(const TransposeShape& s, int64_t base, bool src) {
  const uint64_t run = (src ? s.cols : s.rows) * s.elem_bytes;
  StridePattern pattern(base, static_cast<int64_t>(run));
  pattern.add(static_cast<int64_t>(s.batch), src ? s.src_batch : s.dst_batch);
  pattern.add(static_cast<int64_t>(src ? s.rows : s.cols), src ? s.src_pitch : s.dst_pitch);
  return pattern;
}

template <size_t kCount>
void add_levels(StridePattern& pattern, const std::array<int64_t, kCount>& count,
                const std::array<int64_t, kCount>& stride) {
  for (size_t i = 0; i < kCount; ++i) {
    pattern.add(count[i], stride[i]);
  }
}

bool apart(const Operand& a, int64_t at_a, const Operand& b, int64_t at_b) {
  return at_a + a.extent.high <= at_b + b.extent.low || at_b + b.extent.high <= at_a + a.extent.low;
}

}  // namespace

bool share_bytes(const StridePattern& a, const StridePattern& b) {
  const Range ra = range_of(a), rb = range_of(b);
  if (ra.high <= rb.low || rb.high <= ra.low) {
    return false;
  }
  // start of a run of a - start of one of b lies in (-a.run, b.run)
  const Wide distance = Wide{a.base()} - b.base();
  Equation equation(1 - Wide{a.run()} - distance, Wide{b.run()} - 1 - distance);
  for (const StridePattern::Level& level : a.levels()) {
    equation.add(0, level.count - 1, level.stride);
  }
  for (const StridePattern::Level& level : b.levels()) {
    equation.add(0, level.count - 1, -Wide{level.stride});
  }
  return equation.solvable(false);
}

bool repeats_bytes(const StridePattern& pattern) {
  const auto levels = pattern.levels();
  Equation equation(1 - Wide{pattern.run()}, Wide{pattern.run()} - 1);
  for (size_t i = 0; i < levels.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (levels[i].stride == levels[j].stride || levels[i].stride == -levels[j].stride) {
        return true;
      }
    }
    if (levels[i].stride == 0) {
      return true;
    }
    equation.add(1 - levels[i].count, levels[i].count - 1, levels[i].stride);
  }
  return equation.solvable(true);
}

StridePattern box_pattern(const StridedBox& box, BoxSide side, int64_t base) {
  StridePattern pattern(base, static_cast<int64_t>(box.run_bytes));
  for (size_t l = 0; l < static_cast<size_t>(box.levels); ++l) {
    pattern.add(static_cast<int64_t>(box.count[l]),
                side == BoxSide::kSrc ? box.src[l] : box.dst[l]);
  }
  return pattern;
}

StridePattern matmul_out_pattern(const MxuJob& job, int64_t out) {
  StridePattern pattern(out, sizeof(float));
  add_levels(pattern, job.m_count, job.m_out_stride);
  add_levels(pattern, job.n_count, job.n_out_stride);
  return pattern;
}

StridePattern transpose_dst_pattern(const TransposeShape& shape, int64_t dst) {
  return transpose_side(shape, dst, false);
}

bool matmul_overlaps(const MatmulPlan& plan, int64_t out, int64_t lhs, int64_t rhs) {
  const MxuJob& j = plan.job;
  if (!apart(plan.out, out, plan.lhs, lhs)) {
    StridePattern rows(lhs, j.k() * j.lhs_element());
    add_levels(rows, j.t_count, j.t_lhs_stride);
    add_levels(rows, j.m_count, j.m_lhs_stride);
    if (share_bytes(matmul_out_pattern(j, out), rows)) {
      return true;
    }
  }
  if (!apart(plan.out, out, plan.rhs, rhs)) {
    StridePattern weights(rhs, j.rhs_element());
    add_levels(weights, j.t_count, j.t_rhs_stride);
    add_levels(weights, j.k_count, j.k_rhs_stride);
    add_levels(weights, j.n_count, j.n_rhs_stride);
    return share_bytes(matmul_out_pattern(j, out), weights);
  }
  return false;
}

bool transpose_overlaps(const TransposePlan& plan, int64_t src, int64_t dst) {
  return !apart(plan.src, src, plan.dst, dst) &&
         share_bytes(transpose_side(plan.shape, src, true), transpose_side(plan.shape, dst, false));
}

BoxOverlap box_overlap(const StridedBox& box, int64_t src, int64_t dst) {
  const ByteExtent from = spec::box_extent(box, BoxSide::kSrc),
                   to = spec::box_extent(box, BoxSide::kDst);
  if (src + from.high <= dst + to.low || dst + to.high <= src + from.low) {
    return BoxOverlap::kNone;
  }
  const auto levels = static_cast<size_t>(box.levels);
  if (src == dst && std::equal(box.src.begin(), box.src.begin() + levels, box.dst.begin())) {
    return BoxOverlap::kSame;
  }
  return share_bytes(box_pattern(box, BoxSide::kSrc, src), box_pattern(box, BoxSide::kDst, dst))
             ? BoxOverlap::kSome
             : BoxOverlap::kNone;
}

}  // namespace tpu::model
