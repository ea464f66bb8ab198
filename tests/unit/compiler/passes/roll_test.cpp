// Pass `roll`: which layers become loops, and that the bits of every result stay.
#include "passes/roll.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "graph_builder.hpp"
#include "ir/control.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "passes/least_cut.hpp"
#include "passes/repeats.hpp"
#include "passes/simplify.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;

constexpr int64_t kRows = 3, kWidth = 4;
const Type kActivation = f32({kRows, kWidth}), kWeight = f32({kWidth, kWidth});

Tensor tensor_of(const Type& type, int seed) {
  Tensor t = make_tensor(type);
  for (int64_t i = 0; i < type.count(); ++i) {
    const float f = static_cast<float>((7 * i + 3 * seed) % 11) / 4 - 1.25f;
    std::memcpy(t.data.data() + 4 * i, &f, 4);
  }
  return t;
}

struct Rolled {
  std::vector<RolledLayers> layers;
  std::vector<const Op*> loops;
};

// Rolls and simplifies; the results must keep their bits.
Rolled rolled(Module& m) {
  std::vector<Tensor> args;
  for (const auto& a : m.main->body.args) {
    args.push_back(tensor_of(a->type, static_cast<int>(args.size())));
  }
  const auto before = interpret(m, {args});
  Rolled out{roll_layers(m), {}};
  verify(m);
  const auto between = interpret(m, {args});
  simplify(m);
  m.number_ops();
  verify(m);
  const auto after = interpret(m, {args});
  for (size_t i = 0; i < before[0].size(); ++i) {
    EXPECT_EQ(before[0][i].data, between[0][i].data) << "result " << i;
    EXPECT_EQ(before[0][i].data, after[0][i].data) << "result " << i << ", simplified";
  }
  for (const auto& op : m.main->body.ops) {
    if (op->kind == Kind::kWhile) {
      EXPECT_TRUE(counted_loop(*op).has_value());
      out.loops.push_back(op.get());
    }
  }
  return out;
}

size_t count(const Region& region, Kind kind) {
  size_t n = 0;
  walk(region, [&](const Op& op) { n += op.kind == kind ? 1 : 0; });
  return n;
}

Value* dot(GraphBuilder& b, Value* x, Value* w) {
  return b.op(Kind::kDotGeneral, {x, w}, kActivation, DotAttrs{{}, {}, {1}, {0}});
}

// x w^T
Value* dot_back(GraphBuilder& b, Value* x, Value* w) {
  return b.op(Kind::kDotGeneral, {x, w}, kActivation, DotAttrs{{}, {}, {1}, {1}});
}

// x^T y
Value* dot_rows(GraphBuilder& b, Value* x, Value* y) {
  return b.op(Kind::kDotGeneral, {x, y}, kWeight, DotAttrs{{}, {}, {0}, {0}});
}

std::vector<Value*> weights(GraphBuilder& b, int layers) {
  std::vector<Value*> w;
  for (int i = 0; i < layers; ++i) {
    w.push_back(b.arg(kWeight));
  }
  return w;
}

Value* layer(GraphBuilder& b, Value* x, Value* w) {
  Value* y = b.op(Kind::kTanh, {dot(b, x, w)}, kActivation);
  Value* z = b.op(Kind::kAdd, {x, y}, kActivation);
  return b.op(Kind::kMultiply, {z, z}, kActivation);
}

TEST(Repeats, FindsTheLongestOnesWithTheirSlack) {
  const std::vector<uint32_t> list = {9, 8, 7, 1, 2, 3, 1, 2, 3, 1, 2,
                                      3, 1, 2, 6, 5, 4, 5, 4, 5, 4};
  EXPECT_EQ(find_repeats(list, 2, 3), (std::vector<Repeat>{{3, 3, 3, 2}, {15, 2, 3, 0}}));
  EXPECT_EQ(find_repeats(list, 3, 3), (std::vector<Repeat>{{3, 3, 3, 2}}));
  EXPECT_EQ(find_repeats(list, 2, 4), std::vector<Repeat>{});
  EXPECT_EQ(find_repeats({}, 2, 3), std::vector<Repeat>{});
  EXPECT_EQ(find_repeats(std::vector<uint32_t>(100, 1), 2, 3), std::vector<Repeat>{});
}

TEST(Repeats, WhatIsNotWantedDisplacesNothing) {
  const std::vector<uint32_t> list = {7, 8, 7, 8, 7, 8, 6, 7, 8, 7, 8,
                                      7, 8, 6, 7, 8, 7, 8, 7, 8, 6};
  EXPECT_EQ(find_repeats(list, 2, 3), (std::vector<Repeat>{{0, 7, 3, 0}}));
  EXPECT_EQ(find_repeats(list, 2, 3, [](const Repeat& r) { return r.period == 2; }),
            (std::vector<Repeat>{{0, 2, 3, 0}, {7, 2, 3, 0}, {14, 2, 3, 0}}));
}

TEST(Roll, EqualLayersBecomeOneLoop) {
  GraphBuilder b;
  Value* x = b.arg(kActivation);
  for (Value* w : weights(b, 6)) {
    x = layer(b, x, w);
  }
  Module& m = b.done({x});
  const Rolled r = rolled(m);
  ASSERT_EQ(r.layers.size(), 1u);
  EXPECT_EQ(r.layers[0].layers, 6u);
  EXPECT_EQ(r.layers[0].ops, 4u);
  ASSERT_EQ(r.loops.size(), 1u);
  EXPECT_EQ(count(m.main->body, Kind::kDotGeneral), 1u);
  EXPECT_EQ(r.loops[0]->operands.size(), 2u);  // counter and activation: weights are read
}

// The backward pass reads activations and weights of the forward one from the end.
TEST(Roll, ForwardAndBackwardShareStacks) {
  GraphBuilder b;
  Value* x = b.arg(kActivation);
  const std::vector<Value*> w = weights(b, 5);
  std::vector<Value*> inputs, outputs;
  for (Value* v : w) {
    inputs.push_back(x);
    x = b.op(Kind::kTanh, {dot(b, x, v)}, kActivation);
    x = b.op(Kind::kMultiply, {x, x}, kActivation);
    x = b.op(Kind::kSine, {x}, kActivation);
    outputs.push_back(x);
  }
  Value* g = b.op(Kind::kCosine, {x}, kActivation);
  std::vector<Value*> results;
  for (size_t i = w.size(); i-- > 0;) {
    Value* d = b.op(Kind::kSubtract, {g, outputs[i]}, kActivation);
    results.push_back(dot_rows(b, inputs[i], d));
    g = dot_back(b, d, w[i]);
    g = b.op(Kind::kNegate, {g}, kActivation);
  }
  results.push_back(g);
  Module& m = b.done(results);
  const Rolled r = rolled(m);
  ASSERT_EQ(r.loops.size(), 2u);
  EXPECT_EQ(count(m.main->body, Kind::kConcatenate), 1u);  // one stack of weights for both
  EXPECT_GE(r.layers[1].layers, 4u);
}

// The backward pass reads four values, which are cheap to compute from the product: one is kept.
TEST(Roll, CheapValuesAreComputedAgain) {
  GraphBuilder b;
  Value* x = b.arg(kActivation);
  const std::vector<Value*> w = weights(b, 6);
  std::vector<std::vector<Value*>> kept;
  for (Value* v : w) {
    Value* y = dot(b, x, v);
    Value* z = b.op(Kind::kAdd, {y, y}, kActivation);
    Value* square = b.op(Kind::kMultiply, {z, z}, kActivation);
    Value* rest = b.op(Kind::kSubtract, {square, y}, kActivation);
    kept.push_back({y, z, square, rest});
    x = b.op(Kind::kTanh, {rest}, kActivation);
  }
  Value* g = b.op(Kind::kCosine, {x}, kActivation);
  for (size_t i = w.size(); i-- > 0;) {
    for (Value* v : kept[i]) {
      g = b.op(Kind::kSine, {b.op(Kind::kAdd, {g, v}, kActivation)}, kActivation);
    }
    g = dot_back(b, g, w[i]);
  }
  const Rolled r = rolled(b.done({g}));
  ASSERT_EQ(r.loops.size(), 2u);
  EXPECT_EQ(r.loops[0]->operands.size(), 3u);  // counter, activation, one stack
}

// The backward layers at the ends differ, and read a value that is larger than what it is made of:
// it is computed again there too, and nobody keeps it.
TEST(Roll, LayersAtTheEndsComputeAgainToo) {
  const Type vector = f32({kWidth}), large = f32({8, kRows, kWidth});
  GraphBuilder b;
  Value* x = b.arg(kActivation);
  const std::vector<Value*> w = weights(b, 7);
  std::vector<Value*> spread;
  for (Value* v : w) {
    x = b.op(Kind::kTanh, {dot(b, x, v)}, kActivation);
    spread.push_back(b.op(Kind::kBroadcastInDim, {x}, large, DimsAttrs{{1, 2}}));
    Value* square = b.op(Kind::kMultiply, {x, x}, kActivation);
    x = b.op(Kind::kSine, {square}, kActivation);
  }
  Value* g = b.op(Kind::kBroadcastInDim, {b.arg(kActivation)}, large, DimsAttrs{{1, 2}});
  for (size_t i = w.size(); i-- > 0;) {
    const bool end = i == 0 || i + 1 == w.size();
    g = b.op(end ? Kind::kAdd : Kind::kSubtract, {g, spread[i]}, large);
    g = b.op(Kind::kDotGeneral, {g, w[i]}, large, DotAttrs{{}, {}, {2}, {0}});
    g = b.op(Kind::kCosine, {g}, large);
    g = b.op(Kind::kNegate, {g}, large);
  }
  const Rolled r = rolled(b.done({g}));
  ASSERT_EQ(r.loops.size(), 2u);
  for (const Value* v : r.loops[0]->operands) {
    EXPECT_LE(v->type.count(), static_cast<int64_t>(w.size()) * kActivation.count());
  }
}

// A forward layer ends behind the activation, a backward layer reads of two forward ones: what the
// first product made, and what the second made of the layer in front.
TEST(Roll, ValuesOfTwoLayersAreComputedAgain) {
  GraphBuilder b;
  Value* x = b.arg(kActivation);
  const std::vector<Value*> w = weights(b, 7), u = weights(b, 7);
  std::vector<Value*> first, second;
  for (size_t i = 0; i < w.size(); ++i) {
    Value* y = dot(b, x, w[i]);
    first.push_back(b.op(Kind::kAdd, {y, y}, kActivation));
    Value* z = dot(b, b.op(Kind::kTanh, {first.back()}, kActivation), u[i]);
    second.push_back(b.op(Kind::kMultiply, {z, z}, kActivation));
    x = b.op(Kind::kSine, {second.back()}, kActivation);
  }
  Value* g = b.op(Kind::kCosine, {x}, kActivation);
  for (size_t i = w.size(); i-- > 1;) {
    g = dot_back(b, b.op(Kind::kSubtract, {g, first[i]}, kActivation), w[i]);
    g = b.op(Kind::kSubtract, {g, second[i - 1]}, kActivation);
    g = b.op(Kind::kNegate, {dot_back(b, g, u[i])}, kActivation);
  }
  const Rolled r = rolled(b.done({g}));
  ASSERT_EQ(r.loops.size(), 2u);
  EXPECT_EQ(r.loops[0]->operands.size(), 4u);  // counter, activation, and the two products
  EXPECT_EQ(count(*r.loops[0]->regions[1], Kind::kDynamicUpdateSlice), 2u);
  EXPECT_EQ(count(*r.loops[1]->regions[1], Kind::kMultiply), 1u);
}

// Results that are read widened are stacked as they are.
TEST(Roll, WidenedValuesAreWidenedBehindTheLoop) {
  const Type narrow{Elem::kBf16, {kRows, kWidth}};
  GraphBuilder b;
  Value* x = b.arg(kActivation);
  std::vector<Value*> results;
  for (Value* v : weights(b, 5)) {
    Value* y = b.op(Kind::kConvert, {dot(b, x, v)}, narrow);
    x = b.op(Kind::kConvert, {y}, kActivation);
    results.push_back(x);
    x = b.op(Kind::kTanh, {b.op(Kind::kNegate, {x}, kActivation)}, kActivation);
  }
  Value* sum = results[0];
  for (size_t i = 1; i < results.size(); ++i) {
    sum = b.op(Kind::kMultiply, {sum, results[i]}, kActivation);
  }
  const Rolled r = rolled(b.done({sum, x}));
  ASSERT_EQ(r.loops.size(), 1u);
  bool stacked = false;
  for (const Value* v : r.loops[0]->operands) {
    EXPECT_FALSE(v->type.rank() == 3 && v->type.elem == Elem::kF32);
    stacked = stacked || (v->type.rank() == 3 && v->type.elem == Elem::kBf16);
  }
  EXPECT_TRUE(stacked);
}

// Two ways of 3 and 4 through nodes 0 and 1 to node 2, which takes 5: that is where it is cut, or
// at the ways if it takes 9.
TEST(LeastCut, IsFoundNearTheSink) {
  for (const int64_t last : {5, 9}) {
    LeastCut cut(4);
    cut.from_source(0);
    cut.from_source(1);
    cut.add(0, 2, 3);
    cut.add(1, 2, 4);
    cut.add(2, 3, last);
    cut.to_sink(3);
    EXPECT_EQ(cut.behind(), (std::vector<bool>{false, false, last == 9, true}));
  }
  LeastCut equal(2);
  equal.from_source(0);
  equal.add(0, 1, 7);
  equal.to_sink(1);
  EXPECT_EQ(equal.behind(), (std::vector<bool>{false, true}));
}

TEST(Roll, ConstantsThatDifferAreRead) {
  GraphBuilder b;
  Value* x = b.arg(kActivation);
  Value* w = b.arg(kWeight);
  for (int i = 0; i < 4; ++i) {
    Value* y = dot(b, x, w);
    Value* scale = b.constant(kActivation, 0.25 * (i + 1));
    x = b.op(Kind::kTanh, {b.op(Kind::kMultiply, {y, scale}, kActivation)}, kActivation);
    x = b.op(Kind::kAdd, {x, scale}, kActivation);
  }
  Module& m = b.done({x});
  const Rolled r = rolled(m);
  ASSERT_EQ(r.loops.size(), 1u);
  EXPECT_EQ(count(m.main->body, Kind::kConcatenate), 0u);
}

// The first value is read by every layer too, next to what the layer in front made.
TEST(Roll, AValueMayBeBothCarriedAndReadByAll) {
  GraphBuilder b;
  Value* first = b.arg(kActivation);
  Value* x = first;
  for (Value* w : weights(b, 4)) {
    Value* y = b.op(Kind::kSubtract, {x, first}, kActivation);
    x = layer(b, b.op(Kind::kAdd, {y, first}, kActivation), w);
  }
  const Rolled r = rolled(b.done({x}));
  EXPECT_EQ(r.loops.size(), 1u);
}

// Results of all layers, of some of them, and of the last one alone.
TEST(Roll, ResultsOfSingleLayersAreRead) {
  GraphBuilder b;
  Value* x = b.arg(kActivation);
  std::vector<Value*> all, side;
  for (Value* w : weights(b, 5)) {
    Value* y = dot(b, x, w);
    side.push_back(b.op(Kind::kSine, {y}, kActivation));
    x = b.op(Kind::kTanh, {y}, kActivation);
    all.push_back(b.op(Kind::kNegate, {x}, kActivation));
  }
  const Rolled r = rolled(b.done({x, all[0], all[3], side[4]}));
  EXPECT_EQ(r.loops.size(), 1u);
}

TEST(Roll, LayersThatDifferStay) {
  const auto loops = [](const std::function<Value*(GraphBuilder&, Value*, int)>& make) {
    GraphBuilder b;
    Value* x = b.arg(kActivation);
    for (int i = 0; i < 6; ++i) {
      x = make(b, x, i);
    }
    return rolled(b.done({x})).loops.size();
  };
  // Without a product, however many.
  EXPECT_EQ(loops([](GraphBuilder& b, Value* x, int) {
              Value* y = b.op(Kind::kTanh, {x}, kActivation);
              y = b.op(Kind::kSine, {y}, kActivation);
              y = b.op(Kind::kNegate, {y}, kActivation);
              return b.op(Kind::kCosine, {y}, kActivation);
            }),
            0u);
  // Every third layer has another operation: no three neighbours are equal.
  EXPECT_EQ(loops([](GraphBuilder& b, Value* x, int i) {
              Value* y = dot_rows(b, x, x);
              y = b.op(i % 3 == 2 ? Kind::kSine : Kind::kTanh, {y}, kWeight);
              return b.op(Kind::kTanh, {dot(b, x, y)}, kActivation);
            }),
            0u);
}

// Three projections of one value are no chain.
TEST(Roll, ProductsThatDoNotReadEachOtherStay) {
  GraphBuilder b;
  Value* x = b.arg(kActivation);
  std::vector<Value*> results;
  for (Value* w : weights(b, 6)) {
    Value* y = b.op(Kind::kSine, {dot(b, x, w)}, kActivation);
    results.push_back(b.op(Kind::kTanh, {b.op(Kind::kAdd, {y, x}, kActivation)}, kActivation));
  }
  EXPECT_EQ(rolled(b.done(results)).loops.size(), 0u);
}

// A layer that reads what the one before the last has made: no value is carried over two layers.
TEST(Roll, LayersThatReadFartherBackStay) {
  GraphBuilder b;
  Value* before = b.arg(kActivation);
  Value* x = b.arg(kActivation);
  for (Value* w : weights(b, 6)) {
    Value* y = layer(b, b.op(Kind::kAdd, {x, before}, kActivation), w);
    before = x;
    x = y;
  }
  EXPECT_EQ(rolled(b.done({x})).loops.size(), 0u);
}

TEST(Roll, ChannelsOfCollectivesMayDiffer) {
  GraphBuilder b(1);
  Value* x = b.arg(kActivation);
  int64_t channel = 0;
  for (Value* w : weights(b, 4)) {
    CollectiveAttrs a;
    a.groups = {{0}};
    a.channel = ++channel;
    x = b.op(Kind::kTanh, {dot(b, x, w)}, kActivation);
    x = b.with_body(b.op(Kind::kAllReduce, {x}, kActivation, a), Kind::kAdd);
    x = b.op(Kind::kSine, {x}, kActivation);
  }
  Module& m = b.done({x});
  EXPECT_EQ(roll_layers(m).size(), 1u);
  verify(m);
  EXPECT_EQ(count(m.main->body, Kind::kAllReduce), 1u);
}

}  // namespace
}  // namespace tpu::compiler
