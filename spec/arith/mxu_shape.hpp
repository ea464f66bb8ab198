// Size and order of additions of one matrix unit: what spec/board says about an MXU, as the
// arithmetic and timing formulas need it. The defaults are the default order and the full array; a
// board fills every field from its file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tpu/spec/rtl_units.hpp"

namespace tpu::spec {

// The order of sums in a column (docs/numerics.md).
enum class MxuSums : uint8_t {
  kPairs,   // segments of 32 rows, each of an even and an odd chain
  kSerial,  // one chain over all rows
};

// The order for the `chains` and `segment_rows` of a board file; nullopt for other values.
constexpr std::optional<MxuSums> mxu_sums(int64_t chains, int64_t segment_rows, int64_t rows) {
  if (chains == rtl::kMxuChains && segment_rows == rtl::kMxuSegmentRows) {
    return MxuSums::kPairs;
  }
  if (chains == 1 && segment_rows == rows) {
    return MxuSums::kSerial;
  }
  return std::nullopt;
}

struct MxuShape {
  uint32_t rows = rtl::kMxuRows;  // K of one tile
  uint32_t cols = rtl::kMxuCols;  // N of one tile
  MxuSums sums = MxuSums::kPairs;
  uint32_t skew = rtl::kMxuSkew;           // D: cycles between the starts of two segments
  uint32_t load_rows = rtl::kMxuLoadRows;  // weight rows that enter a cycle

  // Partial sums in a segment; chain c takes rows r = c mod chains.
  constexpr uint32_t chains() const { return sums == MxuSums::kPairs ? rtl::kMxuChains : 1; }
  // Rows between two additions to the running value.
  constexpr uint32_t segment_rows() const {
    return sums == MxuSums::kPairs ? rtl::kMxuSegmentRows : rows;
  }
  constexpr uint32_t segments() const { return rows / segment_rows(); }
  bool operator==(const MxuShape&) const = default;
};

// The reason why no array has this shape, or nothing.
inline std::optional<std::string> mxu_shape_error(const MxuShape& shape) {
  if (shape.rows == 0 || shape.cols == 0 || shape.skew == 0 || shape.load_rows == 0) {
    return "mxu: rows, cols, skew and load_rows must be at least 1";
  }
  if (shape.rows % shape.segment_rows() != 0) {
    return "mxu: rows must be a multiple of segment_rows";
  }
  if (shape.rows % shape.load_rows != 0) {
    return "mxu: rows must be a multiple of load_rows";
  }
  return std::nullopt;
}

}  // namespace tpu::spec
