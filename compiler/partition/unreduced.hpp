// Which arrays of the global graph are sums of which each core keeps a term (Sharding::unreduced):
// what the program says of arguments, constraints and jax.shard_map, and what follows for ops that
// are linear in such arrays. All other ops get the sum. Private to the pass `partition`.
//
//   %1 = sharding_constraint %0 {unreduced {x}}     a sum along x
//   %2 = transpose %1                               too: the transposed terms
//   %3 = add %2, %2                                 too
//   %4 = tanh %3                                    not: its operand is summed over the cores
//
// A contraction whose result is constrained so leaves its terms where they are.
#pragma once

#include <unordered_map>

#include "partition/spec.hpp"

namespace tpu::compiler {

// True if the program speaks of such arrays.
bool has_unreduced(const Module& module);

class UnreducedArrays {
 public:
  explicit UnreducedArrays(const Module& module);

  // Axes along which the cores have terms of the array, in rising order; none for most arrays.
  const Axes& of(const Value* v) const;
  // Axes along which operand `i` is left as terms for its op. Every other operand is the sum.
  const Axes& operand(const Op& op, size_t i) const;

 private:
  void follow(const Region& region);
  void follow_loop(const Op& op);
  void follow_branches(const Op& op);
  void follow_linear(const Op& op);
  const Axes& demanded(const Value* v) const;  // by the constraint that it goes to
  void set(const Value* v, Axes axes);

  std::unordered_map<const Value*, Axes> axes_;       // those with any
  std::unordered_map<const Op*, Axes> linear_;        // ops whose operands stay as terms
  std::unordered_map<const Value*, const Op*> user_;  // of values that have one use
};

}  // namespace tpu::compiler
