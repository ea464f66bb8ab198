// Loop nests: views become strides, loops merge, reduces keep the loops of their input's shape.
#include "vpu/nest.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "../graph_builder.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler::test {
namespace {

NestContext nothing_copied() {
  NestContext c;
  c.is_copied = [](const Value*) { return false; };
  return c;
}

// A signalling NaN and a subnormal: no conversion on the way may change them.
TEST(Nest, ConstantsInRegistersKeepTheirBits) {
  for (const uint32_t bits : {0x7f810000u, 0xffc10000u, 0x00010000u, 0x80010000u}) {
    const auto half = static_cast<uint16_t>(bits >> 16);
    EXPECT_EQ(register_bits(make_dense_of<uint32_t>(f32({}), {bits | 1})), bits | 1);
    EXPECT_EQ(register_bits(make_dense_of<uint16_t>({Elem::kBf16, {}}, {half})), bits);
  }
}

TEST(Nest, BroadcastIsStrideZeroAndDenseDimsMerge) {
  GraphBuilder b;
  Value* x = b.arg(f32({3, 4, 5}));
  Value* row = b.arg(f32({5}));
  Value* wide = b.op(Kind::kBroadcastInDim, {row}, f32({3, 4, 5}), DimsAttrs{{2}});
  Value* y = b.op(Kind::kAdd, {x, wide}, f32({3, 4, 5}));
  const auto nest = build_nest({y->def}, {3, 4, 5}, nothing_copied());
  ASSERT_TRUE(nest);
  ASSERT_EQ(nest->loops.size(), 2u);
  EXPECT_EQ(nest->loops[0].n, 12);
  EXPECT_EQ(nest->accesses[0].view.stride, (Dims{5, 1}));
  EXPECT_EQ(nest->accesses[1].view.stride, (Dims{0, 1}));
}

TEST(Nest, ReshapeSplitsLoops) {
  GraphBuilder b;
  Value* x = b.arg(f32({7, 4}));
  Value* t = b.op(Kind::kTranspose, {x}, f32({4, 7}), DimsAttrs{{1, 0}});
  Value* flat = b.op(Kind::kReshape, {t}, f32({28}));
  Value* y = b.op(Kind::kNegate, {flat}, f32({28}));
  const auto nest = build_nest({y->def}, {28}, nothing_copied());
  ASSERT_TRUE(nest);
  ASSERT_EQ(nest->loops.size(), 2u);
  EXPECT_EQ(nest->loops[0].n, 4);
  EXPECT_EQ(nest->accesses[0].view.stride, (Dims{1, 4}));
}

TEST(Nest, SliceAndReverseAreOffsets) {
  GraphBuilder b;
  Value* x = b.arg(f32({10, 6}));
  Value* s = b.op(Kind::kSlice, {x}, f32({4, 2}), SliceAttrs{{1, 1}, {9, 4}, {2, 2}});
  Value* r = b.op(Kind::kReverse, {s}, f32({4, 2}), DimsAttrs{{0}});
  Value* y = b.op(Kind::kNegate, {r}, f32({4, 2}));
  const auto nest = build_nest({y->def}, {4, 2}, nothing_copied());
  ASSERT_TRUE(nest);
  EXPECT_EQ(nest->accesses[0].view.offset, 7 * 6 + 1);
  EXPECT_EQ(nest->accesses[0].view.stride, (Dims{-12, 2}));
}

TEST(Nest, ReduceKeepsTheRunsOfItsShape) {
  GraphBuilder b;
  Value* x = b.arg(f32({2, 3, 4, 5}));
  Value* zero = b.constant(f32({}), 0);
  Value* y = b.reduce(x, zero, {1, 2}, f32({2, 5}), Kind::kAdd);
  const auto nest = build_nest({y->def}, {2, 3, 4, 5}, nothing_copied());
  ASSERT_TRUE(nest);
  ASSERT_EQ(nest->loops.size(), 3u);
  EXPECT_EQ(nest->loops[1].n, 12);
  EXPECT_TRUE(nest->loops[1].reduced);
  EXPECT_EQ(nest->reduced_strides(), (Dims{5, 0, 1}));
  // A broadcast inside the reduced run cannot join: the run must stay one loop.
  Value* three = b.arg(f32({3}));
  Value* wide = b.op(Kind::kBroadcastInDim, {three}, f32({2, 3, 4, 5}), DimsAttrs{{1}});
  Value* p = b.op(Kind::kMultiply, {x, wide}, x->type);
  Value* z = b.reduce(p, zero, {1, 2}, f32({2, 5}), Kind::kAdd);
  EXPECT_FALSE(build_nest({p->def, z->def}, {2, 3, 4, 5}, nothing_copied()));
}

// Sums along the lanes have one order for any loops around them; blocks must be full of rows.
TEST(Nest, SumsOfRowsKeepOuterLoopsApart) {
  for (const int64_t rows : {16, 3}) {
    GraphBuilder b;
    const Dims dims = {5, rows, 64};
    Value* mask =
        b.op(Kind::kBroadcastInDim, {b.arg(f32({rows, 64}))}, f32(dims), DimsAttrs{{1, 2}});
    Value* p = b.op(Kind::kMultiply, {b.arg(f32(dims)), mask}, f32(dims));
    Value* zero = b.constant(f32({}), 0);
    Value* sums = b.reduce(p, zero, {2}, f32({5, rows}), Kind::kAdd);
    const auto nest = build_nest({p->def, sums->def}, dims, nothing_copied());
    ASSERT_EQ(nest.has_value(), rows == 16);
    if (nest) {
      ASSERT_EQ(nest->loops.size(), 3u);
      EXPECT_EQ(nest->reduced_strides(), (Dims{16, 1, 0}));
    }
    Value* of_cols = b.reduce(p, zero, {1}, f32({5, 64}), Kind::kAdd);
    EXPECT_TRUE(build_nest({p->def, of_cols->def}, dims, nothing_copied()));
    Value* of_all = b.reduce(p, zero, {0}, f32({rows, 64}), Kind::kAdd);
    EXPECT_TRUE(build_nest({p->def, of_all->def}, dims, nothing_copied()));
  }
}

// Slices of one array beside each other: a merged loop could read none of them.
TEST(Nest, ReduceApartKeepsItsDims) {
  GraphBuilder b;
  Value* x = b.arg(f32({2, 5, 6, 8}));
  Value* zero = b.constant(f32({}), 0);
  std::vector<const Op*> ops;
  for (const bool apart : {false, true}) {
    ops.clear();
    for (const int64_t at : {0, 1}) {
      Value* s = b.op(Kind::kSlice, {x}, f32({2, 4, 5, 8}),
                      SliceAttrs{{0, at, at, 0}, {2, at + 4, at + 5, 8}, {1, 1, 1, 1}});
      Value* n = b.op(Kind::kNegate, {s}, s->type);
      Value* sum = b.reduce(n, zero, {0, 1, 2}, f32({8}), Kind::kAdd);
      std::get<DimsAttrs>(sum->def->attrs).apart = apart;
      ops.push_back(n->def);
      ops.push_back(sum->def);
    }
    EXPECT_EQ(build_nest(ops, {2, 4, 5, 8}, nothing_copied()).has_value(), apart);
  }
  const auto nest = build_nest(ops, {2, 4, 5, 8}, nothing_copied());
  ASSERT_TRUE(nest);
  ASSERT_EQ(nest->loops.size(), 4u);
  EXPECT_EQ(nest->accesses[1].view.offset, 6 * 8 + 8);
  EXPECT_EQ(nest->reduced_strides(), (Dims{0, 0, 0, 1}));
  // The order of a sum is one of shapes alone: dims that could merge stay apart too, and a sum of
  // merged loops does not join.
  Value* y = b.arg(f32({2, 4, 5, 8}));
  Value* whole = b.reduce(y, zero, {0, 1, 2}, f32({8}), Kind::kAdd);
  EXPECT_FALSE(build_nest({ops[0], ops[1], whole->def}, {2, 4, 5, 8}, nothing_copied()));
  std::get<DimsAttrs>(whole->def->attrs).apart = true;
  EXPECT_EQ(build_nest({whole->def}, {2, 4, 5, 8}, nothing_copied())->loops.size(), 4u);
}

// y = x * a + b + c + d of rows x f32[6,8,256]; a .. d f32[256].
TEST(VpuProgram, OperandsOfTheLanesLoadOutsideOfTheRows) {
  GraphBuilder b;
  Value* y = b.arg(f32({6, 8, 256}));
  std::vector<const Op*> ops;
  for (const Kind kind : {Kind::kMultiply, Kind::kAdd, Kind::kAdd, Kind::kAdd}) {
    Value* row = b.arg(f32({256}));
    Value* wide = b.op(Kind::kBroadcastInDim, {row}, y->type, DimsAttrs{{2}});
    y = b.op(kind, {y, wide}, y->type);
    ops.push_back(y->def);
  }
  const auto nest = build_nest(ops, {6, 8, 256}, nothing_copied());
  ASSERT_TRUE(nest);
  ASSERT_EQ(nest->loops.size(), 2u);  // rows merge
  EXPECT_EQ(count_rows_of_lanes(*nest, 1, {0}), 4);
  VpuGenOptions options;
  options.stores = {3};
  options.row_loop = 0;
  options.col_loop = 1;
  const auto loads = [&](size_t section) {
    const VpuGenResult made = generate_vpu(*nest, options);
    size_t first = 0;
    for (size_t s = 0; s < section; ++s) {
      first += made.program.header.section[s];
    }
    return std::count_if(
        made.program.code.begin() + static_cast<ptrdiff_t>(first),
        made.program.code.begin() + static_cast<ptrdiff_t>(first) +
            made.program.header.section[section],
        [](const spec::VpuInsn& i) { return i.op == static_cast<uint8_t>(spec::VpuOp::kLoad); });
  };
  constexpr size_t kBodySection = 4, kInLanes = 3;  // the rows are the one loop inside
  EXPECT_EQ(loads(kBodySection), 5);
  options.inside_lanes = {0};
  EXPECT_EQ(loads(kBodySection), 1);
  EXPECT_EQ(loads(kInLanes), 4);
}

}  // namespace
}  // namespace tpu::compiler::test
