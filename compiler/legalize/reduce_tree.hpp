// Reduction by a body on the graph, as a tree: whole arrays stand for the scalars of the body. Used
// by reduce and reduce_window.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "legalize/builder.hpp"

namespace tpu::compiler::legalization {

// One array per operand of the reduction.
using Arrays = std::vector<Value*>;

class ReduceTree {
 public:
  ReduceTree(Rewriter& rw, const Region& body);

  // The one op of the body, if it is a reduction that the vector unit has.
  std::optional<Kind> simple() const { return simple_; }

  // body(a, b) element by element.
  Arrays combine(const Arrays& a, const Arrays& b);

  // Arrays that one fused kernel can fold: limited by its operands and instructions.
  int64_t radix() const { return radix_; }

  // Reduces dimension `dim` away, elements in ascending order; it must not be empty. A tree of
  // radix() neighbours a level.
  Arrays reduce(Arrays x, int64_t dim);

  // combine(initial values, x).
  Arrays with_initial(const Arrays& init, const Arrays& x);

 private:
  Builder b_;
  const Region& body_;
  std::optional<Kind> simple_;
  int64_t radix_ = 2;
};

// The value that changes nothing under a simple reducer: +0, 1, the smallest, the largest value.
Dense identity_of(Kind reducer, const Type& type);

// Result dims of a cut along `dim`, without the dimension.
Dims without_dim(Dims dims, int64_t dim);

}  // namespace tpu::compiler::legalization
