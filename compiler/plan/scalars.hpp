// Scalars of buffers that the sequencer needs.
#pragma once

#include <cstddef>
#include <vector>

#include "plan/residency.hpp"

namespace tpu::compiler {

struct ScalarPlace {
  size_t index = 0;              // names it among those of its kernel
  const Value* value = nullptr;  // of which it is the element at `offset`
  int64_t offset = 0;
  spec::Addr from{};
  int64_t bytes = 0;
};

// Where the accesses that have a value lie; each keeps its index.
std::vector<ScalarPlace> scalar_places(Residency& memory, const std::vector<NestAccess>& from);

}  // namespace tpu::compiler
