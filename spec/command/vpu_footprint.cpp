// Footprints, axis by axis.
#include "command/vpu_footprint.hpp"

#include <algorithm>

namespace tpu::spec {
namespace {

void add_reach(ByteExtent& extent, const StridePattern::Level& level) {
  const int64_t reach = (level.count - 1) * level.stride;
  (reach < 0 ? extent.low : extent.high) += reach;
}

}  // namespace

VpuSectionSpans vpu_sections(const VpuProgramHeader& header, std::span<const VpuInsn> code) {
  VpuSectionSpans result;
  size_t at = 0;
  for (size_t s = 0; s < result.size(); ++s) {
    result[s] = code.subspan(at, header.section[s]);
    at += header.section[s];
  }
  return result;
}

int vpu_element_bytes(uint8_t elem) {
  switch (static_cast<Elem>(elem)) {
    case Elem::kF32:
    case Elem::kI32:
    case Elem::kUi32:
      return 4;
    case Elem::kBf16:
    case Elem::kI16:
    case Elem::kUi16:
      return 2;
    case Elem::kI8:
    case Elem::kUi8:
    case Elem::kI1:
      return 1;
    default:
      return 0;
  }
}

bool is_vpu_store(const VpuInsn& insn) { return static_cast<VpuOp>(insn.op) == VpuOp::kStore; }

bool is_vpu_memory_op(const VpuInsn& insn) {
  return is_vpu_store(insn) || static_cast<VpuOp>(insn.op) == VpuOp::kLoad;
}

// Blocks are walked if they have a stride.
VpuFootprint::Axis VpuFootprint::axis(int64_t total, int64_t block, const Touched& touched,
                                      int64_t stride, std::optional<int64_t> block_stride) {
  const auto elements = [&](int64_t valid) {
    const int64_t reached = std::min(valid, touched.limit);
    return Level{(reached + touched.every - 1) / touched.every, touched.every * stride};
  };
  const bool whole = touched.limit == block && touched.every == 1;
  const int64_t full = total / block, last = total % block;
  Axis result;
  result.hull.elements = elements(std::min(total, block));
  if (block_stride && whole && *block_stride == block * stride) {
    result.hull.elements = {total, stride};
  } else if (block_stride) {
    result.hull.places = {full + (last != 0 ? 1 : 0), *block_stride};
    if (full != 0 && last != 0 && elements(last).count != elements(block).count) {
      result.parts = 2;
      result.part[0] = {0, {full, *block_stride}, elements(block)};
      result.part[1] = {full * *block_stride, {1, 0}, elements(last)};
      return result;
    }
  }
  result.part[0] = result.hull;
  return result;
}

VpuFootprint::VpuFootprint(const VpuKernelCommand& c, const VpuAccess& a, const VpuInsn& insn,
                           VpuLoopMask loops)
    : element_bytes_(vpu_element_bytes(a.type)) {
  const auto block_stride = [&](size_t loop) {
    const bool walks = loop < c.loops.size() && (loops >> loop & 1) != 0;
    return walks ? std::optional<int64_t>(a.loop[loop]) : std::nullopt;
  };
  for (size_t d = 0; d < c.loops.size(); ++d) {
    if (d != c.row_loop && d != c.col_loop && block_stride(d)) {
      others_[others_count_++] = {c.loops[d], a.loop[d]};
    }
  }
  const auto mode = static_cast<VpuStoreMode>(insn.rs2);
  const bool element0 = mode == VpuStoreMode::kElement0;
  const bool sublane0 = is_vpu_store(insn) && (element0 || mode == VpuStoreMode::kSublane0);
  const bool lane0 = is_vpu_store(insn) && (element0 || mode == VpuStoreMode::kLane0);
  if (c.flat()) {  // sublane 0 is the first elements of a block, lane 0 every kVpuLanes-th
    const Touched touched{sublane0 ? kVpuLanes : kVpuBlock, lane0 ? kVpuLanes : 1};
    cols_ = axis(c.cols, kVpuBlock, touched, a.lane, block_stride(c.col_loop));
    return;
  }
  rows_ =
      axis(c.rows, kVpuSublanes, {sublane0 ? 1 : kVpuSublanes, 1}, a.sub, block_stride(c.row_loop));
  cols_ = axis(c.cols, kVpuLanes, {lane0 ? 1 : kVpuLanes, 1}, a.lane, block_stride(c.col_loop));
}

ByteExtent VpuFootprint::extent_of(const Axis& axis) {
  ByteExtent result{INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < axis.parts; ++i) {
    const Blocks& blocks = axis.part[i];
    ByteExtent reach{blocks.offset, blocks.offset};
    add_reach(reach, blocks.places);
    add_reach(reach, blocks.elements);
    result = {std::min(result.low, reach.low), std::max(result.high, reach.high)};
  }
  return result;
}

ByteExtent VpuFootprint::extent() const {
  const ByteExtent rows = extent_of(rows_), cols = extent_of(cols_);
  ByteExtent result{rows.low + cols.low, rows.high + cols.high + element_bytes_};
  for (size_t i = 0; i < others_count_; ++i) {
    add_reach(result, others_[i]);
  }
  return result;
}

StridePattern VpuFootprint::pattern(const Blocks& rows, const Blocks& cols) const {
  StridePattern result(rows.offset + cols.offset, element_bytes_);
  for (size_t i = 0; i < others_count_; ++i) {
    result.add(others_[i].count, others_[i].stride);
  }
  for (const Level& level : {rows.places, rows.elements, cols.places, cols.elements}) {
    result.add(level.count, level.stride);
  }
  return result;
}

std::vector<StridePattern> VpuFootprint::patterns() const {
  std::vector<StridePattern> result;
  for (size_t r = 0; r < rows_.parts; ++r) {
    for (size_t c = 0; c < cols_.parts; ++c) {
      result.push_back(pattern(rows_.part[r], cols_.part[c]));
    }
  }
  return result;
}

StridePattern VpuFootprint::hull() const { return pattern(rows_.hull, cols_.hull); }

CommandOperand operand(const VpuKernelCommand& c, const VpuAccess& a, const VpuInsn& insn) {
  return {a.addr, VpuFootprint(c, a, insn, kVpuAllLoops).hull(), is_vpu_store(insn)};
}

}  // namespace tpu::spec
