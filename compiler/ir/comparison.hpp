// Directions of comparisons.
#pragma once

#include "ir/attrs.hpp"

namespace tpu::compiler {

// Of `b, a` what `d` is of `a, b`.
inline CompareDirection mirrored(CompareDirection d) {
  switch (d) {
    case CompareDirection::kLt:
      return CompareDirection::kGt;
    case CompareDirection::kLe:
      return CompareDirection::kGe;
    case CompareDirection::kGt:
      return CompareDirection::kLt;
    case CompareDirection::kGe:
      return CompareDirection::kLe;
    default:
      return d;
  }
}

}  // namespace tpu::compiler
