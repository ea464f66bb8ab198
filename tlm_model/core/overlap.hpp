// Whether counted-stride patterns share bytes: with each other, or one with itself. Exact, without
// walking the patterns: the question is a bounded linear equation, solved stride by stride from the
// largest. No SystemC.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/program.hpp"

namespace tpu::model {

// A set of runs of `run` bytes at all combinations of counted strides, from `base` on.
class StridePattern {
 public:
  struct Level {
    int64_t count;
    int64_t stride;
  };

  StridePattern(int64_t base, int64_t run) : base_(base), run_(run) {}

  // Counts are at least 1.
  void add(int64_t count, int64_t stride) {
    if (count > 1) {
      levels_[levels_count_++] = {count, stride};
    }
  }

  int64_t base() const { return base_; }
  int64_t run() const { return run_; }
  std::span<const Level> levels() const { return std::span(levels_).first(levels_count_); }

 private:
  int64_t base_;
  int64_t run_;
  std::array<Level, 8> levels_{};  // a matmul's weights have the most
  size_t levels_count_ = 0;
};

// Patterns that are so irregular that kOverlapSteps steps of the search do not settle the question
// count as sharing bytes (spec/isa/commands.toml, Overlap).
inline constexpr int kOverlapSteps = 1 << 20;

// Some byte belongs to both.
bool share_bytes(const StridePattern& a, const StridePattern& b);
// Some byte belongs to two runs of the pattern.
bool repeats_bytes(const StridePattern& pattern);

// One side of a box whose offset 0 is at `base`.
StridePattern box_pattern(const StridedBox& box, BoxSide side, int64_t base);

// What a matmul writes and reads, and what a transpose does; addresses of the operands.
StridePattern matmul_out_pattern(const MxuJob& job, int64_t out);
StridePattern transpose_dst_pattern(const TransposeShape& shape, int64_t dst);
// The operands lie in one memory; extents that are apart cost nothing.
bool matmul_overlaps(const MatmulPlan& plan, int64_t out, int64_t lhs, int64_t rhs);
bool transpose_overlaps(const TransposePlan& plan, int64_t src, int64_t dst);

enum class BoxOverlap {
  kNone,
  kSame,  // every element is copied onto itself
  kSome,
};
// Source and destination of a copy inside one memory.
BoxOverlap box_overlap(const StridedBox& box, int64_t src, int64_t dst);

}  // namespace tpu::model
