// Transposes of the cross-lane unit: tiles whose rows and columns are whole cache lines on both
// sides, inside them 4 x 4 words or 8 x 8 halves of words in vector registers.
#include <algorithm>
#include <cstring>

#include "core/host_vector.hpp"
#include "core/strided_box.hpp"

namespace tpu::model {
namespace {

// Rows [row, row_end) and columns [col, col_end) of one tile, element by element.
template <typename T>
void transpose_elements(const TransposeShape& s, const uint8_t* src, uint8_t* dst, uint64_t row,
                        uint64_t row_end, uint64_t col, uint64_t col_end) {
  for (uint64_t c = col; c < col_end; ++c) {
    uint8_t* out =
        dst + static_cast<int64_t>(c) * s.dst_pitch + static_cast<int64_t>(row * sizeof(T));
    const uint8_t* in =
        src + static_cast<int64_t>(row) * s.src_pitch + static_cast<int64_t>(c * sizeof(T));
    for (uint64_t r = row; r < row_end; ++r, in += s.src_pitch, out += sizeof(T)) {
      std::memcpy(out, in, sizeof(T));
    }
  }
}

// Large results go around the caches, as large copies do (strided_box.cpp), where tiles are whole
// lines of them.
constexpr uint64_t kStreamedBytes = 64 * 1024;
constexpr uint64_t kCacheLine = 64;

// Four columns of the words of a, b, c and d.
void store_columns(Vector16 a, Vector16 b, Vector16 c, Vector16 d, uint8_t* out,
                   int64_t out_pitch) {
  const Vector16 ab_low = low_halves32(a, b), ab_high = high_halves32(a, b);
  const Vector16 cd_low = low_halves32(c, d), cd_high = high_halves32(c, d);
  const auto store = [&](int64_t column, Vector16 value) {
    store16(out + column * out_pitch, value);
  };
  store(0, low_halves64(ab_low, cd_low));
  store(1, high_halves64(ab_low, cd_low));
  store(2, low_halves64(ab_high, cd_high));
  store(3, high_halves64(ab_high, cd_high));
}

// Square blocks in vector registers, by type of elements; none of others.
template <typename T>
struct Block {
  static constexpr uint64_t kSize = 0;
};

template <>
struct Block<uint32_t> {
  static constexpr uint64_t kSize = 4;

  static void transpose(const uint8_t* in, int64_t in_pitch, uint8_t* out, int64_t out_pitch) {
    store_columns(load16(in), load16(in + in_pitch), load16(in + 2 * in_pitch),
                  load16(in + 3 * in_pitch), out, out_pitch);
  }
};

// Neighbours of two rows are words.
template <>
struct Block<uint16_t> {
  static constexpr uint64_t kSize = 8;

  static void transpose(const uint8_t* in, int64_t in_pitch, uint8_t* out, int64_t out_pitch) {
    Vector16 low[4], high[4];  // rows 2p and 2p + 1: columns 0 to 3, and 4 to 7
    for (int64_t p = 0; p < 4; ++p) {
      const Vector16 even = load16(in + 2 * p * in_pitch);
      const Vector16 odd = load16(in + (2 * p + 1) * in_pitch);
      low[p] = low_halves16(even, odd);
      high[p] = high_halves16(even, odd);
    }
    store_columns(low[0], low[1], low[2], low[3], out, out_pitch);
    store_columns(high[0], high[1], high[2], high[3], out + 4 * out_pitch, out_pitch);
  }
};

template <typename T>
bool streams(const TransposeShape& s, const uint8_t* dst) {
  return Block<T>::kSize != 0 && s.rows * s.cols * sizeof(T) >= kStreamedBytes &&
         reinterpret_cast<uintptr_t>(dst) % kCacheLine == 0 &&
         static_cast<uint64_t>(s.dst_pitch) % kCacheLine == 0;
}

template <typename T>
void transpose_tile(const TransposeShape& s, const uint8_t* src, uint8_t* dst, uint64_t row,
                    uint64_t row_end, uint64_t col, uint64_t col_end) {
  constexpr uint64_t kSize = Block<T>::kSize;
  const uint64_t rows = row + (row_end - row) / kSize * kSize;
  const uint64_t cols = col + (col_end - col) / kSize * kSize;
  for (uint64_t c = col; c < cols; c += kSize) {
    for (uint64_t r = row; r < rows; r += kSize) {
      Block<T>::transpose(
          src + static_cast<int64_t>(r) * s.src_pitch + static_cast<int64_t>(c * sizeof(T)),
          s.src_pitch,
          dst + static_cast<int64_t>(c) * s.dst_pitch + static_cast<int64_t>(r * sizeof(T)),
          s.dst_pitch);
    }
  }
  transpose_elements<T>(s, src, dst, rows, row_end, col, cols);
  transpose_elements<T>(s, src, dst, row, row_end, cols, col_end);
}

// A tile of as many rows as make lines of the cache, around the caches. Each line is whole before
// it is stored: lines by turns leave the processor in parts.
template <typename T>
void stream_tile(const TransposeShape& s, const uint8_t* src, uint8_t* dst, uint64_t row,
                 uint64_t col, uint64_t col_end) {
  constexpr uint64_t kRows = kCacheLine / sizeof(T);
  alignas(kCacheLine) uint8_t lines[kRows][kCacheLine];
  TransposeShape tile = s;
  tile.dst_pitch = kCacheLine;
  const uint8_t* const in =
      src + static_cast<int64_t>(row) * s.src_pitch + static_cast<int64_t>(col * sizeof(T));
  transpose_tile<T>(tile, in, lines[0], 0, kRows, 0, col_end - col);
  for (uint64_t c = col; c < col_end; ++c) {
    uint8_t* const to =
        dst + static_cast<int64_t>(c) * s.dst_pitch + static_cast<int64_t>(row * sizeof(T));
    const uint8_t* const line = lines[c - col];
    for (uint64_t at = 0; at < kCacheLine; at += sizeof(Vector16)) {
      stream16(to + at, load16(line + at));
    }
  }
}

// Walks over tiles some way ahead of those that are transposed, and has what they read fetched into
// the second-level cache, with what they write to `dst` (null: around the caches): rows lie too far
// apart for the processor to see where they go on.
template <typename T, uint64_t kTile>
class TilesAhead {
 public:
  TilesAhead(const TransposeShape& s, const uint8_t* src, const uint8_t* dst, uint64_t row,
             uint64_t row_end)
      : s_(s), src_(src), dst_(dst), row_(row), row_end_(row_end) {
    constexpr int kTilesAhead = 4;
    for (int i = 0; i < kTilesAhead; ++i) {
      step();
    }
  }

  void fetch() {
    const uint64_t end = std::min(row_ + kTile, row_end_);
    const uint8_t* at =
        src_ + static_cast<int64_t>(row_) * s_.src_pitch + static_cast<int64_t>(col_ * sizeof(T));
    for (uint64_t r = row_; r < end; ++r, at += s_.src_pitch) {
      ask_for(at);
    }
    if (dst_ != nullptr && row_ < row_end_) {
      const uint64_t col_end = std::min(col_ + kTile, s_.cols);
      const uint8_t* to =
          dst_ + static_cast<int64_t>(col_) * s_.dst_pitch + static_cast<int64_t>(row_ * sizeof(T));
      for (uint64_t c = col_; c < col_end; ++c, to += s_.dst_pitch) {
        __builtin_prefetch(to + kTile * sizeof(T) - 1, 1, 2);
      }
    }
    step();
  }

 private:
  void step() {
    col_ += kTile;
    if (col_ >= s_.cols) {
      col_ = 0;
      row_ += kTile;
    }
  }

  const TransposeShape& s_;
  const uint8_t* src_;
  const uint8_t* dst_;
  uint64_t row_, row_end_;
  uint64_t col_ = 0;
};

// Rows [row_begin, row_end), the first a multiple of a tile's.
template <typename T>
void transpose_rows(const TransposeShape& s, const uint8_t* src, uint8_t* dst, uint64_t row_begin,
                    uint64_t row_end) {
  constexpr uint64_t kTile = std::max<uint64_t>(16, kCacheLine / sizeof(T));
  const bool stream = streams<T>(s, dst);
  TilesAhead<T, kTile> ahead(s, src, stream ? nullptr : dst, row_begin, row_end);
  for (uint64_t r = row_begin; r < row_end; r += kTile) {
    const uint64_t r_end = std::min(r + kTile, row_end);
    for (uint64_t c = 0; c < s.cols; c += kTile) {
      const uint64_t c_end = std::min(c + kTile, s.cols);
      ahead.fetch();
      if constexpr (Block<T>::kSize != 0) {
        if (stream && r_end - r == kTile) {
          stream_tile<T>(s, src, dst, r, c, c_end);
        } else {
          transpose_tile<T>(s, src, dst, r, r_end, c, c_end);
        }
      } else {
        transpose_elements<T>(s, src, dst, r, r_end, c, c_end);
      }
    }
  }
  if (stream) {
    end_stream();  // before the end of the job is told to other threads
  }
}

}  // namespace

void transpose_box(const TransposeShape& shape, const uint8_t* src, uint8_t* dst, int part,
                   int parts) {
  const auto n = static_cast<uint64_t>(parts);
  const auto border = [&](int before) {  // parts are whole tiles
    const uint64_t rows = shape.rows * static_cast<uint64_t>(before) / n;
    return before == parts ? rows : rows / kCacheLine * kCacheLine;
  };
  const uint64_t row_begin = border(part), row_end = border(part + 1);
  for (uint64_t b = 0; b < shape.batch; ++b) {
    const uint8_t* in = src + static_cast<int64_t>(b) * shape.src_batch;
    uint8_t* out = dst + static_cast<int64_t>(b) * shape.dst_batch;
    switch (shape.elem_bytes) {
      case 1:
        transpose_rows<uint8_t>(shape, in, out, row_begin, row_end);
        break;
      case 2:
        transpose_rows<uint16_t>(shape, in, out, row_begin, row_end);
        break;
      case 4:
        transpose_rows<uint32_t>(shape, in, out, row_begin, row_end);
        break;
      default:
        transpose_rows<uint64_t>(shape, in, out, row_begin, row_end);
        break;
    }
  }
}

}  // namespace tpu::model
