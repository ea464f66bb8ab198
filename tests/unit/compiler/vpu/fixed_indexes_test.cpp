// Nests with known indexes: what no lane takes is not computed.
#include "vpu/fixed_indexes.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "../graph_builder.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler::test {
namespace {

// y[p, i] = tap[i] == 4 * p + more ? x[i] : 0 of p < 2, taps that are 0, 5 or -1.
class FixedIndexes : public ::testing::Test {
 protected:
  Nest nest(double more) {
    const Type ints{Elem::kI32, {2, 1024}}, bytes{Elem::kI8, {1024}};
    const auto splat = [&](const Type& t, double v) { return b_.constant(t, v); };
    Value* odd =
        b_.op(Kind::kSelect, {b_.arg(i1({1024})), splat(bytes, 5), splat(bytes, -1)}, bytes);
    Value* tap = b_.op(Kind::kSelect, {b_.arg(i1({1024})), splat(bytes, 0), odd}, bytes);
    const auto wide = [&](Value* v) {
      return b_.op(Kind::kBroadcastInDim, {v}, {v->type.elem, {2, 1024}}, DimsAttrs{{1}});
    };
    Value* code = b_.op(Kind::kConvert, {wide(tap)}, ints);
    Value* phase = b_.op(Kind::kIota, {}, ints, DimAttrs{0});
    Value* first = b_.op(Kind::kMultiply, {phase, splat(ints, 4)}, ints);
    Value* wanted = b_.op(Kind::kAdd, {first, splat(ints, more)}, ints);
    Value* mine = b_.op(Kind::kCompare, {code, wanted}, i1({2, 1024}),
                        CompareAttrs{CompareDirection::kEq, CompareType::kSigned});
    Value* x = wide(b_.arg(f32({1024})));
    Value* y = b_.op(Kind::kSelect, {mine, x, splat(f32({2, 1024}), 0)}, f32({2, 1024}));
    NestContext context;
    context.is_copied = [](const Value*) { return false; };
    return *build_nest({code->def, first->def, wanted->def, mine->def, y->def}, {2, 1024}, context);
  }

  static int64_t count(const Nest& nest, spec::VpuOp op) {
    VpuGenOptions options;
    options.stores = {static_cast<int>(nest.nodes.size()) - 1};
    options.row_loop = 0;
    options.col_loop = 1;
    const VpuProgram program = generate_vpu(nest, options).program;
    return std::count_if(program.code.begin(), program.code.end(),
                         [&](const spec::VpuInsn& i) { return i.op == static_cast<uint8_t>(op); });
  }

  GraphBuilder b_;
};

TEST_F(FixedIndexes, ArithmeticOnThemIsDoneBefore) {
  const Nest open = nest(1);
  EXPECT_EQ(count(open, spec::VpuOp::kMulI), 1);
  EXPECT_EQ(count(open, spec::VpuOp::kIndex), 1);
  const Nest fixed = fix_indexes(open, {{0, 1}});  // 4 * 1 + 1: a tap that there is
  EXPECT_EQ(count(fixed, spec::VpuOp::kMulI), 0);
  EXPECT_EQ(count(fixed, spec::VpuOp::kIndex), 0);
  EXPECT_EQ(count(fixed, spec::VpuOp::kLoad), 2);
  EXPECT_EQ(count(fixed, spec::VpuOp::kSelect), 1);
}

TEST_F(FixedIndexes, WhatNoElementEqualsIsNotLoaded) {
  const Nest fixed = fix_indexes(nest(1), {{0, 0}});  // no tap is 1
  EXPECT_EQ(count(fixed, spec::VpuOp::kLoad), 0);
  EXPECT_EQ(count(fixed, spec::VpuOp::kSelect), 0);
  EXPECT_EQ(count(fixed, spec::VpuOp::kStore), 1);
}

TEST_F(FixedIndexes, SignsOfNarrowConstantsCount) {
  EXPECT_EQ(count(fix_indexes(nest(-1), {{0, 0}}), spec::VpuOp::kSelect), 1);
  EXPECT_EQ(count(fix_indexes(nest(255), {{0, 0}}), spec::VpuOp::kSelect), 0);
}

TEST_F(FixedIndexes, OthersStayOpen) {
  EXPECT_EQ(count(fix_indexes(nest(1), {}), spec::VpuOp::kSelect), 1);
}

}  // namespace
}  // namespace tpu::compiler::test
