// Counted-stride boxes of transfers: normal form, extents, cost in granules. The copy itself is the
// model's.
#pragma once

#include <array>
#include <cstdint>

#include "tpu/spec/rtl_units.hpp"

namespace tpu::spec {

// Normal form of a box of elements on two sides: `levels` counted strides (outermost first), inside
// them a run of `run_bytes` that is contiguous on both sides. A fill has no source; its strides
// there are zero.
struct StridedBox {
  static constexpr int kMaxLevels = rtl::kDmaLevels;

  int levels = 0;
  std::array<uint64_t, kMaxLevels> count{};
  std::array<int64_t, kMaxLevels> src{};  // bytes
  std::array<int64_t, kMaxLevels> dst{};
  uint64_t run_bytes = 0;
  uint32_t elem_bytes = 0;
  uint64_t total_bytes = 0;  // 0: empty box
};

StridedBox normalise_box(uint32_t elem_bytes, const std::array<uint32_t, 5>& counts,
                         const std::array<int64_t, 5>* src_strides,
                         const std::array<int64_t, 5>& dst_strides);

// Bytes [low, high) that one side touches, relative to its address.
struct ByteExtent {
  int64_t low = 0;
  int64_t high = 0;
  ByteExtent at(int64_t base) const { return {base + low, base + high}; }
};
enum class BoxSide { kSrc, kDst };
ByteExtent box_extent(const StridedBox& box, BoxSide side);

// Bytes that a side costs: each of its contiguous runs rounded up to granules.
uint64_t box_granule_bytes(const StridedBox& box, BoxSide side, uint64_t granule);

// One side is a single run without holes.
bool box_contiguous(const StridedBox& box, BoxSide side);

}  // namespace tpu::spec
