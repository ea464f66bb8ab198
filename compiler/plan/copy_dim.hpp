// Strides of a box of memory, and of a copy of it.
#pragma once

#include <cstdint>
#include <vector>

namespace tpu::compiler {

// One counted stride pair of a copy.
struct CopyDim {
  int64_t n = 1, src = 0, dst = 0;  // bytes
  bool operator==(const CopyDim&) const = default;
};

// Neighbours that continue each other become one, innermost last; counts of 1 go.
std::vector<CopyDim> merged(std::vector<CopyDim> dims);

}  // namespace tpu::compiler
