// reduce: bodies of one op on f32, bf16, i32, ui32 and i1 stay for the vector unit's reductions;
// narrow integers are widened; any other body becomes a tree of fused kernels over slices.
#include <algorithm>

#include "legalize/legalize.hpp"
#include "legalize/reduce_tree.hpp"

namespace tpu::compiler::legalization {
namespace {

// Runs of kept and reduced dims that one loop nest can hold.
constexpr int kMaxRuns = 4;

bool is_reduced(const Op& op, int64_t dim) {
  const Dims& dims = op.as<DimsAttrs>().dims;
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

// Neighbouring dims of one role merged, those of one element dropped.
struct Run {
  int64_t n = 1;
  bool reduced = false;
};
std::vector<Run> runs_of(const Op& op) {
  std::vector<Run> runs;
  for (int64_t d = 0; d < op.operand_type(0).rank(); ++d) {
    const int64_t n = op.operand_type(0).dims[static_cast<size_t>(d)];
    if (n == 1) {
      continue;
    }
    if (runs.empty() || runs.back().reduced != is_reduced(op, d)) {
      runs.push_back({1, is_reduced(op, d)});
    }
    runs.back().n *= n;
  }
  return runs;
}

bool has_vector_form(Elem e) {
  return is_float(e) || e == Elem::kI32 || e == Elem::kU32 || e == Elem::kI1;
}

std::vector<Value*> simple_reduce(Op& op, Kind kind, Rewriter& rw) {
  Builder b(rw);
  const Elem e = op.type().elem;
  const Dims& dims = op.as<DimsAttrs>().dims;
  if (!has_vector_form(e)) {  // 8 and 16 bits: wrapping sums have the same low bits in 32
    const Elem wide = is_signed(e) ? Elem::kI32 : Elem::kU32;
    Value* init = b.convert(op.operands[1], wide);
    Value* sum = b.reduce(kind, b.convert(op.operands[0], wide), init, dims);
    return {b.convert(sum, e)};
  }
  const std::vector<Run> runs = runs_of(op);
  if (runs.size() <= kMaxRuns) {
    return {};
  }
  // Too many loops: the last run of reduced dims first, from the identity.
  const int64_t rank = op.operand_type(0).rank();
  int64_t last = rank - 1;
  while (!is_reduced(op, last) || op.operand_type(0).dims[static_cast<size_t>(last)] == 1) {
    --last;
  }
  Dims first_dims, rest;
  bool in_run = true;
  for (int64_t d = last; d >= 0; --d) {
    const bool one = op.operand_type(0).dims[static_cast<size_t>(d)] == 1;
    in_run = in_run && (is_reduced(op, d) || one);
    if (is_reduced(op, d)) {
      (in_run ? first_dims : rest).push_back(d);
    }
  }
  std::sort(first_dims.begin(), first_dims.end());
  for (int64_t d = rank - 1; d > last; --d) {
    if (is_reduced(op, d)) {
      first_dims.push_back(d);
    }
  }
  Value* part = b.reduce(kind, op.operands[0], rw.constant(identity_of(kind, {e, {}})), first_dims);
  Dims moved;
  for (int64_t d : rest) {
    for (const int64_t gone : first_dims) {
      d -= gone < d ? 1 : 0;
    }
    moved.push_back(d);
  }
  std::sort(moved.begin(), moved.end());
  return {b.reduce(kind, part, op.operands[1], moved)};
}

Arrays general_reduce(Op& op, Rewriter& rw) {
  Builder b(rw);
  ReduceTree tree(rw, *op.regions[0]);
  const size_t n = op.results.size();
  Arrays x(op.operands.begin(), op.operands.begin() + static_cast<ptrdiff_t>(n));
  const Arrays init(op.operands.begin() + static_cast<ptrdiff_t>(n), op.operands.end());
  const std::vector<Run> runs = runs_of(op);
  Dims merged;
  for (const Run& r : runs) {
    merged.push_back(r.n);
  }
  for (Value*& v : x) {
    v = b.reshape(v, merged);
  }
  for (size_t r = runs.size(); r-- > 0;) {
    if (runs[r].reduced) {
      x = tree.reduce(x, static_cast<int64_t>(r));
    }
  }
  x = tree.with_initial(init, x);
  for (size_t i = 0; i < n; ++i) {
    x[i] = b.reshape(x[i], op.type(i).dims);
  }
  return x;
}

}  // namespace

std::vector<Value*> reduce(Op& op, Rewriter& rw) {
  Builder b(rw);
  const size_t n = op.results.size();
  const int64_t count = op.operand_type(0).count();
  if (op.type().count() == 0 || count == 0) {  // nothing to write, or nothing to reduce
    Arrays out;
    for (size_t i = 0; i < n; ++i) {
      out.push_back(b.broadcast_scalar(op.operands[n + i], op.type(i).dims));
    }
    return out;
  }
  const ReduceTree tree(rw, *op.regions[0]);
  if (n == 1 && tree.simple() && elem_bytes(op.type().elem) < 8) {
    return simple_reduce(op, *tree.simple(), rw);
  }
  return general_reduce(op, rw);
}

}  // namespace tpu::compiler::legalization
