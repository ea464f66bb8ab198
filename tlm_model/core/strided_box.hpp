// Copies of counted-stride boxes (spec/command/strided_box.hpp). No SystemC.
#pragma once

#include <array>
#include <cstdint>

#include "command/strided_box.hpp"
#include "kernel/page_set.hpp"

namespace tpu::model {

using spec::BoxSide;
using spec::ByteExtent;
using spec::StridedBox;

// Calls body(offset, bytes, whole) for ranges that together cover what one side touches; strides of
// a page or more are walked, smaller ones covered by their bounding range (then whole is false).
template <typename Body>
void for_each_range(const StridedBox& box, BoxSide side, int64_t page_bytes, Body body) {
  const auto& stride = side == BoxSide::kSrc ? box.src : box.dst;
  std::array<int, StridedBox::kMaxLevels> walked{};
  int walked_count = 0;
  int64_t low = 0;
  int64_t high = static_cast<int64_t>(box.run_bytes);
  for (int level = 0; level < box.levels; ++level) {
    const auto l = static_cast<size_t>(level);
    if (stride[l] >= page_bytes || stride[l] <= -page_bytes) {
      walked[static_cast<size_t>(walked_count++)] = level;
    } else {
      const int64_t reach = static_cast<int64_t>(box.count[l] - 1) * stride[l];
      (reach < 0 ? low : high) += reach;
    }
  }
  const bool whole = spec::box_contiguous(box, side);
  std::array<uint64_t, StridedBox::kMaxLevels> index{};
  for (;;) {
    int64_t offset = low;
    for (int i = 0; i < walked_count; ++i) {
      const auto l = static_cast<size_t>(walked[static_cast<size_t>(i)]);
      offset += static_cast<int64_t>(index[static_cast<size_t>(i)]) * stride[l];
    }
    body(offset, static_cast<uint64_t>(high - low), whole);
    int i = walked_count - 1;
    while (i >= 0 && ++index[static_cast<size_t>(i)] ==
                         box.count[static_cast<size_t>(walked[static_cast<size_t>(i)])]) {
      index[static_cast<size_t>(i--)] = 0;
    }
    if (i < 0) {
      return;
    }
  }
}

// Bytes of an operand: flat memory, or pages of an HBM (then `base` is the address there).
struct MemoryView {
  uint8_t* flat = nullptr;  // address of operand offset 0
  const PageSet* pages = nullptr;
  uint64_t base = 0;
  bool reused =
      false;  // a small memory that is written again and again: stays in the host's caches
};

// Copies part `part` of `parts` of the box; parts cut the outermost level (or the run, if there is
// none).
void copy_box(const StridedBox& box, const MemoryView& src, const MemoryView& dst, int part,
              int parts);
// Writes the low elem_bytes of `pattern` to every element of the destination.
void fill_box(const StridedBox& box, uint64_t pattern, const MemoryView& dst, int part, int parts);

// dst[b][c][r] = src[b][r][c], part of the batch or of the rows. Elements of 1, 2, 4 or 8 bytes.
struct TransposeShape {
  uint32_t elem_bytes = 4;
  uint64_t batch = 1, rows = 1, cols = 1;
  int64_t src_pitch = 0, dst_pitch = 0, src_batch = 0, dst_batch = 0;
};
void transpose_box(const TransposeShape& shape, const uint8_t* src, uint8_t* dst, int part,
                   int parts);

}  // namespace tpu::model
