// Copies of windows by a list of places (dma_indexed): the windows' normal form, their place in
// memory, and the copy itself. No SystemC.
#pragma once

#include <cstdint>
#include <vector>

#include "core/strided_box.hpp"

namespace tpu::model {

// Record r: the window from (or, scattered, to) `unit` * list[r], skipped where list[r] is -1; the
// other side is at r * record_stride. All list values have been checked.
struct IndexedBox {
  StridedBox window;
  bool scatter = false;
  int64_t unit = 0;
  int64_t record_stride = 0;
  std::vector<int32_t> list;  // reused from command to command

  BoxSide indexed_side() const { return scatter ? BoxSide::kDst : BoxSide::kSrc; }
};

// The first record whose window, [window.low, window.high) from where its list value points, is
// not inside [0, span); the number of records if there is none.
uint64_t first_outside(const IndexedBox& box, const ByteExtent& window, int64_t span);

// Copies records of part `part` of `parts`. A scatter must be done in one part: windows may meet.
void copy_records(const IndexedBox& box, const MemoryView& src, const MemoryView& dst, int part,
                  int parts);

}  // namespace tpu::model
