// What a comparison says of two numbers.
#pragma once

#include "ir/attrs.hpp"

namespace tpu::compiler {

// `lt`: whether the first is less than the second.
template <typename T, typename Less>
bool compare_values(CompareDirection d, T a, T b, Less lt) {
  switch (d) {
    case CompareDirection::kEq:
      return a == b;
    case CompareDirection::kNe:
      return a != b;
    case CompareDirection::kGe:
      return lt(b, a) || a == b;
    case CompareDirection::kGt:
      return lt(b, a);
    case CompareDirection::kLe:
      return lt(a, b) || a == b;
    default:
      return lt(a, b);
  }
}

}  // namespace tpu::compiler
