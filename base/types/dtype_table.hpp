// Names and sizes of the element types that programs take, by the number of the type. The
// executable format and the instruction set have the same numbers (asserted in
// spec/exe/executable.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tpu/types.hpp"

namespace tpu::driver {

struct DTypeInfo {
  std::string_view name;  ///< a literal: ends in a zero byte
  uint64_t bytes;
};

inline constexpr std::array<DTypeInfo, 13> kDTypes = {{{"f32", 4},
                                                       {"bf16", 2},
                                                       {"i32", 4},
                                                       {"ui32", 4},
                                                       {"i8", 1},
                                                       {"ui8", 1},
                                                       {"i1", 1},
                                                       {"i16", 2},
                                                       {"ui16", 2},
                                                       {"i64", 8},
                                                       {"ui64", 8},
                                                       {"c64", 8},
                                                       {"f64", 8}}};

}  // namespace tpu::driver
