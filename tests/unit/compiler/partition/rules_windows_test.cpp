// The factor rules of convolution, gather and scatter, as text, and proved by computing on parts.
#include <gtest/gtest.h>

#include "graph_builder.hpp"
#include "rule_check.hpp"

namespace tpu::compiler::test {
namespace {

class WindowRules : public testing::Test {
 protected:
  std::string rule(const Value* v, int cuts = 1) {
    EXPECT_GE(check_rule(*v->def, random_), cuts) << print(*v->def);
    return to_text(rule_of(*v->def));
  }

  Value* conv(Dims input, Dims kernel, Dims output, const ConvAttrs& a) {
    return b.op(Kind::kConvolution, {b.arg(f32(std::move(input))), b.arg(f32(std::move(kernel)))},
                f32(std::move(output)), a);
  }

  Value* scatter(const Type& target, Dims indices, Dims updates, const ScatterAttrs& a, Kind body) {
    return b.with_body(b.op(Kind::kScatter,
                            {b.arg(target), b.arg(i32(std::move(indices))),
                             b.arg({target.elem, std::move(updates)})},
                            target, a),
                       body);
  }

  GraphBuilder b;
  std::mt19937 random_{11};
};

// One spatial dimension: input [batch, x, feature], kernel [x, in, out], output as the input.
ConvAttrs nwc(int64_t stride, int64_t low, int64_t high) {
  ConvAttrs a;
  a.window_stride = {stride};
  a.pad_low = {low};
  a.pad_high = {high};
  a.lhs_dilation = a.rhs_dilation = {1};
  a.window_reversal = {false};
  a.input_batch = a.output_batch = 0;
  a.input_spatial = a.output_spatial = {1};
  a.input_feature = a.output_feature = 2;
  a.kernel_spatial = {0};
  a.kernel_input_feature = 1;
  a.kernel_output_feature = 2;
  return a;
}

TEST_F(WindowRules, ConvolutionPassesBatchAndOutputFeaturesAndReducesInputFeatures) {
  EXPECT_EQ(rule(conv({4, 8, 4}, {3, 4, 8}, {4, 8, 8}, nwc(1, 1, 1)), 8),
            "[a,#,B][#,B,c] -> [a,#,c]");
}

TEST_F(WindowRules, WindowsSideBySidePassAlongSpace) {
  EXPECT_EQ(rule(conv({2, 8, 2}, {1, 2, 2}, {2, 8, 2}, nwc(1, 0, 0))), "[a,b,C][1,C,d] -> [a,b,d]");
  EXPECT_EQ(rule(conv({2, 8, 2}, {2, 2, 2}, {2, 4, 2}, nwc(2, 0, 0))),
            "[a,b*#,C][#,C,d] -> [a,b,d]");
  EXPECT_EQ(rule(conv({2, 4, 2}, {2, 2, 2}, {2, 2, 2}, nwc(2, 1, 0))),
            "[a,#,B][#,B,c] -> [a,#,c]");  // every window begins in the block before
  EXPECT_EQ(rule(conv({2, 9, 2}, {1, 2, 2}, {2, 5, 2}, nwc(2, 0, 0))), "[a,#,B][1,B,c] -> [a,#,c]");
}

// The gradient of the kernel: features are the batch, the gradient of the output is the kernel.
TEST_F(WindowRules, GradientOfTheKernelReducesTheBatch) {
  ConvAttrs a = nwc(1, 1, 1);
  a.input_batch = 2;
  a.input_feature = 0;
  a.kernel_spatial = {1};
  a.kernel_input_feature = 0;
  a.output_spatial = {0};
  a.output_batch = 1;
  EXPECT_EQ(rule(conv({4, 8, 4}, {4, 8, 8}, {3, 4, 8}, a), 8), "[A,#,b][A,#,c] -> [#,b,c]");
}

TEST_F(WindowRules, GradientOfTheInputReducesOutputFeatures) {
  ConvAttrs a = nwc(1, 1, 1);
  a.kernel_input_feature = 2;
  a.kernel_output_feature = 1;
  a.window_reversal = {true};
  a.lhs_dilation = {2};
  EXPECT_EQ(rule(conv({4, 4, 8}, {3, 4, 8}, {4, 7, 4}, a)), "[a,#,B][#,c,B] -> [a,#,c]");
}

TEST_F(WindowRules, FeatureGroupsPass) {
  ConvAttrs a = nwc(1, 1, 1);
  a.feature_groups = 8;  // depthwise
  EXPECT_EQ(rule(conv({2, 4, 8}, {3, 1, 8}, {2, 4, 8}, a), 4), "[a,#,b][#,1,b] -> [a,#,b]");
  a.feature_groups = 4;
  EXPECT_EQ(rule(conv({2, 4, 8}, {3, 2, 16}, {2, 4, 16}, a), 6), "[a,#,b*C][#,C,b*d] -> [a,#,b*d]");
}

TEST_F(WindowRules, BatchGroupsPass) {  // gradient of a depthwise kernel
  ConvAttrs a = nwc(1, 1, 1);
  a.input_batch = 2;
  a.input_feature = 0;
  a.kernel_spatial = {1};
  a.kernel_input_feature = 0;
  a.output_spatial = {0};
  a.output_batch = 1;
  a.batch_groups = 8;
  EXPECT_EQ(rule(conv({4, 6, 8}, {4, 6, 8}, {3, 1, 8}, a), 5), "[A,#,b][A,#,b] -> [#,1,b]");
  a.batch_groups = 2;
  EXPECT_EQ(rule(conv({4, 6, 8}, {4, 6, 8}, {3, 4, 8}, a), 6), "[A,#,b*c][A,#,b*d] -> [#,c,b*d]");
}

TEST_F(WindowRules, LookUpPassesIndicesAndWholeRowsAndSumsOverRows) {
  GatherAttrs a;  // table[i]: rows of 8
  a.offset_dims = {2};
  a.collapsed_slice_dims = a.start_index_map = {0};
  a.slice_sizes = {1, 8};
  a.index_vector_dim = 2;
  Value* table = b.arg(f32({6, 8}));
  EXPECT_EQ(rule(b.op(Kind::kGather, {table, b.arg(i32({4, 2, 1}))}, f32({4, 2, 8}), a), 5),
            "[A,b][c,d,1] -> [c,d,b]");
  a.slice_sizes = {1, 4};  // the first half of rows
  EXPECT_EQ(rule(b.op(Kind::kGather, {table, b.arg(i32({4, 2, 1}))}, f32({4, 2, 4}), a)),
            "[A,#][b,c,1] -> [b,c,#]");
}

TEST_F(WindowRules, BatchedGatherPassesTheBatch) {
  GatherAttrs a;  // take_along_axis
  a.collapsed_slice_dims = a.start_index_map = {1};
  a.operand_batching_dims = a.start_indices_batching_dims = {0};
  a.slice_sizes = {1, 1};
  a.index_vector_dim = 2;
  EXPECT_EQ(rule(b.op(Kind::kGather, {b.arg(f32({4, 6})), b.arg(i32({4, 2, 1}))}, f32({4, 2}), a)),
            "[a,B][a,c,1] -> [a,c]");
}

ScatterAttrs rows() {  // of a table
  ScatterAttrs a;
  a.update_window_dims = {1};
  a.inserted_window_dims = a.scatter_dims_to_operand_dims = {0};
  a.index_vector_dim = 1;
  return a;
}

TEST_F(WindowRules, ScatterReducesRecordsOfSimpleBodies) {
  for (const Kind k : {Kind::kAdd, Kind::kMultiply, Kind::kMaximum, Kind::kMinimum}) {
    EXPECT_EQ(rule(scatter(f32({6, 8}), {4, 1}, {4, 8}, rows(), k), 3), "[a,b][C,1][C,b] -> [a,b]");
  }
  for (const Kind k : {Kind::kAnd, Kind::kOr, Kind::kXor}) {
    EXPECT_EQ(rule(scatter(i32({6, 8}), {4, 1}, {4, 8}, rows(), k)), "[a,b][C,1][C,b] -> [a,b]");
  }
}

TEST_F(WindowRules, ScatterThatStoresKeepsItsRecordsTogether) {
  EXPECT_EQ(rule(scatter(f32({6, 8}), {4, 1}, {4, 8}, rows(), Kind::kSubtract)),
            "[a,b][#,1][#,b] -> [a,b]");
}

// Every entry of an index vector addresses a dimension, in the order that the op says; predicates
// cannot be summed.
TEST_F(WindowRules, EachIndexedDimensionIsCut) {
  GatherAttrs a;  // x[i, j]
  a.collapsed_slice_dims = {0, 1};
  a.start_index_map = {1, 0};
  a.slice_sizes = {1, 1};
  a.index_vector_dim = 1;
  Value* picked = b.op(Kind::kGather, {b.arg(f32({4, 8})), b.arg(i32({6, 2}))}, f32({6}), a);
  EXPECT_EQ(rule(picked, 3), "[A,B][c,#] -> [c]");
  const FactorRule r = rule_of(*picked->def);
  ASSERT_EQ(r.indexed.size(), 2u);
  EXPECT_EQ(r.factors[static_cast<size_t>(r.indexed[0].factor)].size, 8);
  Value* flags = b.op(Kind::kGather, {b.arg(i1({4, 8})), b.arg(i32({6, 2}))}, i1({6}), a);
  EXPECT_EQ(rule(flags, 3), "[A,B][c,#] -> [c]");
  ScatterAttrs to;  // x[i, j] += u
  to.inserted_window_dims = {0, 1};
  to.scatter_dims_to_operand_dims = {1, 0};
  to.index_vector_dim = 1;
  EXPECT_EQ(rule(scatter(f32({4, 8}), {6, 2}, {6}, to, Kind::kAdd), 3), "[a,b][C,#][C] -> [a,b]");
}

TEST_F(WindowRules, PartialWindowsAreWhole) {
  EXPECT_EQ(rule(scatter(f32({6, 8}), {4, 1}, {4, 4}, rows(), Kind::kAdd)),
            "[a,#][B,1][B,#] -> [a,#]");
}

TEST_F(WindowRules, BatchedScatterPassesTheBatch) {
  ScatterAttrs a;
  a.inserted_window_dims = a.scatter_dims_to_operand_dims = {1};
  a.input_batching_dims = a.scatter_indices_batching_dims = {0};
  a.index_vector_dim = 2;
  EXPECT_EQ(rule(scatter(f32({4, 6}), {4, 2, 1}, {4, 2}, a, Kind::kAdd)),
            "[a,b][a,C,1][a,C] -> [a,b]");
  EXPECT_EQ(rule(scatter(f32({4, 6}), {4, 2, 1}, {4, 2}, a, Kind::kSubtract)),
            "[a,b][a,#,1][a,#] -> [a,b]");
}

}  // namespace
}  // namespace tpu::compiler::test
