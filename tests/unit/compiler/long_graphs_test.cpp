// Graphs of tens of thousands of ops in a row: no walk over them needs a stack as deep as the
// chain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "board/board_loader.hpp"
#include "entry/compile.hpp"
#include "graph_builder.hpp"
#include "ir/error_kinds.hpp"

namespace tpu::compiler::test {
namespace {

constexpr int kLong = 50'000;

exe::ExecutableT compiled(Module& m) {
  return compile(std::move(m), spec::load_board("v3_8")).executable;
}

std::string listing_of(Module& m) {
  std::string text;
  CompileOptions options;
  options.dump_after = {"listing"};
  options.dump = [&](const std::string&, const std::string& t) { text = t; };
  compile(std::move(m), spec::load_board("v3_8"), options);
  return text;
}

// Ops on arguments wait until somebody needs them: here the whole chain.
TEST(LongGraphs, ChainOfLargeArrays) {
  GraphBuilder b;
  Value* x = b.arg(f32({4096}));
  Value* v = x;
  for (int i = 0; i < kLong; ++i) {
    v = b.op(i % 2 == 0 ? Kind::kAdd : Kind::kMultiply, {v, i % 3 == 0 ? v : x}, f32({4096}));
  }
  EXPECT_GT(compiled(b.done({v})).ops.size(), 100u);
}

TEST(LongGraphs, ViewsOfViews) {
  GraphBuilder b;
  Value* v = b.arg(f32({8, 8}));
  for (int i = 0; i < kLong; ++i) {
    v = i % 2 == 0 ? b.op(Kind::kTranspose, {v}, f32({8, 8}), DimsAttrs{{1, 0}})
                   : b.op(Kind::kReverse, {v}, f32({8, 8}), DimsAttrs{{i / 2 % 2}});
  }
  EXPECT_GT(compiled(b.done({b.op(Kind::kAbs, {v}, f32({8, 8}))})).image.size(), 0u);
}

// Each of these views needs a copy of the one before it.
TEST(LongGraphs, ViewsThatNeedCopiesAreRefused) {
  GraphBuilder b;
  Value* v = b.arg(f32({6, 35}));
  for (int i = 0; i < 1000; ++i) {
    v = b.op(Kind::kReshape, {b.op(Kind::kTranspose, {v}, f32({35, 6}), DimsAttrs{{1, 0}})},
             f32({6, 35}));
  }
  Module& m = b.done({b.op(Kind::kAbs, {v}, f32({6, 35}))});
  try {
    compiled(m);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("in a row need a copy each"));
    EXPECT_THAT(e.what(), testing::HasSubstr("test.py:"));
  }
}

// A sum over the cores that updates nothing else than what a long chain makes of a parameter.
TEST(LongGraphs, ChainBesideASummedGradient) {
  GraphBuilder b(8);
  b.module().mesh.name = "mesh";
  b.module().mesh.axes = {{"d", 8}};
  const Type type = f32({1 << 18});
  Value* parameter = b.arg(type);
  b.module().main->args.back().alias_result = 0;
  Value* scale = b.arg(f32({}));
  CollectiveAttrs everywhere;
  everywhere.groups = {{0, 1, 2, 3, 4, 5, 6, 7}};
  Value* sum = b.with_body(b.op(Kind::kAllReduce, {parameter}, type, everywhere), Kind::kAdd);
  for (int i = 0; i < kLong; ++i) {
    scale = b.op(Kind::kAdd, {scale, scale}, f32({}));
  }
  Value* all = b.op(Kind::kBroadcastInDim, {scale}, type, DimsAttrs{});
  Value* step = b.op(Kind::kMultiply, {sum, all}, type);
  EXPECT_GT(compiled(b.done({b.op(Kind::kSubtract, {parameter, step}, type)})).ops.size(), 100u);
}

TEST(LongGraphs, SortsBeyondTheLimitOfAProgramAreRefused) {
  GraphBuilder b;
  const Type type = f32({int64_t{1} << 28});
  Value* v = b.op(Kind::kSort, {b.arg(type)}, type, SortAttrs{0, true});
  Region* body = v->def->add_region();
  Value* first = body->add_arg(f32({}));
  Value* second = body->add_arg(f32({}));
  const LocRef loc = v->def->loc;
  Value* less = body->append(Kind::kCompare, {first, second}, {i1({})},
                             CompareAttrs{CompareDirection::kLt, CompareType::kFloat}, loc)
                    ->result();
  body->append(Kind::kReturn, {less}, {}, NoAttrs{}, loc);
  Module& m = b.done({v});
  try {
    compiled(m);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("test.py:1:1: "));
    EXPECT_THAT(e.what(), testing::HasSubstr("the program grows beyond 1048576 instructions"));
    EXPECT_THAT(e.what(),
                testing::HasSubstr("of them are of this op, which touches f32[268435456"));
  }
}

Type bf16(Dims dims) { return {Elem::kBf16, std::move(dims)}; }

// n x n matrices, three of them one after the other.
Module& products(GraphBuilder& b, int64_t n) {
  const Type type = bf16({n, n});
  const DotAttrs rows{{}, {}, {1}, {0}};
  Value* x = b.arg(type);
  Value* square = b.op(Kind::kDotGeneral, {x, x}, type, rows);
  Value* cube = b.op(Kind::kDotGeneral, {square, x}, type, rows);
  Value* most = b.reduce(cube, b.constant(bf16({}), 0), {0, 1}, bf16({}), Kind::kMaximum);
  return b.done({most});
}

// Two products of which one alone fills a program, and which fit into memory.
TEST(LongGraphs, MatmulsBeyondTheLimitOfAProgramBecomeLoops) {
  GraphBuilder b;
  const exe::ExecutableT e = compiled(products(b, 48'000));
  EXPECT_EQ(e.matmul_flops, 2 * uint64_t{2} * 48'000 * 48'000 * 48'000);
}

// Equal layers: each product is a small part of the program, all of them are more than one holds.
TEST(LongGraphs, MatmulsOfEqualLayersBeyondTheLimitBecomeLoops) {
  constexpr int kLayers = 48;
  GraphBuilder b;
  const Type type = bf16({4096, 128, 128});
  Value* x = b.arg(type);
  Value* v = x;
  for (int i = 0; i < kLayers; ++i) {
    v = b.op(Kind::kDotGeneral, {v, x}, type, DotAttrs{{0}, {0}, {2}, {1}});
  }
  const exe::ExecutableT e = compiled(b.done({v}));
  EXPECT_EQ(e.matmul_flops, uint64_t{kLayers} * 2 * 4096 * 128 * 128 * 128);
}

std::string exhausted(Module& m, const std::vector<std::string>& overrides = {}) {
  try {
    compile(std::move(m), spec::load_board("v3_8", overrides));
  } catch (const HbmExhausted& e) {
    return e.what();
  }
  return "";
}

// Whatever else would be wrong with it: the largest arrays, and no command is made.
TEST(LongGraphs, MemoryIsLookedAtFirst) {
  GraphBuilder b;
  Value* x = b.arg(f32({8}));
  const Type type = bf16({1'000'000, 1'000'000});
  Value* spread = b.op(Kind::kBroadcastInDim, {b.op(Kind::kConvert, {x}, bf16({8}))},
                       bf16({1'000'000, 8}), DimsAttrs{{1}});
  Value* large = b.op(Kind::kDotGeneral, {spread, spread}, type, DotAttrs{{}, {}, {1}, {1}});
  Value* square = b.op(Kind::kDotGeneral, {large, large}, type, DotAttrs{{}, {}, {1}, {0}});
  Value* most = b.reduce(square, b.constant(bf16({}), 0), {0, 1}, bf16({}), Kind::kMaximum);
  const std::string text = exhausted(b.done({most}));
  EXPECT_THAT(text, testing::HasSubstr("test.py:"));
  EXPECT_THAT(text, testing::HasSubstr("the program needs at least "));
  EXPECT_THAT(text, testing::HasSubstr("a core has 16 GiB"));
  EXPECT_THAT(text, testing::HasSubstr(
                        "2000000000000 bytes: bf16[1000000,1000000] of dot_general at test.py:"));
}

// 2 x 384 MiB and little more in 1 GiB: a result that others read lies in its place from the start,
// and a value takes the place of what it is made of.
TEST(LongGraphs, WhatFitsIsNotRefused) {
  const Type type = f32({10'000, 10'000});
  const Type thin = f32({10'000, 8});
  GraphBuilder b;
  Value* x = b.arg(type);
  Value* y = b.op(Kind::kExp, {x}, type);
  Value* z = b.op(Kind::kDotGeneral, {y, b.arg(thin)}, thin, DotAttrs{{}, {}, {1}, {0}});
  EXPECT_EQ(exhausted(b.done({y, z}), {"hbm.gib_per_core=1"}), "");
  GraphBuilder more;
  Value* a = more.arg(type);
  Value* s = more.op(Kind::kDotGeneral, {a, a}, type, DotAttrs{{}, {}, {1}, {0}});
  Value* t = more.op(Kind::kDotGeneral, {s, a}, type, DotAttrs{{}, {}, {1}, {0}});
  Value* most = more.reduce(t, more.constant(f32({}), 0), {0, 1}, f32({}), Kind::kMaximum);
  EXPECT_THAT(exhausted(more.done({most}), {"hbm.gib_per_core=1"}),
              testing::HasSubstr("the program needs "));
}

// Arrays of n elements under an optimiser that keeps one more of each; `donated`: in their memory.
Module& training(GraphBuilder& b, int n, bool donated) {
  std::vector<Value*> results;
  Value* rate = b.arg(f32({8}));
  for (int i = 0; i < n; ++i) {
    Value* v = b.arg(f32({8}));
    b.module().main->args.back().alias_result = donated ? i : -1;
    results.push_back(b.op(Kind::kAdd, {v, rate}, f32({8})));
  }
  return b.done(results);
}

TEST(LongGraphs, DonatedArraysHaveOneSlot) {
  GraphBuilder b;
  EXPECT_EQ(compiled(training(b, 9'000, true)).slots.size(), 9'002U);
}

TEST(LongGraphs, MoreSlotsThanALaunchHasAreRefusedWithWhatHelps) {
  GraphBuilder b;
  const std::string text = exhausted(training(b, 9'000, false));
  EXPECT_THAT(text,
              testing::HasSubstr("the program needs 18002 binding slots (9001 arguments, 9000 "
                                 "results that do not reuse a donated argument"));
  EXPECT_THAT(text, testing::HasSubstr("a launch has at most 16384"));
  EXPECT_THAT(text, testing::HasSubstr("jax.lax.scan"));
  EXPECT_THAT(text, testing::HasSubstr("donate_argnums"));
}

// A command counts 32 bits of elements: longer copies and fills are cut.
TEST(LongGraphs, CopiesOfManyElementsAreCut) {
  constexpr int64_t kRow = int64_t{1} << 30;
  GraphBuilder b;
  Value* many = b.arg({Elem::kI8, {5, kRow}});
  Value* one = b.arg({Elem::kI8, {1, kRow}});
  const Type six{Elem::kI8, {6, kRow}};
  Value* joined = b.op(Kind::kConcatenate, {many, one}, six, DimAttrs{0});
  Module& m = b.done({joined});
  EXPECT_NE(listing_of(m).find("Rhbm0[4294967296,5368709120) Whbm2[4294967296,5368709120)"),
            std::string::npos);
  GraphBuilder p;
  Value* x = p.arg({Elem::kI8, {1, kRow}});
  Value* zero =
      p.op(Kind::kConstant, {}, {Elem::kI8, {}}, ConstantAttrs{make_splat_int({Elem::kI8, {}}, 0)});
  Module& padded = p.done({p.op(Kind::kPad, {x, zero}, six, PadAttrs{{5, 0}, {0, 0}, {0, 0}})});
  EXPECT_NE(listing_of(padded).find("fill op 0 Whbm1[4294967296,5368709120)"), std::string::npos);
}

TEST(LongGraphs, ExchangesOfManyElementsAreCutOrNameTheOp) {
  GraphBuilder b(8);
  const Type type{Elem::kI8, {5, int64_t{1} << 30}};
  PermuteAttrs around;
  for (int64_t core = 0; core < 8; ++core) {
    around.pairs.push_back({core, (core + 1) % 8});
  }
  Module& m = b.done({b.op(Kind::kCollectivePermute, {b.arg(type)}, type, around)});
  EXPECT_NE(listing_of(m).find("hbm1[4294963200,5368709120)"), std::string::npos);
  GraphBuilder pairs(8);
  CollectiveAttrs a;
  a.groups = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  a.dim = 1;
  constexpr int64_t kRows = (int64_t{1} << 32) + 8;
  Value* x = pairs.arg({Elem::kI8, {kRows, 1}});
  Module& gather = pairs.done({pairs.op(Kind::kAllGather, {x}, {Elem::kI8, {kRows, 2}}, a)});
  try {
    compiled(gather);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("test.py:1:1: stablehlo.all_gather: "));
    EXPECT_THAT(e.what(), testing::HasSubstr("i8[4294967304,1] moves 4294967304 elements"));
  }
}

// Nothing of 10^12 elements lies in memory: commands of whole blocks sum the one value.
TEST(LongGraphs, ReductionsOfBroadcastsAreCutIntoCommands) {
  GraphBuilder b;
  const Type wide = f32({1'000'000, 1'000'000});
  Value* x = b.op(Kind::kBroadcastInDim, {b.arg(f32({}))}, wide, DimsAttrs{});
  Value* sum = b.reduce(x, b.constant(f32({}), 0), {0, 1}, f32({}), Kind::kAdd);
  Module& m = b.done({sum});
  EXPECT_GT(compiled(m).image.size(), 100'000u);
}

}  // namespace
}  // namespace tpu::compiler::test
