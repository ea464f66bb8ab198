// Copies of strided boxes between flat memory and paged HBM.
#include "core/strided_box.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/host_vector.hpp"

namespace tpu::model {
namespace {

constexpr uint64_t kPageBytes = uint64_t{1} << PageSet::kPageShift;
constexpr uint64_t kStreamBytes = 64 * 1024;  // of a whole copy
constexpr uint64_t kStreamRun = 256;          // of its runs
constexpr uint64_t kLine = 64;
constexpr int64_t kAhead = 2048;  // bytes that a copy asks memory for; more is no faster

uint8_t* address_of(const MemoryView& view, int64_t offset) {
  return view.pages == nullptr ? view.flat + offset
                               : view.pages->at(view.base + static_cast<uint64_t>(offset));
}

// Bytes from `offset` on that are contiguous in host memory.
uint64_t contiguous_from(const MemoryView& view, int64_t offset) {
  return view.pages == nullptr
             ? UINT64_MAX
             : kPageBytes - ((view.base + static_cast<uint64_t>(offset)) & PageSet::kPageMask);
}

void stream_vector(uint8_t* to, const uint8_t* from) { stream16(to, load16(from)); }

// Large copies go around the caches: the memories of eight cores are many times larger than these,
// and a line that is written whole need not be fetched first. Only whole lines do so, since a line
// that is written both ways costs more than either; `joined` promises that the next run begins
// where this one ends, so that the lines between runs become whole too.
// `ahead`: from each line to the one that is asked for.
void stream_copy(uint8_t* to, const uint8_t* from, uint64_t bytes, int64_t ahead, bool joined) {
  constexpr uint64_t kVector = sizeof(Vector16);
  uint64_t at = 0;
  if (joined && reinterpret_cast<uintptr_t>(to) % kVector == 0 && bytes % kVector == 0) {
    for (; reinterpret_cast<uintptr_t>(to + at) % kLine != 0 && at < bytes; at += kVector) {
      stream_vector(to + at, from + at);
    }
  } else {
    at = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
    std::memcpy(to, from, at);
    joined = false;
  }
  for (; at + kLine <= bytes; at += kLine) {
    // Into the second-level cache: an Intel host reads at a third of the pace with the hint NTA.
    ask_for(from + at + ahead);
    stream_vector(to + at, from + at);
    stream_vector(to + at + kVector, from + at + kVector);
    stream_vector(to + at + 2 * kVector, from + at + 2 * kVector);
    stream_vector(to + at + 3 * kVector, from + at + 3 * kVector);
  }
  if (joined) {
    for (; at < bytes; at += kVector) {
      stream_vector(to + at, from + at);
    }
  } else {
    std::memcpy(to + at, from + at, bytes - at);
  }
}

// How the runs of a box are written.
enum class CopyMode { kCached, kStream, kStreamJoined };

// From a byte of the innermost level's runs to that which is read kAhead bytes later: short runs
// that lie apart have it some strides on.
int64_t ahead_of(const StridedBox& box, CopyMode mode) {
  const auto run = static_cast<int64_t>(box.run_bytes);
  if (mode == CopyMode::kCached || run >= kAhead) {
    return kAhead;
  }
  return (kAhead + run - 1) / run * box.src[static_cast<size_t>(box.levels - 1)];
}

void copy_run(const MemoryView& src, int64_t src_offset, const MemoryView& dst, int64_t dst_offset,
              uint64_t bytes, int64_t ahead, CopyMode mode) {
  while (bytes > 0) {
    const uint64_t part =
        std::min({bytes, contiguous_from(src, src_offset), contiguous_from(dst, dst_offset)});
    if (mode != CopyMode::kCached && part >= kLine) {
      stream_copy(address_of(dst, dst_offset), address_of(src, src_offset), part, ahead,
                  mode == CopyMode::kStreamJoined);
    } else {
      std::memcpy(address_of(dst, dst_offset), address_of(src, src_offset), part);
    }
    src_offset += static_cast<int64_t>(part);
    dst_offset += static_cast<int64_t>(part);
    bytes -= part;
  }
}

// `bytes` is a multiple of `elem`, which divides 8; the pattern is repeated from its low byte.
void fill_run(uint64_t pattern, uint32_t elem, const MemoryView& dst, int64_t offset,
              uint64_t bytes) {
  for (uint32_t width = elem; width < 8; width *= 2) {
    pattern |= pattern << (8 * width);
  }
  while (bytes > 0) {
    const uint64_t part = std::min(bytes, contiguous_from(dst, offset));
    uint8_t* out = address_of(dst, offset);
    if (pattern == 0) {
      std::memset(out, 0, part);
    } else {
      uint64_t at = 0;
      for (; at + 8 <= part; at += 8) {
        std::memcpy(out + at, &pattern, 8);
      }
      std::memcpy(out + at, &pattern, part - at);
      const auto used = static_cast<int>(8 * (part - at));  // where the next page goes on
      pattern = std::rotr(pattern, used);
    }
    offset += static_cast<int64_t>(part);
    bytes -= part;
  }
}

template <typename T>
void copy_elements(uint64_t count, const uint8_t* src, int64_t src_stride, uint8_t* dst,
                   int64_t dst_stride) {
  for (uint64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, src, sizeof value);
    std::memcpy(dst, &value, sizeof value);
    src += src_stride;
    dst += dst_stride;
  }
}

// Innermost level of a box between flat memories.
void copy_level(const StridedBox& box, const uint8_t* src, uint8_t* dst, CopyMode mode) {
  const auto l = static_cast<size_t>(box.levels - 1);
  if (mode != CopyMode::kCached) {
    const int64_t ahead = ahead_of(box, mode);
    for (uint64_t i = 0; i < box.count[l]; ++i, src += box.src[l], dst += box.dst[l]) {
      stream_copy(dst, src, box.run_bytes, ahead, mode == CopyMode::kStreamJoined);
    }
    return;
  }
  switch (box.run_bytes) {
    case 1:
      return copy_elements<uint8_t>(box.count[l], src, box.src[l], dst, box.dst[l]);
    case 2:
      return copy_elements<uint16_t>(box.count[l], src, box.src[l], dst, box.dst[l]);
    case 4:
      return copy_elements<uint32_t>(box.count[l], src, box.src[l], dst, box.dst[l]);
    case 8:
      return copy_elements<uint64_t>(box.count[l], src, box.src[l], dst, box.dst[l]);
    default:
      for (uint64_t i = 0; i < box.count[l]; ++i) {
        std::memcpy(dst, src, box.run_bytes);
        src += box.src[l];
        dst += box.dst[l];
      }
  }
}

// Innermost level of short runs where a side lies in pages: a run that stays inside its pages is
// copied by its pointers.
template <typename T>
void copy_paged_elements(const StridedBox& box, const MemoryView& src, int64_t from,
                         const MemoryView& dst, int64_t to) {
  const auto l = static_cast<size_t>(box.levels - 1);
  for (uint64_t i = 0; i < box.count[l]; ++i, from += box.src[l], to += box.dst[l]) {
    if (contiguous_from(src, from) >= sizeof(T) && contiguous_from(dst, to) >= sizeof(T)) {
      T value;
      std::memcpy(&value, address_of(src, from), sizeof value);
      std::memcpy(address_of(dst, to), &value, sizeof value);
    } else {
      copy_run(src, from, dst, to, sizeof(T), 0, CopyMode::kCached);
    }
  }
}

void copy_paged_level(const StridedBox& box, const MemoryView& src, int64_t from,
                      const MemoryView& dst, int64_t to, CopyMode mode) {
  const auto l = static_cast<size_t>(box.levels - 1);
  const int64_t ahead = ahead_of(box, mode);
  switch (box.run_bytes) {
    case 1:
      return copy_paged_elements<uint8_t>(box, src, from, dst, to);
    case 2:
      return copy_paged_elements<uint16_t>(box, src, from, dst, to);
    case 4:
      return copy_paged_elements<uint32_t>(box, src, from, dst, to);
    case 8:
      return copy_paged_elements<uint64_t>(box, src, from, dst, to);
    default:
      for (uint64_t i = 0; i < box.count[l]; ++i, from += box.src[l], to += box.dst[l]) {
        copy_run(src, from, dst, to, box.run_bytes, ahead, mode);
      }
  }
}

// Runs body(src offset, dst offset) for the box's loops [first level, last), outermost level cut to
// [begin, end).
template <typename Body>
void for_each_index(const StridedBox& box, int levels, uint64_t begin, uint64_t end, Body body) {
  std::array<uint64_t, StridedBox::kMaxLevels> index{};
  index[0] = begin;
  if (levels > 0 && begin >= end) {
    return;
  }
  for (;;) {
    int64_t src = 0;
    int64_t dst = 0;
    for (int level = 0; level < levels; ++level) {
      const auto l = static_cast<size_t>(level);
      src += static_cast<int64_t>(index[l]) * box.src[l];
      dst += static_cast<int64_t>(index[l]) * box.dst[l];
    }
    body(src, dst);
    int level = levels - 1;
    while (level >= 0) {
      const auto l = static_cast<size_t>(level);
      if (++index[l] < (level == 0 ? end : box.count[l])) {
        break;
      }
      index[l] = 0;
      --level;
    }
    if (level < 0) {
      return;
    }
  }
}

struct PartRange {
  uint64_t begin, end;
};
PartRange part_of(uint64_t total, int part, int parts) {
  const auto p = static_cast<uint64_t>(part);
  const auto n = static_cast<uint64_t>(parts);
  return {total * p / n, total * (p + 1) / n};
}

CopyMode copy_mode(const StridedBox& box) {
  if (box.total_bytes < kStreamBytes || box.run_bytes < kStreamRun) {
    return CopyMode::kCached;
  }
  const auto l = static_cast<size_t>(std::max(box.levels, 1) - 1);
  const bool joined = box.levels == 0 || box.dst[l] == static_cast<int64_t>(box.run_bytes);
  return joined ? CopyMode::kStreamJoined : CopyMode::kStream;
}

}  // namespace

void copy_box(const StridedBox& box, const MemoryView& src, const MemoryView& dst, int part,
              int parts) {
  const CopyMode mode = dst.reused ? CopyMode::kCached : copy_mode(box);
  if (box.levels == 0) {
    const PartRange r = part_of(box.run_bytes, part, parts);
    copy_run(src, static_cast<int64_t>(r.begin), dst, static_cast<int64_t>(r.begin),
             r.end - r.begin, kAhead, mode);
  } else if (box.levels == 1) {
    const PartRange r = part_of(box.count[0], part, parts);
    StridedBox some = box;
    some.count[0] = r.end - r.begin;
    const auto begin = static_cast<int64_t>(r.begin);
    if (src.pages == nullptr && dst.pages == nullptr) {
      copy_level(some, src.flat + begin * box.src[0], dst.flat + begin * box.dst[0], mode);
    } else {
      copy_paged_level(some, src, begin * box.src[0], dst, begin * box.dst[0], mode);
    }
  } else {
    const PartRange r = part_of(box.count[0], part, parts);
    const bool flat = src.pages == nullptr && dst.pages == nullptr;
    for_each_index(box, box.levels - 1, r.begin, r.end, [&](int64_t from, int64_t to) {
      if (flat) {
        copy_level(box, src.flat + from, dst.flat + to, mode);
      } else {
        copy_paged_level(box, src, from, dst, to, mode);
      }
    });
  }
  if (mode != CopyMode::kCached) {
    end_stream();  // before the end of the job is told to other threads
  }
}

void fill_box(const StridedBox& box, uint64_t pattern, const MemoryView& dst, int part, int parts) {
  if (box.elem_bytes < 8) {
    pattern &= (uint64_t{1} << (8 * box.elem_bytes)) - 1;
  }
  if (box.levels == 0) {
    const PartRange r = part_of(box.run_bytes / box.elem_bytes, part, parts);
    fill_run(pattern, box.elem_bytes, dst, static_cast<int64_t>(r.begin * box.elem_bytes),
             (r.end - r.begin) * box.elem_bytes);
    return;
  }
  const PartRange r = part_of(box.count[0], part, parts);
  for_each_index(box, box.levels, r.begin, r.end, [&](int64_t, int64_t to) {
    fill_run(pattern, box.elem_bytes, dst, to, box.run_bytes);
  });
}

}  // namespace tpu::model
