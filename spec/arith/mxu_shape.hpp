// Size and number law of one matrix unit: what spec/board says about an MXU, as the arithmetic and
// timing laws need it. The defaults are the default law and the full array; a board fills every
// field from its file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tpu::spec {

struct MxuShape {
  uint32_t rows = 128;         // K of one tile
  uint32_t cols = 128;         // N of one tile
  uint32_t chains = 2;         // partial sums in a segment; chain c takes rows r = c mod chains
  uint32_t segment_rows = 32;  // rows between two additions to the running value
  uint32_t skew = 18;          // D: cycles between the starts of two segments
  uint32_t load_rows = 2;      // weight rows that enter a cycle

  constexpr uint32_t segments() const { return rows / segment_rows; }
  bool operator==(const MxuShape&) const = default;
};

// The reason why no array has this shape, or nothing.
inline std::optional<std::string> mxu_shape_error(const MxuShape& shape) {
  if (shape.rows == 0 || shape.cols == 0 || shape.chains == 0 || shape.segment_rows == 0 ||
      shape.skew == 0 || shape.load_rows == 0) {
    return "mxu: rows, cols, chains, segment_rows, skew and load_rows must be at least 1";
  }
  if (shape.rows % shape.segment_rows != 0) {
    return "mxu: rows must be a multiple of segment_rows";
  }
  if (shape.segment_rows % shape.chains != 0) {
    return "mxu: segment_rows must be a multiple of chains";
  }
  if (shape.rows % shape.load_rows != 0) {
    return "mxu: rows must be a multiple of load_rows";
  }
  return std::nullopt;
}

}  // namespace tpu::spec
