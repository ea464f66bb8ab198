// Rules of the pass `canonicalise` by group. Private to the pass. Each returns the replacing
// values, or nothing if it does not apply.
#pragma once

#include "ir/control.hpp"
#include "passes/rewriter.hpp"

namespace tpu::compiler::rules {

// reshape, broadcast_in_dim, slice, pad, reverse, concatenate.
std::vector<Value*> shape(Op& op, Rewriter& rw);
std::vector<Value*> transpose(Op& op, Rewriter& rw);

// `uses`: of the results of dot_general, while, if and case, before the sweep.

// Transposed operands of a dot_general.
std::vector<Value*> dot_general(Op& op, Rewriter& rw);
// Transposed result of a dot_general that has no other user.
std::vector<Value*> transpose_of_dot(Op& op, Rewriter& rw, const Uses& uses);

// How often each value is read.
using Readers = std::unordered_map<const Value*, size_t>;
// What need not be behind the barrier. `readers`: of its operands.
std::vector<Value*> barrier(Op& op, Rewriter& rw, const Uses& uses, const Readers& readers);

// Control flow.
std::vector<Value*> while_loop(Op& op, Rewriter& rw, const Uses& uses);
std::vector<Value*> branch(Op& op, Rewriter& rw, const Uses& uses);
std::vector<Value*> dynamic_slice(Op& op, Rewriter& rw);
std::vector<Value*> compare(Op& op, Rewriter& rw, const CounterRanges& counters);
std::vector<Value*> truth(Op& op);

}  // namespace tpu::compiler::rules
