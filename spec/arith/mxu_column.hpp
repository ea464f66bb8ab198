// The order of sums in a column of the matrix unit, as executable law (scalar, bit-exact, slow).
// A column of `rows` rows is cut into segments; in a segment every chain starts at +0 and takes its
// rows in ascending order, chain = fma(w, x, chain); then the chains are added in ascending order
// and the sum is added to the running value. Rows beyond K are +0 on both sides and every segment
// is added, so a result of -0 never survives a tile. Products of bf16 are exact, so each fma rounds
// once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arith/bf16.hpp"
#include "arith/f32.hpp"
#include "arith/mxu_shape.hpp"

namespace tpu::spec {

// One chain over rows first, first + step, ... of a segment that starts at row `first - chain`; k
// real rows in all.
constexpr uint32_t mxu_chain_bits(const uint16_t* w, const uint16_t* x, size_t k, size_t first,
                                  size_t end, size_t step) {
  uint32_t chain = 0;
  for (size_t row = first; row < end; row += step) {
    const uint32_t wv = row < k ? bf16_to_f32_bits(w[row]) : 0;
    const uint32_t xv = row < k ? bf16_to_f32_bits(x[row]) : 0;
    chain = f32_fma_bits(wv, xv, chain);
  }
  return chain;
}

// Result of one tile in one column: k <= shape.rows weights and activations, `running` from the
// tile before (+0 for the first). w and x are bf16 bits.
constexpr uint32_t mxu_column_bits(const MxuShape& shape, const uint16_t* w, const uint16_t* x,
                                   size_t k, uint32_t running) {
  for (size_t segment = 0; segment < shape.rows; segment += shape.segment_rows) {
    const size_t end = segment + shape.segment_rows;
    uint32_t sum = mxu_chain_bits(w, x, k, segment, end, shape.chains);
    for (size_t chain = 1; chain < shape.chains; ++chain) {
      sum = f32_add_bits(sum, mxu_chain_bits(w, x, k, segment + chain, end, shape.chains));
    }
    running = f32_add_bits(running, sum);
  }
  return running;
}

}  // namespace tpu::spec
