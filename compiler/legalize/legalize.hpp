// Pass `legalize`: replaces ops that code generation has no kernel for by ops that it has.
//   before   y = batch_norm_inference(x, scale, offset, mean, variance)
//   after    broadcasts, subtract, rsqrt, multiply, add
// One file per family of ops; each function returns the values that replace the op, or nothing if
// the op may stay as it is. What a family makes may be replaced again by another.
#pragma once

#include <unordered_map>
#include <vector>

#include "passes/rewriter.hpp"

namespace tpu::compiler {

// True if anything was replaced.
bool legalize(Module& module);

// Pass `split_wide`: ops that make or need 64-bit integers and have no halves of their own, then
// 64-bit integers as pairs of words (int64/split_wide.hpp). True if there were any.
bool legalize_wide(Module& module);

// The first step of the pass `split_double`: ops on f64 that have no pairs of their own, as ops
// that have: contractions as products and sums, factorisations as loops, reductions over cores as
// what each core reduces.
void legalize_double(Module& module);

// Batch norms alone, for the graph of whole arrays: statistics of a batch that is cut are sums, of
// which the sharding pass makes sums over cores.
void expand_batch_norms(Module& module);

// Products of f32 where one side is a vector, as multiply and add on the vector unit, for the graph
// as the program has it: neither sharding nor simplification then decides over their precision.
void expand_vector_products(Module& module);

namespace legalization {

// Each file `<family>.cpp` offers `std::vector<Value*> <family>(Op&, Rewriter&)`, declared
// here and called by legalize.cpp for its kinds.
std::vector<Value*> convolution(Op& op, Rewriter& rw);
std::vector<Value*> dot_general(Op& op, Rewriter& rw);
std::vector<Value*> vector_product(Op& op, Rewriter& rw);  // dot_general of f32 with a vector
std::vector<Value*> reduce(Op& op, Rewriter& rw);
std::vector<Value*> reduce_window(Op& op, Rewriter& rw);
std::vector<Value*> select_and_scatter(Op& op, Rewriter& rw);
// Of sorts: how many of the first elements are read at most, if all readers are slices.
using SortHeads = std::unordered_map<const Op*, int64_t>;
SortHeads sort_heads(const Region& region);
// The results have at least these elements.
std::vector<Value*> sort(Op& op, Rewriter& rw, const SortHeads& heads);
std::vector<Value*> compare_total_order(Op& op, Rewriter& rw);
std::vector<Value*> batch_norm(Op& op, Rewriter& rw);
std::vector<Value*> map(Op& op, Rewriter& rw);
std::vector<Value*> concatenate(Op& op, Rewriter& rw);
std::vector<Value*> pad(Op& op, Rewriter& rw);

std::vector<Value*> collective(Op& op, Rewriter& rw, int64_t cores);  // of the program
std::vector<Value*> collective_by_operand(Op& op, Rewriter& rw);      // an op for each
std::vector<Value*> permute(Op& op, Rewriter& rw);
std::vector<Value*> gather(Op& op, Rewriter& rw);
std::vector<Value*> scatter(Op& op, Rewriter& rw);
// The first two ways of `scatter` alone, which need no body of their own; nothing for the others.
std::vector<Value*> scatter_by_comparing(Op& op, Rewriter& rw);
std::vector<Value*> bitcast(Op& op, Rewriter& rw);  // types of different sizes
// True if equal elements of a sort cannot be told apart: one integer operand compared as it is.
bool ties_are_equal(const Op& sort);
std::vector<Value*> random(Op& op, Rewriter& rw);  // makes 64-bit integers: part of split_wide

}  // namespace legalization

}  // namespace tpu::compiler
