// Contractions over strided buffers: from the dims of a dot_general to merged loops b, m, n, k, and
// what the matrix unit can read of them.
#pragma once

#include <array>

#include "codegen/kernels.hpp"

namespace tpu::compiler {

// One operand: a buffer and its strides along the dims of the operand.
struct ContractionSide {
  const Value* buffer = nullptr;
  int64_t offset = 0;
  Dims strides;
};

// Dims that are neither batch nor contracting, ascending.
Dims free_dims(int64_t rank, const Dims& batch, const Dims& contract);

// Merged loops. `turned`: the result is written transposed, so the sides change places.
Contraction make_contraction(const Op& op, const std::array<ContractionSide, 2>& side, bool turned);

// Rows: one loop, and a contiguous contraction (or contiguous rows, which the transpose unit
// turns).
bool rows_can_stream(const Contraction& c);
// Weights: one loop each for contraction and columns.
bool weights_can_load(const Contraction& c);

}  // namespace tpu::compiler
