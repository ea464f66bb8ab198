// The order of sums in a column of the matrix unit, as an executable specification.
// A column of `rows` rows is cut into segments; in a segment every chain starts at +0 and takes its
// rows in ascending order, chain = fma(w, x, chain); then the chains are added in ascending order
// and the sum is added to the running value. Rows beyond K are +0 on both sides and every segment
// is added, so a result of -0 never survives a tile. Products of bf16 are exact, so each fma rounds
// once.
// The order is written once, for two kinds of numbers: bits (bit-exact on every host, slow) and the
// floats of a host that flushes subnormals (the compiler's interpreter).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "arith/bf16.hpp"
#include "arith/f32.hpp"
#include "arith/host_f32.hpp"
#include "arith/mxu_shape.hpp"

namespace tpu::spec {

// Operands as bits of bf16, sums as bits of f32.
struct MxuBits {
  using Operand = uint16_t;
  using Sum = uint32_t;
  static constexpr Sum multiply_add(Operand w, Operand x, Sum sum) {
    return f32_fma_bits(bf16_to_f32_bits(w), bf16_to_f32_bits(x), sum);
  }
  static constexpr Sum add(Sum a, Sum b) { return f32_add_bits(a, b); }
};

// Operands as floats that a bf16 can hold. The host must flush subnormals (ScopedFlushMode); NaNs
// are of any bits until the end.
struct MxuFloats {
  using Operand = float;
  using Sum = float;
  static Sum multiply_add(Operand w, Operand x, Sum sum) { return host_fma(w, x, sum); }
  static Sum add(Sum a, Sum b) { return a + b; }
};

// One chain over rows first, first + step, ... of a segment that ends before row `end`; k real rows
// in all. Rows beyond them are +0 * +0: all of them together add +0 once.
template <typename Numbers>
constexpr typename Numbers::Sum mxu_chain(const typename Numbers::Operand* w,
                                          const typename Numbers::Operand* x, size_t k,
                                          size_t first, size_t end, size_t step) {
  typename Numbers::Sum chain{};
  const size_t real_end = std::min(end, k);
  for (size_t row = first; row < real_end; row += step) {
    chain = Numbers::multiply_add(w[row], x[row], chain);
  }
  return k < end ? Numbers::add(chain, typename Numbers::Sum{}) : chain;
}

// Result of one tile in one column: k <= shape.rows weights and activations, `running` from the
// tile before (+0 for the first).
template <typename Numbers>
constexpr typename Numbers::Sum mxu_column(const MxuShape& shape,
                                           const typename Numbers::Operand* w,
                                           const typename Numbers::Operand* x, size_t k,
                                           typename Numbers::Sum running) {
  for (size_t segment = 0; segment < shape.rows; segment += shape.segment_rows()) {
    const size_t end = segment + shape.segment_rows();
    auto sum = mxu_chain<Numbers>(w, x, k, segment, end, shape.chains());
    for (size_t chain = 1; chain < shape.chains(); ++chain) {
      sum = Numbers::add(sum, mxu_chain<Numbers>(w, x, k, segment + chain, end, shape.chains()));
    }
    running = Numbers::add(running, sum);
  }
  return running;
}

constexpr uint32_t mxu_column_bits(const MxuShape& shape, const uint16_t* w, const uint16_t* x,
                                   size_t k, uint32_t running) {
  return mxu_column<MxuBits>(shape, w, x, k, running);
}

// One column over K of any length, in tiles of shape.rows.
inline float mxu_sum(const MxuShape& shape, const float* w, const float* x, size_t k) {
  float running = 0;
  for (size_t tile = 0; tile < k; tile += shape.rows) {
    running = mxu_column<MxuFloats>(shape, w + tile, x + tile,
                                    std::min<size_t>(shape.rows, k - tile), running);
  }
  return f32_from_bits(f32_canonical(f32_bits(running)));
}

}  // namespace tpu::spec
