// Transposes of the cross-lane unit: tiles whose rows and columns are whole cache lines of words on
// both sides, inside them 4 x 4 words in vector registers.
#include <emmintrin.h>

#include <algorithm>
#include <cstring>

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

// 4 x 4 words.
void transpose_words(const uint8_t* in, int64_t in_pitch, uint8_t* out, int64_t out_pitch) {
  const auto row = [&](int64_t r) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + r * in_pitch));
  };
  const __m128i a = row(0), b = row(1), c = row(2), d = row(3);
  const __m128i ab_low = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
  const __m128i cd_low = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
  const auto store = [&](int64_t r, __m128i value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + r * out_pitch), value);
  };
  store(0, _mm_unpacklo_epi64(ab_low, cd_low));
  store(1, _mm_unpackhi_epi64(ab_low, cd_low));
  store(2, _mm_unpacklo_epi64(ab_high, cd_high));
  store(3, _mm_unpackhi_epi64(ab_high, cd_high));
}

template <typename T>
void transpose_tile(const TransposeShape& s, const uint8_t* src, uint8_t* dst, uint64_t row,
                    uint64_t row_end, uint64_t col, uint64_t col_end) {
  if constexpr (sizeof(T) == 4) {
    const uint64_t rows = row + (row_end - row) / 4 * 4;
    const uint64_t cols = col + (col_end - col) / 4 * 4;
    for (uint64_t c = col; c < cols; c += 4) {
      for (uint64_t r = row; r < rows; r += 4) {
        transpose_words(
            src + static_cast<int64_t>(r) * s.src_pitch + static_cast<int64_t>(4 * c), s.src_pitch,
            dst + static_cast<int64_t>(c) * s.dst_pitch + static_cast<int64_t>(4 * r), s.dst_pitch);
      }
    }
    transpose_elements<T>(s, src, dst, rows, row_end, col, cols);
    transpose_elements<T>(s, src, dst, row, row_end, cols, col_end);
  } else {
    transpose_elements<T>(s, src, dst, row, row_end, col, col_end);
  }
}

template <typename T>
void transpose_rows(const TransposeShape& s, const uint8_t* src, uint8_t* dst, uint64_t row_begin,
                    uint64_t row_end) {
  constexpr uint64_t kTile = std::max<uint64_t>(16, 64 / sizeof(T));
  for (uint64_t r = row_begin; r < row_end; r += kTile) {
    for (uint64_t c = 0; c < s.cols; c += kTile) {
      transpose_tile<T>(s, src, dst, r, std::min(r + kTile, row_end), c,
                        std::min(c + kTile, s.cols));
    }
  }
}

}  // namespace

void transpose_box(const TransposeShape& shape, const uint8_t* src, uint8_t* dst, int part,
                   int parts) {
  const auto n = static_cast<uint64_t>(parts);
  const uint64_t row_begin = shape.rows * static_cast<uint64_t>(part) / n;
  const uint64_t row_end = shape.rows * static_cast<uint64_t>(part + 1) / n;
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
