// Sets of bytes at counted strides: whether they share bytes, with each other or one with itself,
// and their runs one by one. The question is answered exactly and without walking the patterns: it
// is a bounded linear equation, solved stride by stride from the largest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "command/strided_box.hpp"

namespace tpu::spec {

// A set of runs of `run` bytes at all combinations of counted strides, from `base` on.
class StridePattern {
 public:
  struct Level {
    int64_t count;
    int64_t stride;
  };

  StridePattern() = default;
  StridePattern(int64_t base, int64_t run) : base_(base), run_(run) {}

  // Counts are at least 1.
  void add(int64_t count, int64_t stride) {
    if (count > 1) {
      levels_[levels_count_++] = {count, stride};
    }
  }

  // The same pattern from another base on.
  StridePattern at(int64_t base) const {
    StridePattern moved = *this;
    moved.base_ = base;
    return moved;
  }

  int64_t base() const { return base_; }
  // Bytes [low, high) that it touches; limited to +-2^60, where no memory is.
  ByteExtent extent() const;
  int64_t run() const { return run_; }
  std::span<const Level> levels() const { return std::span(levels_).first(levels_count_); }

 private:
  int64_t base_ = 0;
  int64_t run_ = 0;
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

// All bytes of its extent belong to the pattern, as its strides alone show.
bool is_one_run(const StridePattern& pattern);

// Calls visit(address, bytes) for runs that together are the pattern, as few and as long as its
// strides let them be; runs may meet.
void visit_runs(const StridePattern& pattern,
                const std::function<void(int64_t address, int64_t bytes)>& visit);

// One side of a box whose offset 0 is at `base`.
StridePattern box_pattern(const StridedBox& box, BoxSide side, int64_t base);

}  // namespace tpu::spec
