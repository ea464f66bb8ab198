// Normal form, extents and granules of strided boxes.
#include "command/strided_box.hpp"

#include <algorithm>

namespace tpu::spec {

StridedBox normalise_box(uint32_t elem_bytes, const std::array<uint32_t, 5>& counts,
                         const std::array<int64_t, 5>* src_strides,
                         const std::array<int64_t, 5>& dst_strides) {
  StridedBox box;
  box.elem_bytes = elem_bytes;
  box.run_bytes = elem_bytes;
  box.total_bytes = elem_bytes;
  for (const uint32_t count : counts) {
    box.total_bytes *= count;
  }
  if (box.total_bytes == 0) {
    return box;
  }
  // From the innermost loop outwards: what continues the run or the level before is merged.
  for (size_t i = counts.size(); i-- > 0;) {
    const uint64_t count = counts[i];
    const int64_t dst = dst_strides[i];
    if (count == 1) {
      continue;
    }
    const bool is_fill = src_strides == nullptr;
    const auto run = static_cast<int64_t>(box.run_bytes);
    if (box.levels == 0 && dst == run && (is_fill || (*src_strides)[i] == run)) {
      box.run_bytes *= count;
      continue;
    }
    const int64_t src = is_fill ? 0 : (*src_strides)[i];
    if (box.levels > 0) {
      const auto l = static_cast<size_t>(box.levels - 1);
      const auto inner = static_cast<int64_t>(box.count[l]);
      if (dst == box.dst[l] * inner && (is_fill || src == box.src[l] * inner)) {
        box.count[l] *= count;
        continue;
      }
    }
    const auto l = static_cast<size_t>(box.levels++);
    box.count[l] = count;
    box.src[l] = src;
    box.dst[l] = dst;
  }
  std::reverse(box.count.begin(), box.count.begin() + box.levels);
  std::reverse(box.src.begin(), box.src.begin() + box.levels);
  std::reverse(box.dst.begin(), box.dst.begin() + box.levels);
  return box;
}

ByteExtent box_extent(const StridedBox& box, BoxSide side) {
  ByteExtent extent{0, static_cast<int64_t>(box.run_bytes)};
  const auto& stride = side == BoxSide::kSrc ? box.src : box.dst;
  for (size_t l = 0; l < static_cast<size_t>(box.levels); ++l) {
    const int64_t reach = static_cast<int64_t>(box.count[l] - 1) * stride[l];
    (reach < 0 ? extent.low : extent.high) += reach;
  }
  return extent;
}

uint64_t box_granule_bytes(const StridedBox& box, BoxSide side, uint64_t granule) {
  if (box.total_bytes == 0) {
    return 0;
  }
  const auto& stride = side == BoxSide::kSrc ? box.src : box.dst;
  uint64_t run = box.run_bytes;
  for (size_t l = static_cast<size_t>(box.levels); l-- > 0;) {
    if (stride[l] != static_cast<int64_t>(run)) {
      break;
    }
    run *= box.count[l];
  }
  return box.total_bytes / run * ((run + granule - 1) / granule * granule);
}

bool box_contiguous(const StridedBox& box, BoxSide side) {
  const auto& stride = side == BoxSide::kSrc ? box.src : box.dst;
  auto run = static_cast<int64_t>(box.run_bytes);
  for (size_t l = static_cast<size_t>(box.levels); l-- > 0;) {
    if (stride[l] != run) {
      return false;
    }
    run *= static_cast<int64_t>(box.count[l]);
  }
  return true;
}

}  // namespace tpu::spec
