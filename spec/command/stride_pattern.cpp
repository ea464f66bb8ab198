// Search for a byte that two runs share. Runs at D + sum x[i] * stride[i], x[i] in known ranges:
// two of them share a byte when that sum comes into a window around 0.
#include "command/stride_pattern.hpp"

#include <algorithm>
#include <functional>
#include <vector>

namespace tpu::spec {
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

// The same set of bytes with as few and as long runs as possible: backward levels turned round,
// levels in ascending order of stride, and what continues or overlaps what lies inside it folded
// in (taps of a window, elements of a transposed load). Changes base and run; the innermost level
// comes first.
std::vector<StridePattern::Level> merged_levels(const StridePattern& pattern, int64_t& base,
                                                int64_t& run) {
  std::vector<StridePattern::Level> levels(pattern.levels().begin(), pattern.levels().end());
  std::erase_if(levels, [](const auto& level) { return level.stride == 0; });
  for (StridePattern::Level& level : levels) {
    if (level.stride < 0) {
      base += (level.count - 1) * level.stride;
      level.stride = -level.stride;
    }
  }
  std::ranges::stable_sort(levels, {}, &StridePattern::Level::stride);
  std::vector<StridePattern::Level> kept;
  for (const StridePattern::Level& level : levels) {
    if (kept.empty() && level.stride <= run) {
      run += (level.count - 1) * level.stride;
      continue;
    }
    // Steps of a multiple of the stride inside it that leave no gap: one longer level.
    if (!kept.empty() && level.stride % kept.back().stride == 0 &&
        level.stride / kept.back().stride <= kept.back().count) {
      kept.back().count += (level.count - 1) * (level.stride / kept.back().stride);
      continue;
    }
    kept.push_back(level);
  }
  return kept;
}

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

}  // namespace

ByteExtent StridePattern::extent() const {
  constexpr Wide kLimit = Wide{1} << 60;
  const Range range = range_of(*this);
  return {static_cast<int64_t>(std::clamp(range.low, -kLimit, kLimit)),
          static_cast<int64_t>(std::clamp(range.high, -kLimit, kLimit))};
}

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

bool is_one_run(const StridePattern& pattern) {
  int64_t base = pattern.base(), run = pattern.run();
  return merged_levels(pattern, base, run).empty();
}

void visit_runs(const StridePattern& pattern,
                const std::function<void(int64_t address, int64_t bytes)>& visit) {
  int64_t base = pattern.base(), run = pattern.run();
  const std::vector<StridePattern::Level> levels = merged_levels(pattern, base, run);
  std::vector<int64_t> index(levels.size(), 0);
  for (;;) {
    int64_t address = base;
    for (size_t i = 0; i < levels.size(); ++i) {
      address += index[i] * levels[i].stride;
    }
    visit(address, run);
    size_t i = 0;
    while (i < levels.size() && ++index[i] == levels[i].count) {
      index[i++] = 0;
    }
    if (i == levels.size()) {
      return;
    }
  }
}

StridePattern box_pattern(const StridedBox& box, BoxSide side, int64_t base) {
  StridePattern pattern(base, static_cast<int64_t>(box.run_bytes));
  for (size_t l = 0; l < static_cast<size_t>(box.levels); ++l) {
    pattern.add(static_cast<int64_t>(box.count[l]),
                side == BoxSide::kSrc ? box.src[l] : box.dst[l]);
  }
  return pattern;
}

}  // namespace tpu::spec
