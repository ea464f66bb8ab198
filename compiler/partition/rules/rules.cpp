// See rules.hpp: dispatch, elementwise ops, data movement, reductions and windows.
#include "partition/rules/rules.hpp"

#include <numeric>

#include "partition/rules/rule_builder.hpp"

namespace tpu::compiler {

RuleBuilder::RuleBuilder(const Op& op) : op_(op) {
  for (const Value* v : op.operands) {
    rule_.operands.emplace_back(v->type.dims.size());
  }
  for (const auto& v : op.results) {
    rule_.results.emplace_back(v->type.dims.size());
  }
}

int RuleBuilder::factor(int64_t size, FactorKind kind) {
  if (size == 1) {
    return -1;
  }
  rule_.factors.push_back({size, kind});
  return static_cast<int>(rule_.factors.size()) - 1;
}

void RuleBuilder::in(size_t operand, int64_t dim, int factor) {
  if (factor >= 0) {
    rule_.operands[operand][static_cast<size_t>(dim)].push_back(factor);
  }
}

void RuleBuilder::out(size_t result, int64_t dim, int factor) {
  if (factor >= 0) {
    rule_.results[result][static_cast<size_t>(dim)].push_back(factor);
  }
}

void RuleBuilder::pair(size_t operand, int64_t dim, int64_t result_dim, int64_t size) {
  const int f = factor(size);
  in(operand, dim, f);
  out(0, result_dim, f);
}

void RuleBuilder::everywhere(int64_t dim, int64_t rank, int64_t size) {
  const int f = factor(size);
  for (size_t t = 0; t < rule_.operands.size(); ++t) {
    if (op_.operand_type(t).rank() == rank) {
      in(t, dim, f);
    }
  }
  for (size_t t = 0; t < rule_.results.size(); ++t) {
    if (op_.type(t).rank() == rank) {
      out(t, dim, f);
    }
  }
}

void RuleBuilder::address(int factor, int64_t entry) {
  if (factor >= 0) {
    rule_.indexed.push_back({factor, entry});
  }
}

int64_t RuleBuilder::size_in(size_t operand, int64_t dim) const {
  return op_.operand_type(operand).dims[static_cast<size_t>(dim)];
}

int64_t RuleBuilder::size_out(size_t result, int64_t dim) const {
  return op_.type(result).dims[static_cast<size_t>(dim)];
}

void RuleBuilder::block_rest(std::vector<std::vector<int>>& dims, const Type& type) {
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t spoken_for = 1;
    for (const int f : dims[d]) {
      spoken_for *= rule_.factors[static_cast<size_t>(f)].size;
    }
    if (spoken_for != type.dims[d]) {
      dims[d].push_back(factor(type.dims[d] / spoken_for, FactorKind::kBlocked));
    }
  }
}

FactorRule RuleBuilder::done() {
  for (size_t t = 0; t < rule_.operands.size(); ++t) {
    block_rest(rule_.operands[t], op_.operand_type(t));
  }
  for (size_t t = 0; t < rule_.results.size(); ++t) {
    block_rest(rule_.results[t], op_.type(t));
  }
  return std::move(rule_);
}

std::optional<Kind> reducer_over_cores(const Op& op) {
  const auto body = op.results.size() == 1 ? simple_reducer(*op.regions[0]) : std::nullopt;
  const bool halves = elem_bytes(op.type().elem) == 8;
  const bool exchanged =
      body == Kind::kAdd || body == Kind::kAnd || body == Kind::kOr || body == Kind::kXor;
  return halves && !exchanged ? std::nullopt : body;
}

// Both shapes run along together, by the largest part of the present dimensions that they share:
//   [6, 4] -> [2, 12]: 2, 3, 4 pass. From a pair without a common part on the rest is blocked, up
// to where both sides are at the end of a dimension again.
void reshape_rule(RuleBuilder& b) {
  const Dims& in = b.op().operand_type(0).dims;
  const Dims& out = b.op().type().dims;
  if (b.op().type().count() == 0) {
    return;
  }
  size_t i = 0, o = 0;
  int64_t in_rest = 1, out_rest = 1;  // of the dimensions in front of i and o
  bool blocked = false;
  while (i < in.size() || o < out.size() || in_rest != 1 || out_rest != 1) {
    if (in_rest == 1 && out_rest == 1) {
      blocked = false;
    }
    if (in_rest == 1 && i < in.size()) {
      in_rest = in[i++];
      continue;
    }
    if (out_rest == 1 && o < out.size()) {
      out_rest = out[o++];
      continue;
    }
    const int64_t common = std::gcd(in_rest, out_rest);
    if (common > 1 && !blocked) {
      b.pair(0, static_cast<int64_t>(i) - 1, static_cast<int64_t>(o) - 1, common);
    }
    blocked = blocked || common == 1;
    if (common == 1) {  // the smaller side takes its next dimension too
      in_rest < out_rest ? in_rest *= in[i++] : out_rest *= out[o++];
      continue;
    }
    in_rest /= common;
    out_rest /= common;
  }
}

namespace {

void elementwise(RuleBuilder& b) {
  const int64_t rank = b.op().type().rank();
  for (int64_t d = 0; d < rank; ++d) {
    b.everywhere(d, rank, b.size_out(0, d));
  }
}

// Pass factors of the dimensions of result 0 for which keep(d) holds, in all arrays of its rank.
template <typename Fn>
void same_dims(RuleBuilder& b, Fn&& keep) {
  const int64_t rank = b.op().type().rank();
  for (int64_t d = 0; d < rank; ++d) {
    if (keep(static_cast<size_t>(d))) {
      b.everywhere(d, rank, b.size_out(0, d));
    }
  }
}

// Result i is operand i.
void barrier(RuleBuilder& b) {
  for (size_t t = 0; t < b.op().operands.size(); ++t) {
    for (int64_t d = 0; d < b.op().operand_type(t).rank(); ++d) {
      const int f = b.factor(b.size_in(t, d));
      b.in(t, d, f);
      b.out(t, d, f);
    }
  }
}

void source(RuleBuilder& b) {
  if (b.op().kind == Kind::kConstant && !b.op().as<ConstantAttrs>().value.splat) {
    return;
  }
  for (int64_t d = 0; d < b.op().type().rank(); ++d) {
    b.out(0, d, b.factor(b.size_out(0, d)));
  }
}

// With another width the rank changes: the elements of one are the last dimension of the other.
void bitcast(RuleBuilder& b) {
  const int64_t rank = std::min(b.op().operand_type(0).rank(), b.op().type().rank());
  for (int64_t d = 0; d < rank; ++d) {
    b.pair(0, d, d, b.size_out(0, d));
  }
}

void broadcast(RuleBuilder& b) {
  const Dims& dims = b.op().as<DimsAttrs>().dims;
  for (int64_t o = 0; o < b.op().type().rank(); ++o) {
    const int f = b.factor(b.size_out(0, o));
    b.out(0, o, f);
    const auto it = std::find(dims.begin(), dims.end(), o);
    if (it != dims.end() && b.size_in(0, it - dims.begin()) == b.size_out(0, o)) {
      b.in(0, it - dims.begin(), f);
    }
  }
}

void transpose(RuleBuilder& b) {
  const Dims& dims = b.op().as<DimsAttrs>().dims;
  for (size_t o = 0; o < dims.size(); ++o) {
    b.pair(0, dims[o], static_cast<int64_t>(o), b.size_in(0, dims[o]));
  }
}

void slice(RuleBuilder& b) {
  const auto& a = b.op().as<SliceAttrs>();
  same_dims(b, [&](size_t d) {
    return in_own_blocks(b.op().operand_type(0).dims[d], b.op().type().dims[d], a.stride[d], 1,
                         a.start[d]);
  });
}

// An element and the places behind it that come from nowhere are a block of the result.
void pad(RuleBuilder& b) {
  const auto& a = b.op().as<PadAttrs>();
  for (size_t d = 0; d < a.low.size(); ++d) {
    const auto dim = static_cast<int64_t>(d);
    if (a.low[d] >= 0 && a.high[d] >= 0 &&
        b.size_out(0, dim) == b.size_in(0, dim) * (a.interior[d] + 1)) {
      b.pair(0, dim, dim, b.size_in(0, dim));
    }
  }
}

void dynamic_slice(RuleBuilder& b) {
  for (int64_t d = 0; d < b.op().type().rank(); ++d) {
    if (b.size_in(0, d) == b.size_out(0, d)) {  // begins at 0, whatever the index
      b.pair(0, d, d, b.size_out(0, d));
    }
  }
}

void dynamic_update_slice(RuleBuilder& b) {
  const Dims& update = b.op().operand_type(1).dims;
  same_dims(b, [&](size_t d) { return update[d] == b.op().type().dims[d]; });
}

void reduce(RuleBuilder& b) {
  const Op& op = b.op();
  const size_t n = op.results.size();
  const Dims& dims = op.as<DimsAttrs>().dims;
  const auto reducer = reducer_over_cores(op);
  int64_t o = 0;
  for (int64_t d = 0; d < op.operand_type(0).rank(); ++d) {
    const bool reduced = contains(dims, d);
    const FactorKind kind = !reduced  ? FactorKind::kPass
                            : reducer ? FactorKind::kReduce
                                      : FactorKind::kBlocked;
    const int f = b.factor(b.size_in(0, d), kind);
    for (size_t t = 0; t < n; ++t) {
      b.in(t, d, f);
      if (!reduced) {
        b.out(t, o, f);
      }
    }
    o += reduced ? 0 : 1;
  }
  if (reducer) {
    b.set_reducer(*reducer);
  }
}

// Windows side by side pass; where they overlap or reach into padding the dimension is blocked. The
// results of reduce_window and the source of select_and_scatter have a place per window.
void windows(RuleBuilder& b) {
  const Op& op = b.op();
  const auto& a = op.as<WindowAttrs>();
  const bool reduces = op.kind == Kind::kReduceWindow;
  for (size_t i = 0; i < a.size.size(); ++i) {
    const auto d = static_cast<int64_t>(i);
    const int64_t positions = reduces ? b.size_out(0, d) : b.size_in(1, d);
    if (a.pad_low[i] == 0 && a.pad_high[i] == 0 && a.base_dilation[i] == 1 &&
        in_own_blocks(b.size_in(0, d), positions, a.stride[i],
                      (a.size[i] - 1) * a.window_dilation[i] + 1)) {
      b.everywhere(d, op.operand_type(0).rank(), positions);
    }
  }
}

// As the framework says it, for both parts of complex arrays.
void own_rule(RuleBuilder& b) {
  const auto& a = b.op().as<CustomCallAttrs>();
  std::vector<int> factors;
  for (size_t f = 0; f < a.rule.sizes.size(); ++f) {
    const LoopKind kind = a.rule.kinds[f];
    factors.push_back(b.factor(a.rule.sizes[f], kind == LoopKind::kPass ? FactorKind::kPass
                                                : kind == LoopKind::kReduce
                                                    ? FactorKind::kReduce
                                                    : FactorKind::kBlocked));
  }
  const auto add = [&](const auto& arrays, const std::vector<Type>& types, auto&& give) {
    for (size_t t = 0, tensor = 0; t < arrays.size(); ++t) {
      for (const size_t end = tensor + (is_complex(types[t].elem) ? 2 : 1); tensor < end;
           ++tensor) {
        for (size_t d = 0; d < arrays[t].size(); ++d) {
          for (const int64_t f : arrays[t][d]) {
            give(tensor, static_cast<int64_t>(d), factors[static_cast<size_t>(f)]);
          }
        }
      }
    }
  };
  add(a.rule.in, a.in, [&](size_t t, int64_t d, int f) { b.in(t, d, f); });
  add(a.rule.out, a.out, [&](size_t t, int64_t d, int f) { b.out(t, d, f); });
}

// Matrices are the last two dimensions; the sides of a system pass too.
void matrices(RuleBuilder& b) {
  const Op& op = b.op();
  const int64_t batch = op.operand_type(0).rank() - 2;
  for (int64_t d = 0; d < batch; ++d) {
    const int f = b.factor(b.size_in(0, d));
    for (size_t t = 0; t < op.operands.size(); ++t) {
      b.in(t, d, f);
    }
    for (size_t t = 0; t < op.results.size(); ++t) {
      b.out(t, d, f);
    }
  }
  if (op.kind == Kind::kTriangularSolve) {
    const int64_t side = batch + (op.as<TriangularSolveAttrs>().left ? 1 : 0);
    b.pair(1, side, side, b.size_in(1, side));
  }
}

void other(RuleBuilder& b) {
  const Op& op = b.op();
  if (is_matrix_op(op.kind)) {
    return matrices(b);
  }
  switch (op.kind) {
    case Kind::kReverse:
      return same_dims(
          b, [&](size_t d) { return !contains(op.as<DimsAttrs>().dims, static_cast<int64_t>(d)); });
    case Kind::kConcatenate:
      return same_dims(b,
                       [&](size_t d) { return static_cast<int64_t>(d) != op.as<DimAttrs>().dim; });
    case Kind::kSort:
      return same_dims(b,
                       [&](size_t d) { return static_cast<int64_t>(d) != op.as<SortAttrs>().dim; });
    case Kind::kReduce:
      return reduce(b);
    case Kind::kCustomCall:
      return own_rule(b);
    case Kind::kReduceWindow:
    case Kind::kSelectAndScatter:
      return windows(b);
    case Kind::kDotGeneral:
      return dot_rule(b);
    case Kind::kConvolution:
      return convolution_rule(b);
    case Kind::kGather:
      return gather_rule(b);
    case Kind::kScatter:
      return scatter_rule(b);
    default:  // blocked
      return;
  }
}

}  // namespace

FactorRule rule_of(const Op& op) {
  RuleBuilder b(op);
  if (op.kind == Kind::kBitcastConvert) {
    bitcast(b);
    return b.done();
  }
  if (is_elementwise(op.kind) || op.kind == Kind::kMap) {
    elementwise(b);
    return b.done();
  }
  switch (op.kind) {
    case Kind::kConstant:
    case Kind::kIota:
      source(b);
      break;
    case Kind::kOptimizationBarrier:
    case Kind::kShardingConstraint:
    case Kind::kReshard:
      barrier(b);
      break;
    case Kind::kBroadcastInDim:
      broadcast(b);
      break;
    case Kind::kTranspose:
      transpose(b);
      break;
    case Kind::kReshape:
      reshape_rule(b);
      break;
    case Kind::kSlice:
      slice(b);
      break;
    case Kind::kPad:
      pad(b);
      break;
    case Kind::kDynamicSlice:
      dynamic_slice(b);
      break;
    case Kind::kDynamicUpdateSlice:
      dynamic_update_slice(b);
      break;
      TPU_CASES(ELEMENTWISE, CONTRACTION, BODY, CONTROL, COLLECTIVE, HOST, WHOLE, MATRIX, CALL,
                SIZED, END)
    case Kind::kPartitionId:
    case Kind::kReplicaId:
    case Kind::kConcatenate:
    case Kind::kGather:
    case Kind::kReverse:
    case Kind::kWindow:
    case Kind::kManualComputation:
      other(b);
  }
  return b.done();
}

}  // namespace tpu::compiler
