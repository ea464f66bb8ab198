// Ops with sizes as operands: constants, and what is computed of them, become attributes.
#include "passes/static_sizes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_builder.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "tensors.hpp"

namespace tpu::compiler::test {
namespace {

using testing::HasSubstr;

class StaticSizes : public testing::Test {
 protected:
  Value* list(const std::vector<int32_t>& values) {
    const Type type = i32({static_cast<int64_t>(values.size())});
    return b_.op(Kind::kConstant, {}, type, ConstantAttrs{make_dense_of(type, values)});
  }

  // The op that is left in front of the return, after the pass.
  const Op& made(Value* result) {
    Module& m = b_.done({result});
    verify(m);
    EXPECT_TRUE(make_sizes_static(m));
    verify(m);
    return *m.main->body.terminator()->operands[0]->def;
  }

  std::string error(Value* result) {
    try {
      made(result);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }

  GraphBuilder b_;
};

TEST_F(StaticSizes, PadOfComputedSizes) {
  Value* x = b_.arg(f32({3, 4}));
  Value* low = b_.op(Kind::kAdd, {list({1, -3}), list({0, 2})}, i32({2}));
  const Op& op =
      made(b_.op(Kind::kDynamicPad, {x, b_.constant(f32({}), 7), low, list({0, 5}), list({1, 0})},
                 f32({6, 8})));
  EXPECT_EQ(op.kind, Kind::kPad);
  EXPECT_EQ(op.as<PadAttrs>(), (PadAttrs{{1, -1}, {0, 5}, {1, 0}}));
  EXPECT_EQ(op.operands.size(), 2u);
}

TEST_F(StaticSizes, SliceOfConstantsAndOfAStartThatIsNone) {
  Value* x = b_.arg(f32({9, 8}));
  const Op& op = made(
      b_.op(Kind::kRealDynamicSlice, {x, list({1, 2}), list({8, 8}), list({3, 2})}, f32({3, 3})));
  EXPECT_EQ(op.kind, Kind::kSlice);
  EXPECT_EQ(op.as<SliceAttrs>(), (SliceAttrs{{1, 2}, {8, 8}, {3, 2}}));
}

TEST_F(StaticSizes, SliceFromAStartOfTheProgram) {
  Value* x = b_.arg(i32({9}));
  Value* start = b_.arg(i32({1}));
  made(b_.op(Kind::kRealDynamicSlice, {x, start, b_.arg(i32({1})), list({2})}, i32({3})));
  const std::vector<int32_t> all = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const auto results =
      interpret(b_.module(), {{tensor<int32_t>(i32({9}), all), tensor<int32_t>(i32({1}), {3}),
                               tensor<int32_t>(i32({1}), {9})}});
  EXPECT_EQ(values<int32_t>(results[0][0]), (std::vector<int32_t>{3, 5, 7}));
}

TEST_F(StaticSizes, PaddingOfAConvolution) {
  Value* x = b_.arg(f32({2, 9, 3}));
  Value* w = b_.arg(f32({4, 3, 5}));
  ConvAttrs a;
  a.window_stride = a.lhs_dilation = a.rhs_dilation = {1};
  a.window_reversal = {false};
  a.input_batch = a.output_batch = 0;
  a.input_feature = a.output_feature = 2;
  a.input_spatial = a.output_spatial = {1};
  a.kernel_spatial = {0};
  a.kernel_input_feature = 1;
  a.kernel_output_feature = 2;
  a.feature_groups = a.batch_groups = 1;
  Value* padding = b_.op(Kind::kReshape, {list({3, -1})}, i32({1, 2}));
  const Op& op = made(b_.op(Kind::kDynamicConv, {x, w, padding}, f32({2, 8, 5}), a));
  EXPECT_EQ(op.kind, Kind::kConvolution);
  EXPECT_EQ(op.as<ConvAttrs>().pad_low, Dims{3});
  EXPECT_EQ(op.as<ConvAttrs>().pad_high, Dims{-1});
}

TEST_F(StaticSizes, ADimensionHasAllOfItsElements) {
  Value* x = b_.arg(f32({9}));
  Value* four = b_.op(Kind::kConstant, {}, i32({}), ConstantAttrs{make_splat_int(i32({}), 4)});
  Value* nine = b_.op(Kind::kConstant, {}, i32({}), ConstantAttrs{make_splat_int(i32({}), 9)});
  Value* same = b_.op(Kind::kSetDimensionSize, {x, nine}, f32({9}), DimAttrs{0});
  EXPECT_THAT(error(b_.op(Kind::kSetDimensionSize, {same, four}, f32({9}), DimAttrs{0})),
              HasSubstr("a dimension of 9 elements cannot have 4 of them"));
}

TEST_F(StaticSizes, WhatIsNotKnownIsNamedWithItsLine) {
  Value* x = b_.arg(f32({3}));
  Value* n = b_.arg(i32({1}));
  const std::string text = error(
      b_.op(Kind::kDynamicPad, {x, b_.constant(f32({}), 0), n, list({1}), list({0})}, f32({5})));
  EXPECT_THAT(text, HasSubstr("stablehlo.dynamic_pad: its sizes are not known before"));
  EXPECT_THAT(text, HasSubstr("test.py:4"));
}

TEST_F(StaticSizes, SizesThatDoNotFitTheResultAreNamed) {
  Value* x = b_.arg(f32({3}));
  EXPECT_THAT(error(b_.op(Kind::kDynamicPad,
                          {x, b_.constant(f32({}), 0), list({1}), list({1}), list({0})}, f32({6}))),
              HasSubstr("stablehlo.dynamic_pad: the result must be f32[5]"));
}

}  // namespace
}  // namespace tpu::compiler::test
