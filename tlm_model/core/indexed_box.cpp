// Record by record copies.
#include "core/indexed_box.hpp"

namespace tpu::model {
namespace {

MemoryView moved(MemoryView view, int64_t offset) {
  if (view.pages == nullptr) {
    view.flat += offset;
  } else {
    view.base += static_cast<uint64_t>(offset);
  }
  return view;
}

}  // namespace

uint64_t first_outside(const IndexedBox& box, const ByteExtent& window, int64_t span) {
  for (size_t r = 0; r < box.list.size(); ++r) {
    // |list value| < 2^31 and unit < 2^32: no overflow with extents below 2^61.
    const int64_t at = box.list[r] * box.unit;
    if (box.list[r] != -1 && (at + window.low < 0 || at + window.high > span)) {
      return r;
    }
  }
  return box.list.size();
}

void copy_records(const IndexedBox& box, const MemoryView& src, const MemoryView& dst, int part,
                  int parts) {
  const uint64_t records = box.list.size();
  const auto p = static_cast<uint64_t>(part), n = static_cast<uint64_t>(parts);
  for (uint64_t r = records * p / n; r < records * (p + 1) / n; ++r) {
    if (box.list[r] == -1) {
      continue;
    }
    const int64_t place = box.list[r] * box.unit;
    const int64_t other = static_cast<int64_t>(r) * box.record_stride;
    copy_box(box.window, moved(src, box.scatter ? other : place),
             moved(dst, box.scatter ? place : other), 0, 1);
  }
}

}  // namespace tpu::model
