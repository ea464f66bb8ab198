// Pass `random_bits`: counters become one iota, thresholds compare bits; every result stays.
#include "passes/random_bits.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>

#include "graph_builder.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "passes/dce.hpp"
#include "passes/simplify.hpp"
#include "tensors.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::i1;
using test::kinds;
using test::tensor;
using test::values;

Type u32(Dims dims) { return {Elem::kU32, std::move(dims)}; }

std::string after(Module& m) {
  shorten_random_bits(m);
  remove_dead_ops(m);
  verify(m);
  return kinds(m);
}

// Lower and upper half of the 64-bit position of each element, strides as given.
Module& position(GraphBuilder& b, const Dims& dims, const Dims& strides) {
  const Type wide{Elem::kU64, dims};
  Value* sum = nullptr;
  for (size_t d = 0; d < dims.size(); ++d) {
    Value* i = b.op(Kind::kIota, {}, wide, DimAttrs{static_cast<int64_t>(d)});
    Value* step = b.constant(wide, static_cast<double>(strides[d]));
    Value* term = b.op(Kind::kMultiply, {step, i}, wide);
    sum = sum == nullptr ? term : b.op(Kind::kAdd, {sum, term}, wide);
  }
  Value* high = b.op(Kind::kShiftRightLogical, {sum, b.constant(wide, 32)}, wide);
  return b.done({b.op(Kind::kConvert, {sum}, u32(dims)), b.op(Kind::kConvert, {high}, u32(dims))});
}

TEST(RandomBits, CounterIsOneIota) {
  GraphBuilder b;
  Module& m = position(b, {3, 4, 5}, {20, 5, 1});
  const auto before = interpret(m, {{}})[0];
  ASSERT_TRUE(shorten_random_bits(m));
  simplify(m);
  verify(m);
  EXPECT_EQ(kinds(m), "iota reshape constant return");
  const auto made = interpret(m, {{}})[0];
  for (const size_t half : {0u, 1u}) {
    EXPECT_EQ(values<uint32_t>(made[half]), values<uint32_t>(before[half]));
  }
}

TEST(RandomBits, CounterBeyondAWordStays) {
  GraphBuilder b;
  Module& m = position(b, {1 << 17, 1 << 16}, {1 << 16, 1});
  simplify(m);
  const std::string before = kinds(m);
  EXPECT_FALSE(shorten_random_bits(m));
  EXPECT_EQ(kinds(m), before);
}

TEST(RandomBits, StridesOfAnotherOrderKeepTheirSum) {
  GraphBuilder b;
  Module& m = position(b, {3, 4}, {1, 3});
  const auto before = interpret(m, {{}})[0];
  shorten_random_bits(m);
  simplify(m);
  EXPECT_NE(kinds(m).find("multiply"), std::string::npos) << kinds(m);
  EXPECT_EQ(values<uint32_t>(interpret(m, {{}})[0][0]), values<uint32_t>(before[0]));
}

// Sums of one value with itself double the ways to it.
TEST(RandomBits, LooksAtFewOps) {
  GraphBuilder b;
  const Type type = u32({4, 4});
  Value* v = b.op(Kind::kIota, {}, type, DimAttrs{0});
  for (int i = 0; i < 60; ++i) {
    v = b.op(Kind::kAdd, {v, v}, type);
  }
  Module& m = b.done({v});
  EXPECT_FALSE(shorten_random_bits(m));
}

TEST(RandomBits, WordsOfAKeyAreReadWhereTheyWereMade) {
  for (const int64_t from : {0, 1, 2}) {
    GraphBuilder b;
    Value* first = b.op(Kind::kNot, {b.arg(u32({2}))}, u32({2}));
    Value* second = b.op(Kind::kNot, {b.arg(u32({3}))}, u32({3}));
    Value* key = b.op(Kind::kConcatenate, {first, second}, u32({5}), DimAttrs{0});
    Value* word = b.op(Kind::kSlice, {key}, u32({2}), SliceAttrs{{from}, {from + 2}, {1}});
    Module& m = b.done({word});
    const std::vector<Tensor> in = {tensor(u32({2}), std::vector<uint32_t>{1, 2}),
                                    tensor(u32({3}), std::vector<uint32_t>{3, 4, 5})};
    const auto before = values<uint32_t>(interpret(m, {in})[0][0]);
    EXPECT_EQ(after(m).find("concatenate") != std::string::npos, from == 1) << kinds(m);
    EXPECT_EQ(values<uint32_t>(interpret(m, {in})[0][0]), before);
  }
}

// Bits whose upper parts are those next to `upper`, and ends.
std::vector<uint32_t> bits_around(uint32_t upper, int cut) {
  std::vector<uint32_t> out = {0, ~uint32_t{0}, 0x80000000u};
  for (int64_t n = int64_t{upper} - 3; n <= int64_t{upper} + 3; ++n) {
    const auto word = static_cast<uint32_t>(n) << cut;
    out.insert(out.end(), {word, word | ((uint32_t{1} << cut) - 1)});
  }
  return out;
}

using Steps = std::function<Value*(GraphBuilder&, Value*)>;

// jax.random.uniform of the bits, then `steps`, compared with `limit`.
Module& draw(GraphBuilder& b, int64_t count, const Steps& steps, CompareDirection direction,
             double limit, bool limit_first = false) {
  const Type words = u32({count}), type = f32({count});
  Value* bits = b.arg(words);
  Value* upper = b.op(Kind::kShiftRightLogical, {bits, b.constant(words, 9)}, words);
  Value* marked = b.op(Kind::kOr, {upper, b.constant(words, 0x3f800000)}, words);
  Value* x = b.op(Kind::kBitcastConvert, {marked}, type);
  x = steps(b, b.op(Kind::kSubtract, {x, b.constant(type, 1)}, type));
  Value* l = b.constant(x->type, limit);
  const std::vector<Value*> sides = limit_first ? std::vector<Value*>{l, x} : std::vector{x, l};
  return b.done({b.op(Kind::kCompare, sides, i1({count}), CompareAttrs{direction})});
}

Value* none(GraphBuilder&, Value* x) { return x; }

TEST(RandomBits, ThresholdComparesBits) {
  for (const double limit : {0.1, 0.5, 0.9, 1e-7, 0.9999998, 3e-8}) {
    for (const auto direction : {CompareDirection::kLt, CompareDirection::kLe,
                                 CompareDirection::kGt, CompareDirection::kGe}) {
      for (const bool limit_first : {false, true}) {
        const auto words =
            bits_around(static_cast<uint32_t>(static_cast<float>(limit) * 0x1p23f), 9);
        GraphBuilder b;
        Module& m =
            draw(b, static_cast<int64_t>(words.size()), none, direction, limit, limit_first);
        const Tensor in = tensor(u32({static_cast<int64_t>(words.size())}), words);
        const auto before = values<uint8_t>(interpret(m, {{in}})[0][0]);
        EXPECT_EQ(after(m), "constant compare return") << limit;
        EXPECT_EQ(values<uint8_t>(interpret(m, {{in}})[0][0]), before) << limit;
      }
    }
  }
}

TEST(RandomBits, StepsThatNeverDescendAreSeenThrough) {
  const Type type = f32({17});
  const Steps all = [&](GraphBuilder& b, Value* x) {
    x = b.op(Kind::kMultiplyAdd, {x, b.constant(type, 3), b.constant(type, -1)}, type);
    x = b.op(Kind::kMaximum, {b.constant(type, -0.75), x}, type);
    x = b.op(Kind::kAdd, {b.constant(type, 0.1), x}, type);
    x = b.op(Kind::kMultiply, {x, b.constant(type, 0.7)}, type);
    return b.op(Kind::kConvert, {x}, Type{Elem::kBf16, {17}});
  };
  for (const double limit : {-0.4, 0.1, 0.77}) {
    // 0.7 * (3 u - 1 + 0.1) = limit
    const auto words = bits_around(static_cast<uint32_t>((limit / 0.7 + 0.9) / 3 * 0x1p23), 9);
    GraphBuilder b;
    Module& m = draw(b, 17, all, CompareDirection::kLt, limit);
    const Tensor in = tensor(u32({17}), words);
    const auto before = values<uint8_t>(interpret(m, {{in}})[0][0]);
    EXPECT_EQ(after(m), "constant compare return");
    EXPECT_EQ(values<uint8_t>(interpret(m, {{in}})[0][0]), before);
  }
}

TEST(RandomBits, LimitsOutsideOfTheNumbersAreConstants) {
  for (const double limit : {0.0, -1.0, 1.0, 2.0}) {
    GraphBuilder b;
    Module& m = draw(b, 3, none, CompareDirection::kLt, limit);
    EXPECT_EQ(after(m), "constant return");
    const Tensor in = tensor(u32({3}), std::vector<uint32_t>{0, 1u << 31, ~0u});
    EXPECT_EQ(values<uint8_t>(interpret(m, {{in}})[0][0]),
              std::vector<uint8_t>(3, limit >= 1 ? 1 : 0));
  }
}

TEST(RandomBits, OtherComparisonsStay) {
  const Type type = f32({3});
  const Steps descends = [&](GraphBuilder& b, Value* x) {
    return b.op(Kind::kMultiply, {x, b.constant(type, -1)}, type);
  };
  const Steps turned = [&](GraphBuilder& b, Value* x) {
    return b.op(Kind::kSubtract, {b.constant(type, 1), x}, type);
  };
  const Steps of_another = [&](GraphBuilder& b, Value* x) {
    return b.op(Kind::kAdd, {x, b.arg(type)}, type);
  };
  for (const auto& [steps, direction, limit] :
       {std::tuple<Steps, CompareDirection, double>{descends, CompareDirection::kLt, -0.5},
        {turned, CompareDirection::kLt, 0.5},
        {of_another, CompareDirection::kLt, 0.5},
        {none, CompareDirection::kEq, 0.5},
        {none, CompareDirection::kLt, NAN}}) {
    GraphBuilder b;
    Module& m = draw(b, 3, steps, direction, limit);
    EXPECT_FALSE(shorten_random_bits(m)) << kinds(m);
  }
}

// A bitcast that joins narrow words does not see one of them.
TEST(RandomBits, JoinedWordsStay) {
  for (const auto& [elem, parts] : {std::pair{Elem::kU8, 4}, std::pair{Elem::kU16, 2}}) {
    GraphBuilder b;
    const Type words{elem, {3, parts}}, type = f32({3});
    Value* upper = b.op(Kind::kShiftRightLogical, {b.arg(words), b.constant(words, 1)}, words);
    Value* x = b.op(Kind::kBitcastConvert, {upper}, type);
    Module& m = b.done({b.op(Kind::kCompare, {x, b.constant(type, 0.5)}, i1({3}),
                             CompareAttrs{CompareDirection::kLt})});
    EXPECT_FALSE(shorten_random_bits(m)) << parts;
  }
}

// Bits that reach the sign or the exponent do not ascend as numbers.
TEST(RandomBits, BitsOfAnyNumberStay) {
  GraphBuilder b;
  const Type words = u32({3}), type = f32({3});
  Value* upper = b.op(Kind::kShiftRightLogical, {b.arg(words), b.constant(words, 1)}, words);
  Value* x = b.op(Kind::kBitcastConvert, {upper}, type);
  Module& m = b.done({b.op(Kind::kCompare, {x, b.constant(type, 0.5)}, i1({3}),
                           CompareAttrs{CompareDirection::kLt})});
  EXPECT_FALSE(shorten_random_bits(m));
}

}  // namespace
}  // namespace tpu::compiler
