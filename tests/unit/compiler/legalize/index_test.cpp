// gather, scatter and collectives: which ops replace them, values of every index type, rules of the
// verifier.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_builder.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "legalize/legalize.hpp"
#include "passes/simplify.hpp"
#include "tensors.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::i32;
using test::tensor;
using test::values;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Lowered and simplified; the kinds that are left.
std::string lowered(Module& m) {
  legalize(m);
  simplify(m);
  m.number_ops();
  verify(m);
  return test::kinds(m);
}

GatherAttrs rows(int64_t width) {
  GatherAttrs a;
  a.offset_dims = {1};
  a.collapsed_slice_dims = {0};
  a.start_index_map = {0};
  a.slice_sizes = {1, width};
  a.index_vector_dim = 1;
  return a;
}

ScatterAttrs row_updates() {
  ScatterAttrs a;
  a.update_window_dims = {1};
  a.inserted_window_dims = {0};
  a.scatter_dims_to_operand_dims = {0};
  a.index_vector_dim = 1;
  return a;
}

std::string gather_error(const GatherAttrs& a, const Type& x, const Type& i, const Type& out) {
  GraphBuilder b;
  Value* p = b.arg(x);
  Value* q = b.arg(i);
  try {
    verify(b.done({b.op(Kind::kGather, {p, q}, out, a)}));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Gather, RulesOfTheVerifier) {
  const auto error = [](auto change) {
    GatherAttrs a = rows(4);
    change(a);
    return gather_error(a, f32({9, 4}), i32({5, 1}), f32({5, 4}));
  };
  EXPECT_EQ(error([](GatherAttrs&) {}), "");
  EXPECT_THAT(error([](GatherAttrs& a) { a.slice_sizes = {1, 5}; }), HasSubstr("slice is larger"));
  EXPECT_THAT(error([](GatherAttrs& a) { a.slice_sizes = {1, 3}; }), HasSubstr("wrong shape"));
  EXPECT_THAT(error([](GatherAttrs& a) { a.slice_sizes = {2, 4}; }), HasSubstr("collapsed"));
  EXPECT_THAT(error([](GatherAttrs& a) { a.index_vector_dim = 3; }), HasSubstr("do not fit"));
  EXPECT_THAT(error([](GatherAttrs& a) { a.start_index_map = {0, 1}; }), HasSubstr("wrong length"));
  EXPECT_THAT(error([](GatherAttrs& a) { a.offset_dims = {2}; }), HasSubstr("offset dimensions"));
  EXPECT_THAT(error([](GatherAttrs& a) {
                a.collapsed_slice_dims = {};
                a.operand_batching_dims = {0};
                a.start_indices_batching_dims = {0};
              }),
              HasSubstr("batching dimension differs"));
  EXPECT_THAT(gather_error(rows(4), f32({9, 4}), f32({5, 1}), f32({5, 4})), HasSubstr("integers"));
}

TEST(Gather, IndicesOfEveryTypeAreClamped) {
  const auto run = [](Elem elem, auto zero, std::vector<int64_t> raw) {
    using T = decltype(zero);
    std::vector<T> index(raw.begin(), raw.end());
    GraphBuilder b;
    Value* x = b.arg(f32({300, 2}));
    const Type type{elem, {static_cast<int64_t>(index.size()), 1}};
    Value* i = b.arg(type);
    Module& m = b.done({b.op(Kind::kGather, {x, i}, f32({type.dims[0], 2}), rows(2))});
    std::vector<float> table;
    for (int n = 0; n < 600; ++n) {
      table.push_back(static_cast<float>(n / 2));
    }
    const std::vector<Tensor> args = {tensor(x->type, table), tensor(type, index)};
    verify(m);
    const auto before = values<float>(interpret(m, {args})[0][0]);
    legalize(m);
    m.number_ops();
    verify(m);
    EXPECT_EQ(values<float>(interpret(m, {args})[0][0]), before);
    std::vector<int> got;
    for (size_t k = 0; k < before.size(); k += 2) {
      got.push_back(static_cast<int>(before[k]));
    }
    return got;
  };
  EXPECT_THAT(run(Elem::kI8, int8_t{}, {-5, 127, 3}), ElementsAre(0, 127, 3));
  EXPECT_THAT(run(Elem::kU8, uint8_t{}, {255, 0}), ElementsAre(255, 0));
  EXPECT_THAT(run(Elem::kI32, int32_t{}, {-1, 300, INT32_MAX, INT32_MIN}),
              ElementsAre(0, 299, 299, 0));
  EXPECT_THAT(run(Elem::kU32, uint32_t{}, {0xffffffff, 7}), ElementsAre(299, 7));
  EXPECT_THAT(run(Elem::kI64, int64_t{}, {int64_t{1} << 32, -(int64_t{1} << 32), 8}),
              ElementsAre(299, 0, 8));
  EXPECT_THAT(run(Elem::kU64, uint64_t{}, {-1, 8}), ElementsAre(299, 8));
}

TEST(Gather, SmallTablesAreComparedLargeOnesIndexed) {
  for (const bool large : {false, true}) {
    GraphBuilder b;
    Value* x = b.arg(large ? f32({8192, 64}) : f32({64, 2}));
    const int64_t width = x->type.dims[1];
    Value* i = b.arg(i32({500, 1}));
    Module& m = b.done({b.op(Kind::kGather, {x, i}, f32({500, width}), rows(width))});
    const std::string kinds = lowered(m);
    EXPECT_EQ(kinds.find("indexed_read") != std::string::npos, large) << kinds;
    EXPECT_EQ(kinds.find("reduce") != std::string::npos, !large) << kinds;
  }
}

std::string scatter_kinds(Type x, Type indices, Type updates, ScatterAttrs a, Kind body) {
  GraphBuilder b;
  Value* p = b.arg(x);
  Value* q = b.arg(indices);
  Value* r = b.arg(updates);
  Value* y = b.with_body(b.op(Kind::kScatter, {p, q, r}, x, a), body);
  return lowered(b.done({y}));
}

TEST(Scatter, FormsByShape) {
  // One update for each entry of a batch: elementwise.
  ScatterAttrs labels;
  labels.inserted_window_dims = {1};
  labels.input_batching_dims = {0};
  labels.scatter_indices_batching_dims = {0};
  labels.scatter_dims_to_operand_dims = {1};
  labels.index_vector_dim = 2;
  const std::string one =
      scatter_kinds(f32({25, 10}), i32({25, 1, 1}), f32({25, 1}), labels, Kind::kAdd);
  EXPECT_THAT(one, Not(HasSubstr("reduce")));
  EXPECT_THAT(one, Not(HasSubstr("indexed")));
  // Of a large target only if it is a splat, which needs no array: the gradient of a cross entropy.
  for (const bool splat : {true, false}) {
    GraphBuilder b;
    const Type logits = f32({25, 30000});
    Value* x = splat ? b.constant(logits, 0) : b.arg(logits);
    Value* y = b.with_body(
        b.op(Kind::kScatter, {x, b.arg(i32({25, 1, 1})), b.arg(f32({25, 1}))}, logits, labels),
        Kind::kAdd);
    const std::string kinds = lowered(b.done({y}));
    EXPECT_EQ(kinds.find("indexed") == std::string::npos, splat) << kinds;
  }
  // A small target, one reducer.
  EXPECT_THAT(scatter_kinds(f32({50, 8}), i32({30, 1}), f32({30, 8}), row_updates(), Kind::kAdd),
              HasSubstr("reduce"));
  // A large one: read, combine in order, write.
  const std::string large =
      scatter_kinds(f32({30000, 64}), i32({30, 1}), f32({30, 64}), row_updates(), Kind::kAdd);
  EXPECT_THAT(large, HasSubstr("indexed_combine"));
  ScatterAttrs unique = row_updates();
  unique.unique_indices = true;
  EXPECT_THAT(scatter_kinds(f32({30000, 64}), i32({30, 1}), f32({30, 64}), unique, Kind::kAdd),
              Not(HasSubstr("indexed_combine")));
}

// A window replaced at place 1, or at one that the program computes.
std::string set_kinds(int64_t target, int64_t window, bool known) {
  GraphBuilder b;
  Value* x = b.arg(f32({target}));
  Value* i = known ? b.constant(i32({1}), 1) : b.arg(i32({1}));
  Value* u = b.arg(f32({window}));
  ScatterAttrs a;
  a.update_window_dims = {0};
  a.scatter_dims_to_operand_dims = {0};
  Value* y = b.op(Kind::kScatter, {x, i, u}, x->type, a);
  Region* body = y->def->add_region();
  body->add_arg(f32({}));
  Value* update = body->add_arg(f32({}));
  body->append(Kind::kReturn, {update}, {}, NoAttrs{}, y->def->loc);
  return lowered(b.done({y}));
}

TEST(Scatter, OneWindowOfALargeTargetIsWrittenInPlace) {
  ScatterAttrs one;
  one.update_window_dims = {0};
  one.inserted_window_dims = {0};
  one.scatter_dims_to_operand_dims = {0};
  const std::string row = scatter_kinds(f32({30000, 64}), i32({1}), f32({64}), one, Kind::kAdd);
  EXPECT_THAT(row, HasSubstr("dynamic_update_slice"));
  EXPECT_THAT(row, Not(HasSubstr("indexed")));
  EXPECT_THAT(set_kinds(100'000, 3, false), HasSubstr("select"));
  EXPECT_THAT(set_kinds(100'000, 3, false), Not(HasSubstr("indexed")));
  // Without doubt about the place nothing is read, whatever the sizes.
  for (const int64_t target : {50, 100'000}) {
    const std::string known = set_kinds(target, target - 1, true);
    EXPECT_THAT(known, HasSubstr("update_slice"));
    EXPECT_THAT(known, Not(HasSubstr("select")));
    EXPECT_THAT(known, Not(HasSubstr("indexed")));
    EXPECT_THAT(set_kinds(target, target - 1, false), HasSubstr("indexed_write"));
  }
}

TEST(Scatter, WindowsPartlyOutsideAreLeftOutWhole) {
  for (const Elem elem : {Elem::kI32, Elem::kI64}) {
    GraphBuilder b;
    Value* x = b.arg(f32({6}));
    const Type type{elem, {4, 1}};
    Value* i = b.arg(type);
    Value* u = b.arg(f32({4, 2}));
    ScatterAttrs a;
    a.update_window_dims = {1};
    a.scatter_dims_to_operand_dims = {0};
    a.index_vector_dim = 1;
    Module& m = b.done({b.with_body(b.op(Kind::kScatter, {x, i, u}, x->type, a), Kind::kAdd)});
    const std::vector<int64_t> at = {5, -1, 4, elem == Elem::kI64 ? int64_t{1} << 32 : 6};
    const Tensor index = elem == Elem::kI64
                             ? tensor(type, at)
                             : tensor(type, std::vector<int32_t>(at.begin(), at.end()));
    const std::vector<Tensor> args = {tensor(x->type, std::vector<float>{0, 1, 2, 3, 4, 5}), index,
                                      tensor(u->type, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8})};
    verify(m);
    EXPECT_THAT(values<float>(interpret(m, {args})[0][0]), ElementsAre(0, 1, 2, 3, 9, 11));
    legalize(m);
    m.number_ops();
    verify(m);
    EXPECT_THAT(values<float>(interpret(m, {args})[0][0]), ElementsAre(0, 1, 2, 3, 9, 11));
  }
}

TEST(Indexed, RulesOfTheVerifier) {
  const auto error = [](Type list, Type updates, const Dims& window) {
    GraphBuilder b;
    Value* x = b.arg(f32({9, 4}));
    Value* l = b.arg(list);
    Value* u = b.arg(updates);
    try {
      verify(b.done({b.op(Kind::kIndexedWrite, {x, l, u}, x->type, IndexedAttrs{window})}));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(error(i32({5}), f32({5, 1, 4}), {1, 4}), "");
  EXPECT_THAT(error(f32({5}), f32({5, 1, 4}), {1, 4}), HasSubstr("must be i32"));
  EXPECT_THAT(error(i32({5}), f32({5, 1, 3}), {1, 4}), HasSubstr("do not fit"));
  EXPECT_THAT(error(i32({5}), f32({5, 1, 5}), {1, 5}), HasSubstr("larger than the table"));
  EXPECT_THAT(error(i32({5}), f32({5, 4}), {4}), HasSubstr("entries"));
}

TEST(Collectives, OddGroupsAreGathered) {
  GraphBuilder b(8);
  Value* x = b.arg(f32({4}));
  CollectiveAttrs a;
  a.groups = {{0, 1, 3, 6}, {2, 4, 5, 7}};
  Value* y = b.with_body(b.op(Kind::kAllReduce, {x}, x->type, a), Kind::kAdd);
  a.groups = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  Value* z = b.with_body(b.op(Kind::kAllReduce, {x}, x->type, a), Kind::kAdd);
  a.groups = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
  Value* w = b.op(Kind::kAllGather, {y}, x->type, a);
  const std::string kinds = lowered(b.done({y, z, w}));
  EXPECT_EQ(kinds.find("all_gather"), kinds.rfind("all_gather"));
  EXPECT_THAT(kinds, HasSubstr("all_gather"));
  EXPECT_EQ(kinds.find("all_reduce"), kinds.rfind("all_reduce"));
  EXPECT_THAT(kinds, HasSubstr("all_reduce"));
}

}  // namespace
}  // namespace tpu::compiler
