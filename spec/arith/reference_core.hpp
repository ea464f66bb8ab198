// The core by which the compiler compares mappings of a contraction to the matrix units.
// The order in which products are summed follows from the mapping, so the mapping is a part of the
// number semantics: it depends on shapes and on the size of an array alone. With the board's own
// numbers another DMA or a second unit would change results. The numbers are those of a core of
// TPU v3 (spec/board/v3_8.toml); they stay when a board changes.
#pragma once

#include <cstdint>

namespace tpu::spec {

struct ReferenceCore {
  static constexpr double kUnits = 2;
  static constexpr double kInterval = 133;  // cycles from one K tile to the next, at least
  static constexpr int64_t kGranuleBytes = 512;
  static constexpr double kLocalBytesPerCycle = 512;
  static constexpr int64_t kVmemBytes = int64_t{16} << 20;
};

}  // namespace tpu::spec
