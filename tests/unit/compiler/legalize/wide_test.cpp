// Passes `split_wide` and `unroll`: the graph computes the same bits before and after, on the edges
// of 64-bit integers; nothing of 64 bits is left.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "graph_builder.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "legalize/int64/split_wide.hpp"
#include "passes/unroll.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::i32;

const std::vector<uint64_t>& edges() {
  static const std::vector<uint64_t> values = [] {
    std::vector<uint64_t> v;
    for (const int64_t x : {int64_t{0},
                            int64_t{1},
                            int64_t{2},
                            int64_t{3},
                            int64_t{7},
                            int64_t{31},
                            int64_t{32},
                            int64_t{33},
                            int64_t{63},
                            int64_t{64},
                            int64_t{65535},
                            int64_t{65536},
                            int64_t{0x7fffffff},
                            int64_t{0x80000000},
                            int64_t{0xffffffff},
                            int64_t{0x100000000},
                            int64_t{0x1ffff0001},
                            int64_t{0x123456789abcdef0},
                            INT64_MAX,
                            INT64_MIN}) {
      v.push_back(static_cast<uint64_t>(x));
      v.push_back(static_cast<uint64_t>(-static_cast<uint64_t>(x)));
    }
    return v;
  }();
  return values;
}

Tensor words(const Type& type, const std::vector<uint64_t>& values) {
  Tensor t = make_tensor(type);
  std::memcpy(t.data.data(), values.data(), t.data.size());
  return t;
}

// All edges with each other.
std::vector<Tensor> pairs(Elem e, Dims& dims) {
  std::vector<uint64_t> a, b;
  for (const uint64_t x : edges()) {
    for (const uint64_t y : edges()) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  dims = {static_cast<int64_t>(a.size())};
  return {words({e, dims}, a), words({e, dims}, b)};
}

void expect_no_wide_values(const Module& m) {
  walk(m.main->body, [](const Op& op) {
    for (const auto& r : op.results) {
      EXPECT_LT(elem_bytes(r->type.elem), 8) << print(op);
    }
  });
}

// Splits and compares with the graph as it was.
void expect_same(Module& m, const std::vector<Tensor>& args) {
  const auto before = interpret(m, {args});
  EXPECT_TRUE(split_wide(m));
  m.number_ops();
  verify(m);
  expect_no_wide_values(m);
  const auto after = join_results(m, interpret(m, split_arguments(m, args)));
  ASSERT_EQ(after.size(), before[0].size());
  for (size_t r = 0; r < before[0].size(); ++r) {
    const auto& x = before[0][r];
    const auto& y = after[r];
    ASSERT_EQ(x.data.size(), y.data.size());
    const auto size = static_cast<size_t>(elem_bytes(x.type.elem));
    for (size_t i = 0; i * size < x.data.size(); ++i) {
      ASSERT_EQ(std::memcmp(x.data.data() + i * size, y.data.data() + i * size, size), 0)
          << "result " << r << ", element " << i;
    }
  }
}

class WideArithmetic : public ::testing::TestWithParam<Elem> {
 protected:
  // `results(b, x, n)` of every value x and the constant n.
  template <typename Results>
  void expect_same_with(int64_t n, Results results) const {
    Dims dims;
    const auto args = pairs(GetParam(), dims);
    GraphBuilder b;
    const Type t{GetParam(), dims};
    Value* x = b.arg(t);
    b.arg(t);
    Value* constant = b.op(Kind::kConstant, {}, t, ConstantAttrs{make_splat_int(t, n)});
    expect_same(b.done(results(b, x, constant)), args);
  }
};

TEST_P(WideArithmetic, BinaryOps) {
  for (const Kind kind :
       {Kind::kAdd, Kind::kSubtract, Kind::kMultiply, Kind::kDivide, Kind::kRemainder,
        Kind::kMaximum, Kind::kMinimum, Kind::kAnd, Kind::kOr, Kind::kXor, Kind::kShiftLeft,
        Kind::kShiftRightArith, Kind::kShiftRightLogical, Kind::kPower}) {
    SCOPED_TRACE(kind_name(kind));
    Dims dims;
    const auto args = pairs(GetParam(), dims);
    GraphBuilder b;
    const Type t{GetParam(), dims};
    Value* x = b.arg(t);
    Value* y = b.arg(t);
    expect_same(b.done({b.op(kind, {x, y}, t)}), args);
  }
}

TEST_P(WideArithmetic, ShiftsByConstants) {
  for (const int64_t amount : {0, 1, 31, 32, 33, 63, 64, 100}) {
    expect_same_with(amount, [](GraphBuilder& b, Value* x, Value* n) {
      return std::vector<Value*>{b.op(Kind::kShiftLeft, {x, n}, x->type),
                                 b.op(Kind::kShiftRightArith, {x, n}, x->type),
                                 b.op(Kind::kShiftRightLogical, {x, n}, x->type)};
    });
  }
}

TEST_P(WideArithmetic, PowersByConstants) {
  for (const int64_t exponent : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{7}, int64_t{64},
                                 int64_t{1} << 33, int64_t{-1}, INT64_MIN}) {
    expect_same_with(exponent, [](GraphBuilder& b, Value* x, Value* n) {
      return std::vector<Value*>{b.op(Kind::kPower, {x, n}, x->type)};
    });
  }
}

TEST_P(WideArithmetic, UnaryOpsComparesAndConversions) {
  Dims dims;
  const auto args = pairs(GetParam(), dims);
  GraphBuilder b;
  const Type t{GetParam(), dims};
  Value* x = b.arg(t);
  Value* y = b.arg(t);
  std::vector<Value*> out;
  for (const Kind kind :
       {Kind::kNot, Kind::kNegate, Kind::kAbs, Kind::kSign, Kind::kPopcnt, Kind::kClz}) {
    out.push_back(b.op(kind, {x}, t));
  }
  for (const auto d : {CompareDirection::kEq, CompareDirection::kNe, CompareDirection::kLt,
                       CompareDirection::kLe, CompareDirection::kGt, CompareDirection::kGe}) {
    out.push_back(b.op(Kind::kCompare, {x, y}, test::i1(dims), CompareAttrs{d, {}}));
  }
  for (const Elem e : {Elem::kI1, Elem::kI8, Elem::kU16, Elem::kI32, Elem::kU32, Elem::kF32,
                       Elem::kI64, Elem::kU64}) {
    out.push_back(b.op(Kind::kConvert, {x}, {e, dims}));
  }
  out.push_back(b.op(Kind::kSelect, {out[6], x, y}, t));
  out.push_back(b.op(Kind::kClamp, {x, y, x}, t));
  Dims words = dims;
  words.push_back(2);
  out.push_back(b.op(Kind::kBitcastConvert, {x}, {Elem::kU32, words}));
  expect_same(b.done(out), args);
}

TEST_P(WideArithmetic, FromOtherTypes) {
  GraphBuilder b;
  std::vector<float> values;
  for (const float v : {0.0f, 0.9f, 1.5f, 4294967296.0f, 4294967040.0f, 1e18f, 9.2233720e18f,
                        9.3e18f, 1.8446742e19f, 1.9e19f, 1e30f, INFINITY, NAN}) {
    values.push_back(v);
    values.push_back(-v);
  }
  const Dims dims{static_cast<int64_t>(values.size())};
  Tensor floats = make_tensor(f32(dims)), ints = make_tensor(i32(dims));
  std::memcpy(floats.data.data(), values.data(), floats.data.size());
  std::memcpy(ints.data.data(), values.data(), ints.data.size());  // any bits
  Value* x = b.arg(f32(dims));
  Value* y = b.arg(i32(dims));
  const Type t{GetParam(), dims};
  Value* u = b.op(Kind::kBitcastConvert, {y}, {Elem::kU32, dims});
  expect_same(b.done({b.op(Kind::kConvert, {x}, t), b.op(Kind::kConvert, {y}, t),
                      b.op(Kind::kConvert, {u}, t)}),
              {floats, ints});
}

TEST_P(WideArithmetic, ShapesAndReductions) {
  const Dims dims{4, 10};
  GraphBuilder b;
  const Type t{GetParam(), dims}, row{GetParam(), {4}}, scalar{GetParam(), {}};
  Value* x = b.arg(t);
  Value* init = b.op(Kind::kConstant, {}, scalar, ConstantAttrs{make_splat_int(scalar, 5)});
  std::vector<Value*> out;
  for (const Kind kind :
       {Kind::kAdd, Kind::kMultiply, Kind::kMaximum, Kind::kMinimum, Kind::kAnd, Kind::kXor}) {
    out.push_back(b.reduce(x, init, {1}, row, kind));
  }
  out.push_back(b.op(Kind::kTranspose, {x}, {GetParam(), {10, 4}}, DimsAttrs{{1, 0}}));
  out.push_back(b.op(Kind::kConcatenate, {x, x}, {GetParam(), {8, 10}}, DimAttrs{0}));
  out.push_back(b.op(Kind::kIota, {}, t, DimAttrs{1}));
  out.push_back(x);
  std::vector<uint64_t> values = edges();
  values.resize(40);
  expect_same(b.done(out), {words(t, values)});
}

INSTANTIATE_TEST_SUITE_P(Types, WideArithmetic, ::testing::Values(Elem::kI64, Elem::kU64),
                         [](const auto& param) { return std::string(elem_name(param.param)); });

// while (i < trips) { x = x * 3 + i; i = i + 1 }
Module& counted_loop(GraphBuilder& b, const Type& t, int64_t trips, Kind extra) {
  Value* x = b.arg(t);
  const Type count{t.elem, {}};
  Value* zero = b.op(Kind::kConstant, {}, count, ConstantAttrs{make_splat_int(count, 0)});
  Value* one = b.op(Kind::kConstant, {}, count, ConstantAttrs{make_splat_int(count, 1)});
  Value* limit = b.op(Kind::kConstant, {}, count, ConstantAttrs{make_splat_int(count, trips)});
  Op* loop = b.region().append(Kind::kWhile, {zero, x}, {count, t}, NoAttrs{}, zero->def->loc);
  Region* test = loop->add_region();
  Value* i = test->add_arg(count);
  test->add_arg(t);
  Value* more = test->append(Kind::kCompare, {i, limit}, {test::i1({})},
                             CompareAttrs{CompareDirection::kLt, CompareType::kSigned}, loop->loc)
                    ->result();
  test->append(Kind::kReturn, {more}, {}, NoAttrs{}, loop->loc);
  Region* body = loop->add_region();
  i = body->add_arg(count);
  Value* y = body->add_arg(t);
  Value* wide = body->append(Kind::kBroadcastInDim, {i}, {t}, DimsAttrs{}, loop->loc)->result();
  y = body->append(extra, {y, wide}, {t}, NoAttrs{}, loop->loc)->result();
  Value* next = body->append(Kind::kAdd, {i, one}, {count}, NoAttrs{}, loop->loc)->result();
  body->append(Kind::kReturn, {next, y}, {}, NoAttrs{}, loop->loc);
  return b.done({loop->result(0), loop->result(1)});
}

TEST(Wide, CarriedValuesOfLoopsAreSplit) {
  GraphBuilder b;
  const Type t{Elem::kI64, {3}};
  expect_same(counted_loop(b, t, 20, Kind::kAdd),
              {words(t, {0xfffffffffffffff0u, 0xfffffff8u, 5})});
}

TEST(Wide, WhatHasNoHalvesIsRefused) {
  GraphBuilder b;
  const Type t{Elem::kI64, {3}};
  Value* x = b.arg(t);
  Module& m = b.done({b.op(Kind::kSqrt, {x}, t)});
  try {
    split_wide(m);
    FAIL() << "sqrt was split";
  } catch (const Error& e) {
    EXPECT_EQ(e.op(), "stablehlo.sqrt");
    EXPECT_NE(e.message().find("32-bit"), std::string::npos);
  }
}

TEST(Unroll, ShortLoopsBecomeStraightCode) {
  const Tensor x = [] {
    Tensor t = make_tensor(i32({3}));
    const std::array<int32_t, 3> v = {7, -1, 100};
    std::memcpy(t.data.data(), v.data(), sizeof v);
    return t;
  }();
  for (const int64_t trips : {0, 1, 5, 8, 9}) {
    GraphBuilder b;
    Module& m = counted_loop(b, i32({3}), trips, Kind::kAdd);
    const auto before = interpret(m, {{x}});
    EXPECT_EQ(unroll_loops(m), trips <= 8) << trips;
    m.number_ops();
    verify(m);
    EXPECT_EQ(test::kinds(m).find("while") == std::string::npos, trips <= 8) << trips;
    const auto after = interpret(m, {{x}});
    for (size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(before[0][r].data, after[0][r].data) << trips;
    }
  }
}

}  // namespace
}  // namespace tpu::compiler
