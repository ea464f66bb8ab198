// Matmuls as loops over parts of their results: the bits of the whole ones.
#include "legalize/dot_parts.hpp"

#include <functional>

#include "../../unit/compiler/control_builder.hpp"
#include "../../unit/compiler/graph_builder.hpp"
#include "../run_compiled.hpp"

namespace tpu::compiler::test {
namespace {

using Make = std::function<Value*(GraphBuilder&)>;

Value* dot(GraphBuilder& b, const Type& lhs, const Type& rhs, const DotAttrs& attrs,
           const Type& result) {
  return b.op(Kind::kDotGeneral, {b.arg(lhs), b.arg(rhs)}, result, attrs);
}

// Runs the graph as it is and in parts; gives the size of a part along `dim`, 0: it is not cut.
int64_t compare(const Make& make, int64_t parts, size_t dim) {
  RunOptions o;
  o.overrides = {"core.vmem_kib=256"};
  GraphBuilder whole;
  Value* v = make(whole);
  const Outcome want = check_graph(whole.done({v}), o);
  GraphBuilder cut;
  Value* d = make(cut);
  Module& module = cut.done({d});
  if (!loop_over_dot_parts(module, equal_dots(module, d->def), parts)) {
    return 0;
  }
  verify(module);
  int64_t size = 0;
  walk(module.main->body,
       [&](const Op& op) { size = op.kind == Kind::kDotGeneral ? op.type().dims[dim] : size; });
  const Outcome got = check_graph(module, o);
  EXPECT_EQ(got.results[0][0].data, want.results[0][0].data);
  return size;
}

DotAttrs plain() { return {{}, {}, {1}, {0}}; }

TEST(DotParts, RowsThatDivide) {
  const auto make = [](GraphBuilder& b) {
    return dot(b, f32({320, 150}), f32({150, 70}), plain(), f32({320, 70}));
  };
  EXPECT_EQ(compare(make, 4, 0), 80);
  EXPECT_EQ(compare(make, 7, 0), 40) << "eight parts are of one size";
}

// The last part begins earlier.
TEST(DotParts, RowsThatDoNot) {
  const auto make = [](GraphBuilder& b) {
    return dot(b, f32({317, 150}), f32({150, 70}), plain(), f32({317, 70}));
  };
  EXPECT_EQ(compare(make, 4, 0), 80);
}

TEST(DotParts, ColumnsAndBatches) {
  const auto columns = [](GraphBuilder& b) {
    return dot(b, f32({150, 30}), f32({150, 200}), {{}, {}, {0}, {0}}, f32({30, 200}));
  };
  EXPECT_EQ(compare(columns, 5, 1), 40);
  const auto batches = [](GraphBuilder& b) {
    return dot(b, f32({9, 60, 33}), f32({33, 60, 8}), {{1}, {1}, {2}, {0}}, f32({60, 9, 8}));
  };
  EXPECT_EQ(compare(batches, 3, 0), 20);
}

TEST(DotParts, Bfloat16) {
  const Type left{Elem::kBf16, {256, 300}}, right{Elem::kBf16, {300, 128}};
  const Type result{Elem::kBf16, {256, 128}};
  EXPECT_EQ(compare([&](GraphBuilder& b) { return dot(b, left, right, plain(), result); }, 2, 0),
            128);
}

TEST(DotParts, WhatHasNothingToCutStays) {
  const auto make = [](GraphBuilder& b) {
    return dot(b, f32({150}), f32({150}), {{}, {}, {0}, {0}}, f32({}));
  };
  EXPECT_EQ(compare(make, 2, 0), 0);
  GraphBuilder b;
  Value* x = b.op(Kind::kNegate, {b.arg(f32({64}))}, f32({64}));
  Module& module = b.done({x});
  EXPECT_TRUE(equal_dots(module, x->def).empty());
  EXPECT_TRUE(equal_dots(module, nullptr).empty());
  EXPECT_FALSE(loop_over_dot_parts(module, {}, 2));
}

// Two of one shape and precision, and others that differ in one of them.
TEST(DotParts, EqualOnes) {
  GraphBuilder b;
  const Type square = f32({64, 64});
  Value* x = b.arg(square);
  Value* first = b.op(Kind::kDotGeneral, {x, x}, square, plain());
  Value* second = b.op(Kind::kDotGeneral, {first, x}, square, plain());
  Value* other = b.op(Kind::kDotGeneral, {second, x}, square, DotAttrs{{}, {}, {0}, {0}});
  DotAttrs highest = plain();
  highest.lhs_precision = Precision::kHighest;
  Value* exact = b.op(Kind::kDotGeneral, {other, x}, square, highest);
  Value* thin = b.op(Kind::kDotGeneral, {exact, b.arg(f32({64, 8}))}, f32({64, 8}), plain());
  Module& module = b.done({thin});
  EXPECT_EQ(equal_dots(module, second->def), (std::vector<const Op*>{first->def, second->def}));
  EXPECT_EQ(equal_dots(module, thin->def).size(), 1u);
  ASSERT_TRUE(loop_over_dot_parts(module, equal_dots(module, first->def), 2));
  verify(module);
  int loops = 0;
  for (const auto& op : module.main->body.ops) {
    loops += op->kind == Kind::kWhile;
  }
  EXPECT_EQ(loops, 2);
}

// Both are cut in one sweep, and the second reads what has become of the first.
TEST(DotParts, EqualOnesThatReadEachOther) {
  const auto make = [](GraphBuilder& b) {
    const Type square = f32({128, 128});
    Value* x = b.arg(square);
    Value* first = b.op(Kind::kDotGeneral, {x, b.arg(square)}, square, plain());
    return b.op(Kind::kDotGeneral, {first, x}, square, plain());
  };
  EXPECT_EQ(compare(make, 2, 0), 64);
}

TEST(DotParts, EqualOnesInLoops) {
  const auto make = [](GraphBuilder& b) {
    const Type square = f32({128, 128});
    Value* x = b.arg(square);
    Value* first = b.op(Kind::kDotGeneral, {x, x}, square, plain());
    RegionBuilder r(b.region());
    const Values last =
        r.times(2, {first}, [&](RegionBuilder& in, const Values& carried) -> Values {
          Value* next = in.op(Kind::kDotGeneral, {carried[1], x}, square, plain());
          return {in.op(Kind::kTanh, {next}, square, NoAttrs{})};
        });
    return b.op(Kind::kDotGeneral, {last[0], x}, square, plain());
  };
  GraphBuilder b;
  Value* result = make(b);
  Module& module = b.done({result});
  EXPECT_EQ(equal_dots(module, result->def).size(), 3u);
  EXPECT_EQ(compare(make, 2, 0), 64);
}

TEST(DotParts, OnesOfAnotherModuleAreNotFound) {
  GraphBuilder one, other;
  const Type square = f32({64, 64});
  Value* x = one.arg(square);
  Value* product = one.op(Kind::kDotGeneral, {x, x}, square, plain());
  one.done({product});
  Module& module = other.done({other.arg(square)});
  EXPECT_FALSE(loop_over_dot_parts(module, {product->def}, 2));
}

}  // namespace
}  // namespace tpu::compiler::test
