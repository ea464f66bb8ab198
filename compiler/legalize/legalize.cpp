// Dispatch of the pass `legalize`: see legalize.hpp.
#include "legalize/legalize.hpp"

#include <algorithm>

#include "legalize/builder.hpp"
#include "legalize/double/double_contraction.hpp"
#include "legalize/int64/split_wide.hpp"
#include "legalize/int64/wide_collectives.hpp"
#include "legalize/linalg/linalg.hpp"
#include "legalize/pair_splitter.hpp"

namespace tpu::compiler {
namespace {

constexpr int kMaxRounds = 16;  // families build on each other at most a few levels deep

// `heads`: of the program's sorts, where they are known.
std::vector<Value*> legalize_op(Op& op, Rewriter& rw, int64_t cores,
                                const legalization::SortHeads& heads = {}) {
  switch (op.kind) {
    case Kind::kConvolution:
      return legalization::convolution(op, rw);
    case Kind::kDotGeneral:
      return legalization::dot_general(op, rw);
    case Kind::kReduce:
      return legalization::reduce(op, rw);
    case Kind::kReduceWindow:
      return legalization::reduce_window(op, rw);
    case Kind::kSelectAndScatter:
      return legalization::select_and_scatter(op, rw);
    case Kind::kSort:
      return legalization::sort(op, rw, heads);
    case Kind::kCompare:
      return legalization::compare_total_order(op, rw);
    case Kind::kBatchNormTraining:
    case Kind::kBatchNormInference:
    case Kind::kBatchNormGrad:
      return legalization::batch_norm(op, rw);
    case Kind::kMap:
      return legalization::map(op, rw);
    case Kind::kConcatenate:
      return legalization::concatenate(op, rw);
    case Kind::kPad:
      return legalization::pad(op, rw);
    case Kind::kAllGather:
    case Kind::kAllReduce:
    case Kind::kAllToAll:
    case Kind::kCollectiveBroadcast:
    case Kind::kReduceScatter:
      return legalization::collective(op, rw, cores);
    case Kind::kCollectivePermute:
      return legalization::permute(op, rw);
    case Kind::kGather:
      return legalization::gather(op, rw);
    case Kind::kScatter:
      return legalization::scatter(op, rw);
    case Kind::kBitcastConvert:
      return legalization::bitcast(op, rw);
    default:  // has a kernel; else formation rejects it
      return {};
  }
}

bool is_int64(const Value* v) { return v->type.elem == Elem::kI64 || v->type.elem == Elem::kU64; }

// Extremes over the last dimensions: over groups of whole vector rows first, since a tree over
// neighbours in a row moves lanes. (Extremes may meet the initial value twice.)
//   before   y = reduce max x over dim 1 : i64[8,4096]
//   after    y = reduce max (reduce max x' : i64[8,4,1024] over dim 1) over dim 1
std::vector<Value*> wide_extreme(Op& op, Rewriter& rw) {
  constexpr int64_t kLeast = 256;  // elements
  const auto body = op.operands.size() == 2 ? simple_reducer(*op.regions[0]) : std::nullopt;
  if (body != Kind::kMaximum && body != Kind::kMinimum) {
    return {};
  }
  const Dims& in = op.operand_type(0).dims;
  const Dims& reduced = op.as<DimsAttrs>().dims;
  const auto is_reduced = [&](size_t d) {
    return std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(d)) != reduced.end();
  };
  size_t first = in.size();  // of the last dims that are reduced
  int64_t n = 1;
  while (first > 0 && is_reduced(first - 1)) {
    n *= in[--first];
  }
  if (n < kLeast) {
    return {};
  }
  int64_t row = 1024;
  while (n < 2 * row) {
    row /= 2;
  }
  Builder b(rw);
  Dims shape(in.begin(), in.begin() + static_cast<ptrdiff_t>(first));
  Dims rest;  // that are reduced, behind the rows
  for (size_t d = 0; d <= first; ++d) {
    if (d == first || is_reduced(d)) {
      rest.push_back(static_cast<int64_t>(d));
    }
  }
  const auto last = static_cast<int64_t>(first);
  const int64_t whole = n / row * row;
  shape.push_back(n);
  Value* flat = b.reshape(op.operands[0], shape);
  shape.back() = n / row;
  shape.push_back(row);
  Value* rows = b.reshape(b.slice_dim(flat, last, 0, whole), shape);
  rows = b.reduce(*body, rows, op.operands[1], {last});
  Value* out = b.reduce(*body, rows, op.operands[1], rest);
  if (whole < n) {
    flat = b.slice_dim(flat, last, whole, n);
    out = b.binary(*body, out, b.reduce(*body, flat, op.operands[1], rest));
  }
  return {out};
}

// Contractions and windows of 64-bit integers, and scatters that compare, become elementwise ops
// and reductions first: those have halves. So do reductions over cores whose body has no halves.
std::vector<Value*> legalize_wide_op(Op& op, Rewriter& rw, int64_t cores) {
  const bool wide = std::any_of(op.operands.begin(), op.operands.end(), is_int64) ||
                    (!op.results.empty() && is_int64(op.result(0)));
  switch (op.kind) {
    case Kind::kConvolution:
    case Kind::kDotGeneral:
    case Kind::kMap:
    case Kind::kSelectAndScatter:
      return wide ? legalize_op(op, rw, cores) : std::vector<Value*>{};
    case Kind::kAllGather:
    case Kind::kAllToAll:
      return wide && op.operands.size() > 1 ? legalization::collective_by_operand(op, rw)
                                            : std::vector<Value*>{};
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
      if (wide && op.operands.size() > 1) {
        return legalization::collective_by_operand(op, rw);
      }
      return wide && !reduces_by_halves(op) ? legalization::collective(op, rw, cores)
                                            : std::vector<Value*>{};
    case Kind::kScatter:
      return !op.results.empty() && is_int64(op.result(0))
                 ? legalization::scatter_by_comparing(op, rw)
                 : std::vector<Value*>{};
    case Kind::kReduce:
      return wide ? wide_extreme(op, rw) : std::vector<Value*>{};
    default:  // by halves, or rejected by the pass `split_wide`
      return {};
  }
}

std::vector<Value*> legalize_double_op(Op& op, Rewriter& rw, const Module& module) {
  if (!touches(op, Elem::kF64)) {
    return {};
  }
  if (is_matrix_op(op.kind)) {
    return expand_matrix_op(op, rw);
  }
  switch (op.kind) {
    case Kind::kConvolution:
    case Kind::kDotGeneral:
      return contracts_by_slices(op, module.num_cores) ? std::vector<Value*>{}
                                                       : legalize_op(op, rw, module.num_cores);
    case Kind::kSelectAndScatter:
    case Kind::kMap:
    case Kind::kBatchNormTraining:
    case Kind::kBatchNormInference:
    case Kind::kBatchNormGrad:
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
      return legalize_op(op, rw, module.num_cores);
    default:  // has pairs, or is rejected by the pass `split_double`
      return {};
  }
}

}  // namespace

void legalize_double(Module& module) {
  for (int round = 0; round < kMaxRounds; ++round) {
    if (!Rewriter().run(module.main->body,
                        [&](Op& op, Rewriter& rw) { return legalize_double_op(op, rw, module); })) {
      break;
    }
  }
}

void expand_batch_norms(Module& module) {
  Rewriter().run(module.main->body, [](Op& op, Rewriter& rw) {
    const bool normalises = op.kind == Kind::kBatchNormTraining ||
                            op.kind == Kind::kBatchNormInference || op.kind == Kind::kBatchNormGrad;
    return normalises ? legalization::batch_norm(op, rw) : std::vector<Value*>{};
  });
}

void expand_vector_products(Module& module) {
  Rewriter().run(module.main->body, legalization::vector_product);
}

bool legalize_wide(Module& module) {
  Rewriter().run(module.main->body, legalization::random);
  for (int round = 0; round < kMaxRounds; ++round) {
    if (!Rewriter().run(module.main->body, [&](Op& op, Rewriter& rw) {
          return legalize_wide_op(op, rw, module.num_cores);
        })) {
      break;
    }
  }
  return split_wide(module);
}

bool legalize(Module& module) {
  bool any = false;
  bool changed = true;
  for (int round = 0; changed && round < kMaxRounds; ++round) {
    Rewriter rw;
    const legalization::SortHeads heads = legalization::sort_heads(module.main->body);
    changed = rw.run(module.main->body, [&](Op& op, Rewriter& rewriter) {
      return legalize_op(op, rewriter, module.num_cores, heads);
    });
    any = any || changed;
  }
  return any;
}

}  // namespace tpu::compiler
