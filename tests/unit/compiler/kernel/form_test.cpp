// The pass `form`: what shares a kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "../graph_builder.hpp"
#include "board/board_loader.hpp"
#include "kernel/kernel_passes.hpp"

namespace tpu::compiler::test {
namespace {

TEST(Form, ElementwiseChainsAndReducesFuse) {
  GraphBuilder b;
  Value* x = b.arg(f32({25, 10}));
  Value* e = b.op(Kind::kExp, {x}, f32({25, 10}));
  Value* s = b.reduce(e, b.constant(f32({}), 0), {1}, f32({25}), Kind::kAdd);
  Value* wide = b.op(Kind::kBroadcastInDim, {s}, f32({25, 10}), DimsAttrs{{0}});
  Value* y = b.op(Kind::kDivide, {e, wide}, f32({25, 10}));
  const KernelProgram k = make_kernels(b.done({y}), spec::load_board("v3_8"));
  ASSERT_EQ(k.kernels.size(), 3u) << print(k);
  EXPECT_EQ(k.kernels.front().ops.size(), 2u);
}

TEST(Form, CollectivesOfOneKindShareABucket) {
  GraphBuilder b(8);
  std::vector<Value*> sums;
  for (int i = 0; i < 3; ++i) {
    Value* x = b.arg(f32({i + 1}));
    Value* n = b.op(Kind::kNegate, {x}, f32({i + 1}));
    sums.push_back(
        b.with_body(b.op(Kind::kAllReduce, {n}, f32({i + 1}), CollectiveAttrs{}), Kind::kAdd));
  }
  const KernelProgram k = make_kernels(b.done(sums), spec::load_board("v3_8"));
  EXPECT_EQ(k.buckets.size(), 1u) << print(k);
}

// What is behind a barrier starts when all its operands are there: a product, here. A view of the
// barrier reads the array in front of it, without a copy.
TEST(Form, WhatIsBehindABarrierWaitsForItsOperands) {
  for (const bool barred : {true, false}) {
    GraphBuilder b;
    const Type type = f32({512, 512});
    const DotAttrs attrs{{}, {}, {1}, {0}};
    Value* w = b.arg(type);
    Value* h = b.op(Kind::kDotGeneral, {b.arg(type), w}, type, attrs);
    Value* y = b.op(Kind::kDotGeneral, {b.op(Kind::kExp, {h}, type), w}, type, attrs);
    Value* g = b.op(Kind::kDotGeneral, {y, w}, type, attrs);
    Value* seen = h;
    if (barred) {
      seen = b.region()
                 .append(Kind::kOptimizationBarrier, {h, g}, {type, type}, NoAttrs{}, unknown_loc())
                 ->result(0);
    }
    Value* turned = b.op(Kind::kTranspose, {seen}, type, DimsAttrs{{1, 0}});
    Value* late = b.op(Kind::kSine, {turned}, type);
    const KernelProgram k =
        make_kernels(b.done({b.op(Kind::kAdd, {late, g}, type)}), spec::load_board("v3_8"));
    int made = -1, sine = -1, copies = 0;
    for (const Kernel& kernel : k.kernels) {
      made = kernel.out == g ? kernel.order : made;
      const bool has = std::ranges::find(kernel.ops, late->def) != kernel.ops.end();
      sine = has && sine < 0 ? kernel.order : sine;
      copies +=
          std::ranges::any_of(kernel.ops, [](const Op* op) { return is_cheap(op->kind); }) ? 1 : 0;
    }
    EXPECT_GE(made, 0) << print(k);
    EXPECT_EQ(sine >= made, barred) << print(k);
    EXPECT_EQ(copies, 0) << print(k);
  }
}

// Twenty rounds as of Threefry on two words; what is kept of an array.
Value* mask_of(GraphBuilder& b, Value* low, Value* high) {
  const Type type = low->type;
  for (int round = 0; round < 20; ++round) {
    low = b.op(Kind::kAdd, {low, high}, type);
    Value* left = b.op(Kind::kShiftLeft, {high, b.constant(type, 13)}, type);
    Value* right = b.op(Kind::kShiftRightLogical, {high, b.constant(type, 19)}, type);
    high = b.op(Kind::kXor, {low, b.op(Kind::kOr, {left, right}, type)}, type);
  }
  Value* bits = b.op(Kind::kXor, {low, high}, type);
  return b.op(Kind::kCompare, {bits, b.constant(type, 1e9)}, i1(type.dims),
              CompareAttrs{CompareDirection::kLt});
}

// One kernel, so that the words between the rounds do not pass HBM.
TEST(Form, AGeneratorOfRandomBitsIsOneKernel) {
  GraphBuilder b;
  const Type type{Elem::kU32, {64, 1024}};
  Value* kept = mask_of(b, b.arg(type), b.arg(type));
  Value* x = b.arg(f32(type.dims));
  Value* y = b.op(Kind::kSelect, {kept, x, b.constant(x->type, 0)}, x->type);
  const KernelProgram k = make_kernels(b.done({y}), spec::load_board("v3_8"));
  ASSERT_EQ(k.kernels.size(), 2u) << print(k);  // and the copy out
  EXPECT_EQ(k.kernels.front().ops.size(), 103u);
}

// Ten rounds of products as of Philox, each with keys of its own, which are no arguments.
TEST(Form, AGeneratorOfProductsIsOneKernel) {
  GraphBuilder b;
  const Type type{Elem::kU32, {65536}};
  const auto spread = [&](Value* v) { return b.op(Kind::kBroadcastInDim, {v}, type, DimsAttrs{}); };
  const auto op = [&](Kind kind, Value* x, Value* y) { return b.op(kind, {x, y}, type); };
  Value* keys[] = {spread(b.arg({Elem::kU32, {}})), spread(b.arg({Elem::kU32, {}}))};
  Value* place = op(Kind::kAdd, b.op(Kind::kIota, {}, type, DimAttrs{0}), keys[0]);
  std::vector<Value*> x = {place, keys[0], keys[1], keys[0]};
  for (int round = 1; round <= 10; ++round) {
    const auto times = [&](Kind kind, size_t word) {
      return op(kind, x[word], b.constant(type, 0xd2511f53));
    };
    const auto mixed = [&](Value* high, Value* word, size_t k) {
      Value* key = op(Kind::kAdd, keys[k], b.constant(type, 0x9e3779 * round));
      return op(Kind::kXor, op(Kind::kXor, high, word), key);
    };
    x = {mixed(times(Kind::kMultiplyHigh, 2), x[1], 0), times(Kind::kMultiply, 2),
         mixed(times(Kind::kMultiplyHigh, 0), x[3], 1), times(Kind::kMultiply, 0)};
  }
  const KernelProgram k = make_kernels(b.done(x), spec::load_board("v3_8"));
  ASSERT_EQ(k.kernels.size(), 5u) << print(k);  // and the copies out
  EXPECT_EQ(k.kernels.front().ops.size(), 101u);
  EXPECT_EQ(k.kernels.front().reads.size(), 2u);
}

// Bits that depend on a key alone are made behind the contraction before them, block by block; the
// sums of a layer norm, which would need whole rows, stay apart.
TEST(Form, RandomBitsAreMadeBehindAContraction) {
  for (const bool with_bias : {true, false}) {
    GraphBuilder b;
    const Type type = f32({512, 1024}), words{Elem::kU32, type.dims};
    DotAttrs attrs;
    attrs.lhs_contract = {1};
    attrs.rhs_contract = {0};
    // A loop over as many elements of other dims is no place for them.
    Value* heads = b.op(Kind::kDotGeneral, {b.arg(f32({8192, 64})), b.arg(f32({64, 64}))},
                        f32({8192, 64}), attrs);
    heads = b.op(Kind::kNegate, {heads}, heads->type);
    Value* y =
        b.op(Kind::kDotGeneral, {b.arg(f32({512, 768})), b.arg(f32({768, 1024}))}, type, attrs);
    if (with_bias) {
      Value* bias = b.op(Kind::kBroadcastInDim, {b.arg(f32({1024}))}, type, DimsAttrs{{1}});
      y = b.op(Kind::kAdd, {y, bias}, type);
    }
    Value* key = b.op(Kind::kBroadcastInDim, {b.arg({Elem::kU32, {}})}, words, DimsAttrs{});
    Value* position = b.op(Kind::kReshape,
                           {b.op(Kind::kIota, {}, {Elem::kU32, {512 * 1024}}, DimAttrs{0})}, words);
    Value* kept = mask_of(b, key, b.op(Kind::kAdd, {position, key}, words));
    Value* x = b.op(Kind::kSelect, {kept, y, b.constant(type, 0)}, type);
    Value* sums = b.reduce(x, b.constant(f32({}), 0), {1}, f32({512}), Kind::kAdd);
    const KernelProgram k = make_kernels(b.done({heads, x, kept, sums}), spec::load_board("v3_8"));
    const Kernel& second = *std::next(k.kernels.begin());
    ASSERT_EQ(second.kind, KernelClass::kContract) << print(k);
    ASSERT_EQ(second.contract().after.size(), 1u) << print(k);
    EXPECT_EQ(second.contract().after.at(0)->ops.size(), with_bias ? 105u : 104u) << print(k);
  }
}

// An optimizer takes one step after the other for all parameters. Each large one has a kernel of
// its own, which writes the parameter and its moments and nothing that passes from step to step.
TEST(Form, StepsOfAnOptimizerStayWithTheirParameter) {
  constexpr int kParameters = 5;
  GraphBuilder b;
  const Type type = f32({1024, 1024});
  const auto each = [&](auto&& make) {
    std::vector<Value*> out;
    for (int i = 0; i < kParameters; ++i) {
      out.push_back(make(static_cast<size_t>(i)));
    }
    return out;
  };
  const auto two = [&](Kind kind, Value* x, Value* y) { return b.op(kind, {x, y}, type); };
  const auto scaled = [&](Value* x, double by) {
    return two(Kind::kMultiply, x, b.constant(type, by));
  };
  const auto grad = each([&](size_t) { return b.op(Kind::kExp, {b.arg(type)}, type); });
  const auto mean = each([&](size_t) { return b.arg(type); });
  const auto square = each([&](size_t) { return b.arg(type); });
  const auto parameter = each([&](size_t) { return b.arg(type); });
  Value* norm = b.constant(f32({}), 0);
  for (Value* g : grad) {
    Value* sum =
        b.reduce(two(Kind::kMultiply, g, g), b.constant(f32({}), 0), {0, 1}, f32({}), Kind::kAdd);
    norm = b.op(Kind::kAdd, {norm, sum}, f32({}));
  }
  norm = b.op(Kind::kBroadcastInDim, {norm}, type, DimsAttrs{});
  const auto clipped = each([&](size_t i) { return two(Kind::kDivide, grad[i], norm); });
  const auto new_mean = each(
      [&](size_t i) { return two(Kind::kAdd, scaled(mean[i], 0.9), scaled(clipped[i], 0.1)); });
  const auto new_square = each([&](size_t i) {
    return two(Kind::kAdd, scaled(square[i], 0.99),
               scaled(two(Kind::kMultiply, clipped[i], clipped[i]), 0.01));
  });
  const auto change = each([&](size_t i) {
    return two(Kind::kDivide, new_mean[i], b.op(Kind::kSqrt, {new_square[i]}, type));
  });
  const auto decayed =
      each([&](size_t i) { return two(Kind::kAdd, change[i], scaled(parameter[i], 0.01)); });
  const auto next = each([&](size_t i) { return two(Kind::kSubtract, parameter[i], decayed[i]); });
  std::vector<Value*> results = new_mean;
  results.insert(results.end(), new_square.begin(), new_square.end());
  results.insert(results.end(), next.begin(), next.end());
  const KernelProgram k = make_kernels(b.done(results), spec::load_board("v3_8"));
  size_t updates = 0;
  std::set<const Value*> written;
  for (const Kernel& each_kernel : k.kernels) {
    for (const Value* v : each_kernel.writes) {
      if (v->type.count() > 1) {
        written.insert(v);
      }
    }
    updates += each_kernel.kind == KernelClass::kLoop && each_kernel.writes.size() == 3 ? 1 : 0;
  }
  EXPECT_EQ(updates, size_t{kParameters}) << print(k);
  for (const Value* v : results) {
    written.erase(v);
  }
  for (const Value* g : grad) {
    written.erase(g);
  }
  EXPECT_TRUE(written.empty()) << print(k);
}

// Masks that several heads share are made before what they mask, which needs no kernel of its own
// then; each in one kernel.
TEST(Form, SmallMasksComeFirst) {
  GraphBuilder b;
  const Type type = f32({6, 256, 512}), words{Elem::kU32, {256, 512}}, word{Elem::kU32, {}};
  std::vector<Value*> results;
  for (int i = 0; i < 2; ++i) {
    DotAttrs attrs;
    attrs.lhs_batch = attrs.rhs_batch = {0};
    attrs.lhs_contract = attrs.rhs_contract = {2};
    Value* scores =
        b.op(Kind::kDotGeneral, {b.arg(f32({6, 256, 64})), b.arg(f32({6, 512, 64}))}, type, attrs);
    Value* e = b.op(Kind::kExp, {scores}, type);
    Value* key = b.op(Kind::kNot, {b.arg(word)}, word);
    key = b.op(Kind::kBroadcastInDim, {key}, words, DimsAttrs{});
    Value* at = b.op(Kind::kReshape,
                     {b.op(Kind::kIota, {}, {Elem::kU32, {256 * 512}}, DimAttrs{0})}, words);
    Value* mask = mask_of(b, key, b.op(Kind::kAdd, {at, key}, words));
    mask = b.op(Kind::kBroadcastInDim, {mask}, i1(type.dims), DimsAttrs{{1, 2}});
    results.push_back(e);
    results.push_back(b.op(Kind::kSelect, {mask, e, b.constant(type, 0)}, type));
  }
  const KernelProgram k = make_kernels(b.done(results), spec::load_board("v3_8"));
  std::vector<size_t> sizes;
  for (const Kernel& each : k.kernels) {
    if (each.kind == KernelClass::kContract && !each.contract().after.empty()) {
      sizes.push_back(each.contract().after[0]->ops.size());
    } else if (each.kind == KernelClass::kLoop && each.loop().nest.elements() > 1) {
      sizes.push_back(each.ops.size());
    }
  }
  std::sort(sizes.begin(), sizes.end());
  EXPECT_EQ(sizes, (std::vector<size_t>{2, 2, 103, 103})) << print(k);
}

// Other long chains are cut where they were: their values need registers.
TEST(Form, LongChainsOfFloatsAreCut) {
  GraphBuilder b;
  const Type type = f32({64, 1024});
  Value* x = b.arg(type);
  for (int i = 0; i < 60; ++i) {
    x = b.op(Kind::kExp, {x}, type);
  }
  const KernelProgram k = make_kernels(b.done({x}), spec::load_board("v3_8"));
  ASSERT_EQ(k.kernels.size(), 3u) << print(k);
  EXPECT_EQ(k.kernels.front().ops.size(), 48u);
}

}  // namespace
}  // namespace tpu::compiler::test
