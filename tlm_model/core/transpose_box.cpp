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

// Large results go around the caches, as large copies do (strided_box.cpp), where tiles are whole
// lines of them.
constexpr uint64_t kStreamedBytes = 64 * 1024;
constexpr uint64_t kCacheLine = 64;

bool streams(const TransposeShape& s, const uint8_t* dst) {
  return s.elem_bytes == 4 && s.rows * s.cols * s.elem_bytes >= kStreamedBytes &&
         reinterpret_cast<uintptr_t>(dst) % kCacheLine == 0 &&
         static_cast<uint64_t>(s.dst_pitch) % kCacheLine == 0;
}

// 4 x 4 words.
template <bool kStream>
void transpose_words(const uint8_t* in, int64_t in_pitch, uint8_t* out, int64_t out_pitch) {
  const auto row = [&](int64_t r) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + r * in_pitch));
  };
  const __m128i a = row(0), b = row(1), c = row(2), d = row(3);
  const __m128i ab_low = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
  const __m128i cd_low = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
  const auto store = [&](int64_t r, __m128i value) {
    auto* to = reinterpret_cast<__m128i*>(out + r * out_pitch);
    kStream ? _mm_stream_si128(to, value) : _mm_storeu_si128(to, value);
  };
  store(0, _mm_unpacklo_epi64(ab_low, cd_low));
  store(1, _mm_unpackhi_epi64(ab_low, cd_low));
  store(2, _mm_unpacklo_epi64(ab_high, cd_high));
  store(3, _mm_unpackhi_epi64(ab_high, cd_high));
}

template <bool kStream>
void transpose_word_tile(const TransposeShape& s, const uint8_t* src, uint8_t* dst, uint64_t row,
                         uint64_t row_end, uint64_t col, uint64_t col_end) {
  const uint64_t rows = row + (row_end - row) / 4 * 4;
  const uint64_t cols = col + (col_end - col) / 4 * 4;
  for (uint64_t c = col; c < cols; c += 4) {
    for (uint64_t r = row; r < rows; r += 4) {
      transpose_words<kStream>(
          src + static_cast<int64_t>(r) * s.src_pitch + static_cast<int64_t>(4 * c), s.src_pitch,
          dst + static_cast<int64_t>(c) * s.dst_pitch + static_cast<int64_t>(4 * r), s.dst_pitch);
    }
  }
  transpose_elements<uint32_t>(s, src, dst, rows, row_end, col, cols);
  transpose_elements<uint32_t>(s, src, dst, row, row_end, cols, col_end);
}

// Rows [row_begin, row_end), the first a multiple of a tile's.
template <typename T>
void transpose_rows(const TransposeShape& s, const uint8_t* src, uint8_t* dst, uint64_t row_begin,
                    uint64_t row_end) {
  constexpr uint64_t kTile = std::max<uint64_t>(16, kCacheLine / sizeof(T));
  const bool stream = streams(s, dst);
  for (uint64_t r = row_begin; r < row_end; r += kTile) {
    const uint64_t r_end = std::min(r + kTile, row_end);
    for (uint64_t c = 0; c < s.cols; c += kTile) {
      const uint64_t c_end = std::min(c + kTile, s.cols);
      if constexpr (sizeof(T) == 4) {
        stream&& r_end - r == kTile ? transpose_word_tile<true>(s, src, dst, r, r_end, c, c_end)
                                    : transpose_word_tile<false>(s, src, dst, r, r_end, c, c_end);
      } else {
        transpose_elements<T>(s, src, dst, r, r_end, c, c_end);
      }
    }
  }
  if (stream) {
    _mm_sfence();  // before the end of the job is told to other threads
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
