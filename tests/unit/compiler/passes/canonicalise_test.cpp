// Pass `canonicalise`: each rule once, and random inputs before and after with equal bits.
#include "passes/canonicalise.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "graph_builder.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "passes/dce.hpp"
#include "passes/simplify.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::i1;
using test::i32;
using test::kinds;

Tensor pattern(const Type& type) {
  Tensor t = make_tensor(type);
  const auto n = static_cast<size_t>(type.count());
  for (size_t i = 0; i < n; ++i) {
    const float f = (static_cast<float>((i * 37) % 19) - 9.0f) * 0.375f;
    const auto v = static_cast<int32_t>(f);
    if (type.elem == Elem::kF32) {
      std::memcpy(t.data.data() + 4 * i, &f, 4);
    } else if (type.elem == Elem::kI32) {
      std::memcpy(t.data.data() + 4 * i, &v, 4);
    } else {
      t.data[i] = static_cast<std::byte>(i % 3 == 0);
    }
  }
  return t;
}

// Runs the pass, checks that the program still computes the same bits, and returns the kinds that
// are left.
std::string canonical(Module& m) {
  verify(m);
  std::vector<Tensor> args;
  for (const auto& a : m.main->body.args) {
    args.push_back(pattern(a->type));
  }
  const std::vector<std::vector<Tensor>> all(static_cast<size_t>(m.num_cores), args);
  const auto before = interpret(m, all);
  canonicalise(m);
  remove_dead_ops(m);
  m.number_ops();
  verify(m);
  const auto after = interpret(m, all);
  for (size_t c = 0; c < before.size(); ++c) {
    for (size_t i = 0; i < before[c].size(); ++i) {
      EXPECT_EQ(before[c][i].data, after[c][i].data) << "core " << c << " result " << i;
    }
  }
  return kinds(m);
}

TEST(Canonicalise, ResultsWithoutElementsAreConstants) {
  GraphBuilder b;
  Value* x = b.arg(f32({0, 5}));
  Value* y = b.op(Kind::kBroadcastInDim, {x}, f32({2, 0, 5}), DimsAttrs{{1, 2}});
  Value* z = b.op(Kind::kNegate, {y}, f32({2, 0, 5}));
  const std::string left = canonical(b.done({z}));
  EXPECT_EQ(left.find("broadcast"), std::string::npos) << left;
  EXPECT_EQ(left.find("negate"), std::string::npos) << left;
}

TEST(Canonicalise, InteriorPaddingStays) {
  GraphBuilder b;
  Value* v = b.arg(f32({2}));
  v = b.op(Kind::kPad, {v, b.constant(f32({}), 1)}, f32({3}), PadAttrs{{0}, {0}, {1}});
  EXPECT_EQ(canonical(b.done({v})), "constant pad return");
}

TEST(Canonicalise, OpsThatChangeNothingAreGone) {
  GraphBuilder b;
  Value* v = b.arg(f32({2, 3}));
  v = b.op(Kind::kConvert, {v}, f32({2, 3}));
  v = b.op(Kind::kReshape, {v}, f32({2, 3}));
  v = b.op(Kind::kTranspose, {v}, f32({2, 3}), DimsAttrs{{0, 1}});
  v = b.op(Kind::kBroadcastInDim, {v}, f32({2, 3}), DimsAttrs{{0, 1}});
  v = b.op(Kind::kSlice, {v}, f32({2, 3}), SliceAttrs{{0, 0}, {2, 3}, {1, 1}});
  v = b.op(Kind::kConcatenate, {v}, f32({2, 3}), DimAttrs{0});
  v = b.op(Kind::kReverse, {v}, f32({2, 3}), DimsAttrs{{}});
  v = b.op(Kind::kPad, {v, b.constant(f32({}), 1)}, f32({2, 3}), PadAttrs{{0, 0}, {0, 0}, {0, 0}});
  v = b.op(Kind::kOptimizationBarrier, {v}, f32({2, 3}));
  EXPECT_EQ(canonical(b.done({v})), "return");
}

// A layer and what jax.checkpoint makes of it: exp(x) for the backward pass, behind a barrier.
struct Checkpointed {
  GraphBuilder b;
  Value* x = b.arg(f32({8}));
  Value* h = b.op(Kind::kNegate, {x}, f32({8}));
  Value* y = b.op(Kind::kExp, {h}, f32({8}));
  Value* g = b.op(Kind::kSine, {y}, f32({8}));

  const Op* barrier(const std::vector<Value*>& operands) {
    std::vector<Type> types;
    for (const Value* v : operands) {
      types.push_back(v->type);
    }
    return b.region().append(Kind::kOptimizationBarrier, operands, types, NoAttrs{}, unknown_loc());
  }
  std::string simplified(Value* last) {
    Module& m = b.done({last});
    simplify(m);
    verify(m);
    return kinds(m);
  }
};

TEST(Canonicalise, BarriersKeepWhatIsComputedAgainApart) {
  Checkpointed c;
  const Op* barrier = c.barrier({c.h, c.g});
  Value* again = c.b.op(Kind::kExp, {barrier->result(0)}, f32({8}));
  EXPECT_EQ(c.simplified(c.b.op(Kind::kMultiply, {again, barrier->result(1)}, f32({8}))),
            "negate exponential sine optimization_barrier exponential multiply return");
  const auto& ops = c.b.region().ops;
  EXPECT_EQ(ops[5]->operands[1], c.g);     // read only behind it: as it is,
  EXPECT_EQ(ops[3]->operands.at(1), c.g);  // but waited for
  EXPECT_EQ(ops[4]->operands[0], ops[3]->result(0));
}

// Nothing in front reads what is behind the barrier.
TEST(Canonicalise, BarriersOfWhatIsNotReadElsewhereAreGone) {
  Checkpointed c;
  const Op* barrier = c.barrier({c.g, c.b.arg(f32({8}))});
  EXPECT_EQ(
      c.simplified(c.b.op(Kind::kMultiply, {barrier->result(0), barrier->result(1)}, f32({8}))),
      "negate exponential sine multiply return");
}

TEST(Canonicalise, ConstantsPositionsAndCountersAreInFrontOfBarriers) {
  Checkpointed c;
  Value* ones = c.b.op(Kind::kBroadcastInDim, {c.b.constant(f32({}), 1)}, f32({8}), DimsAttrs{});
  Value* i = c.b.arg(i32({}));
  Value* next = c.b.op(Kind::kAdd, {i, i}, i32({}));
  const Op* barrier = c.barrier({ones, next, c.h, c.g});
  Value* counter = c.b.op(Kind::kAdd, {barrier->result(1), next}, i32({}));
  Value* wide = c.b.op(Kind::kConvert, {counter}, f32({}));
  Value* all = c.b.op(Kind::kBroadcastInDim, {wide}, f32({8}), DimsAttrs{});
  Value* sum =
      c.b.op(Kind::kAdd, {c.b.op(Kind::kExp, {barrier->result(2)}, f32({8})), all}, f32({8}));
  sum = c.b.op(Kind::kAdd, {sum, barrier->result(0)}, f32({8}));
  c.simplified(c.b.op(Kind::kMultiply, {sum, barrier->result(3)}, f32({8})));
  size_t barriers = 0;
  for (const auto& op : c.b.region().ops) {
    if (op->kind == Kind::kOptimizationBarrier) {
      ++barriers;
      EXPECT_EQ(op->operands, (std::vector<Value*>{c.h, c.g}));
    }
  }
  EXPECT_EQ(barriers, 1U);
}

TEST(Canonicalise, ChainsOfReshapesAndTransposes) {
  GraphBuilder b;
  Value* x = b.arg(f32({2, 3, 4}));
  Value* r = b.op(Kind::kReshape, {b.op(Kind::kReshape, {x}, f32({6, 4}))}, f32({24}));
  Value* t =
      b.op(Kind::kTranspose, {b.op(Kind::kTranspose, {x}, f32({4, 2, 3}), DimsAttrs{{2, 0, 1}})},
           f32({3, 4, 2}), DimsAttrs{{2, 0, 1}});
  Value* back = b.op(Kind::kTranspose, {t}, f32({2, 3, 4}), DimsAttrs{{2, 0, 1}});
  EXPECT_EQ(canonical(b.done({r, t, back})), "reshape transpose return");
}

TEST(Canonicalise, BroadcastsOfBroadcastsAndReshapes) {
  GraphBuilder b;
  Value* x = b.arg(f32({4}));
  Value* row = b.op(Kind::kBroadcastInDim, {x}, f32({1, 4}), DimsAttrs{{1}});
  Value* y = b.op(Kind::kBroadcastInDim, {row}, f32({3, 4}), DimsAttrs{{0, 1}});
  Value* col = b.op(Kind::kReshape, {x}, f32({4, 1}));
  Value* z = b.op(Kind::kBroadcastInDim, {col}, f32({4, 5}), DimsAttrs{{0, 1}});
  Module& m = b.done({y, z});
  EXPECT_EQ(canonical(m), "broadcast_in_dim broadcast_in_dim return");
  EXPECT_EQ(m.main->body.ops[0]->as<DimsAttrs>().dims, (Dims{1}));
  EXPECT_EQ(m.main->body.ops[1]->as<DimsAttrs>().dims, (Dims{0}));
}

TEST(Canonicalise, TransposeOfOnesIsAReshape) {
  GraphBuilder b;
  Value* x = b.arg(f32({3, 1, 2}));
  Value* y = b.op(Kind::kTranspose, {x}, f32({1, 3, 2}), DimsAttrs{{1, 0, 2}});
  EXPECT_EQ(canonical(b.done({y})), "reshape return");
}

TEST(Canonicalise, ClampIsMaxThenMin) {
  GraphBuilder b;
  Value* x = b.arg(f32({6}));
  Value* y = b.op(Kind::kClamp, {b.arg(f32({})), x, b.constant(f32({6}), 1)}, f32({6}));
  EXPECT_EQ(canonical(b.done({y})), "constant broadcast_in_dim maximum minimum return");
}

TEST(Canonicalise, SelectsThatAreDecided) {
  GraphBuilder b;
  Value* x = b.arg(f32({2}));
  Value* y = b.arg(f32({2}));
  Value* p = b.arg(i1({2}));
  Value* yes = b.op(Kind::kConstant, {}, i1({2}), ConstantAttrs{make_splat_int(i1({2}), 1)});
  Value* a = b.op(Kind::kSelect, {yes, x, y}, f32({2}));
  Value* c = b.op(Kind::kSelect, {p, y, y}, f32({2}));
  Module& m = b.done({a, c});
  EXPECT_EQ(canonical(m), "return");
  EXPECT_EQ(m.main->body.ops[0]->operands, (std::vector<Value*>{x, y}));
}

TEST(Canonicalise, DivisionByPowersOfTwo) {
  GraphBuilder b;
  Value* x = b.arg(f32({19}));
  Value* by8 = b.op(Kind::kDivide, {x, b.constant(f32({19}), -8)}, f32({19}));
  Value* by3 = b.op(Kind::kDivide, {x, b.constant(f32({19}), 3)}, f32({19}));
  EXPECT_EQ(canonical(b.done({by8, by3})), "constant multiply constant divide return");
}

TEST(Canonicalise, FloatZeroIsNotNeutralButIntegerZeroIs) {
  GraphBuilder b;
  Value* x = b.arg(f32({2}));
  Value* n = b.arg(i32({2}));
  Value* f = b.op(Kind::kAdd, {x, b.constant(f32({2}), 0)}, f32({2}));
  Value* i = b.op(Kind::kAdd, {b.constant(i32({2}), 0), n}, i32({2}));
  Value* one = b.op(Kind::kMultiply, {i, b.constant(i32({2}), 1)}, i32({2}));
  EXPECT_EQ(canonical(b.done({f, one})), "constant add return");
}

TEST(Canonicalise, ZeroIsNeutralToSums) {
  GraphBuilder b;
  Value* x = b.arg(f32({3, 4}));
  Value* zero = b.constant(f32({}), 0);
  Value* sum = b.reduce(x, zero, {0}, f32({4}), Kind::kAdd);
  Value* row = b.op(Kind::kReshape, {sum}, f32({1, 4}));
  EXPECT_EQ(canonical(b.done({b.reduce(row, zero, {0}, f32({4}), Kind::kAdd)})),
            "constant reduce return");
}

TEST(Canonicalise, ZeroIsNotNeutralToSumsFromNegativeZeroOrMaxima) {
  GraphBuilder b;
  Value* x = b.arg(f32({3, 4}));
  Value* zero = b.constant(f32({4}), 0);
  Value* minus = b.constant(f32({}), -0.0);
  Value* sum = b.reduce(x, minus, {0}, f32({4}), Kind::kAdd);
  Value* top = b.reduce(x, b.constant(f32({}), 0), {0}, f32({4}), Kind::kMaximum);
  Value* y = b.op(Kind::kAdd, {sum, zero}, f32({4}));
  Value* z = b.op(Kind::kAdd, {zero, top}, f32({4}));
  EXPECT_EQ(canonical(b.done({y, z})), "constant constant reduce constant reduce add add return");
}

TEST(Canonicalise, TransposeGoesIntoTheDot) {
  GraphBuilder b;
  Value* x = b.arg(f32({5, 2}));
  Value* dy = b.arg(f32({5, 3}));
  Value* dot = b.op(Kind::kDotGeneral, {dy, x}, f32({3, 2}), DotAttrs{{}, {}, {0}, {0}});
  Value* dw = b.op(Kind::kTranspose, {dot}, f32({2, 3}), DimsAttrs{{1, 0}});
  Module& m = b.done({dw});
  EXPECT_EQ(canonical(m), "dot_general return");
  EXPECT_EQ(m.main->body.ops[0]->operands[0], x);
}

TEST(Canonicalise, TransposedOperandsOfADot) {
  GraphBuilder b;
  Value* x = b.arg(f32({7, 2}));
  Value* w = b.arg(f32({3, 7}));
  Value* xt = b.op(Kind::kTranspose, {x}, f32({2, 7}), DimsAttrs{{1, 0}});
  Value* wt = b.op(Kind::kTranspose, {w}, f32({7, 3}), DimsAttrs{{1, 0}});
  Value* y = b.op(Kind::kDotGeneral, {xt, wt}, f32({2, 3}), DotAttrs{{}, {}, {1}, {0}});
  Module& m = b.done({y});
  EXPECT_EQ(canonical(m), "dot_general return");
  EXPECT_EQ(m.main->body.ops[0]->as<DotAttrs>().lhs_contract, (Dims{0}));
  EXPECT_EQ(m.main->body.ops[0]->as<DotAttrs>().rhs_contract, (Dims{1}));
}

TEST(Canonicalise, TransposedOperandsOfADotWithBatch) {
  GraphBuilder b;
  Value* x = b.arg(f32({2, 7, 4}));
  Value* w = b.arg(f32({4, 7, 3}));
  Value* xt = b.op(Kind::kTranspose, {x}, f32({4, 2, 7}), DimsAttrs{{2, 0, 1}});
  Value* y = b.op(Kind::kDotGeneral, {xt, w}, f32({4, 2, 3}), DotAttrs{{0}, {0}, {2}, {1}});
  Module& m = b.done({y});
  EXPECT_EQ(canonical(m), "dot_general return");
  EXPECT_EQ(m.main->body.ops[0]->as<DotAttrs>().lhs_batch, (Dims{2}));
  EXPECT_EQ(m.main->body.ops[0]->as<DotAttrs>().lhs_contract, (Dims{1}));
}

TEST(Canonicalise, ADotWithTwoUsersKeepsItsTranspose) {
  GraphBuilder b;
  Value* x = b.arg(f32({5, 2}));
  Value* w = b.arg(f32({5, 3}));
  Value* dot = b.op(Kind::kDotGeneral, {x, w}, f32({2, 3}), DotAttrs{{}, {}, {0}, {0}});
  Value* t = b.op(Kind::kTranspose, {dot}, f32({3, 2}), DimsAttrs{{1, 0}});
  EXPECT_EQ(canonical(b.done({dot, t})), "dot_general transpose return");
}

TEST(Canonicalise, ReductionOverOneElement) {
  GraphBuilder b;
  Value* x = b.arg(f32({1, 4}));
  Value* y = b.reduce(x, b.constant(f32({}), 0), {0}, f32({4}), Kind::kAdd);
  EXPECT_EQ(canonical(b.done({y})), "reshape constant add return");
}

TEST(Canonicalise, CollectivesOfSeveralArraysAreSplit) {
  GraphBuilder b(2);
  Value* x = b.arg(f32({2}));
  Value* y = b.arg(f32({3}));
  CollectiveAttrs a;
  a.groups = {{0, 1}};
  Op* op = b.region().append(Kind::kAllReduce, {x, y}, {f32({2}), f32({3})}, a, unknown_loc());
  b.with_body(op->result(0), Kind::kAdd);
  EXPECT_EQ(canonical(b.done({op->result(0), op->result(1)})), "all_reduce all_reduce return");
}

}  // namespace
}  // namespace tpu::compiler
