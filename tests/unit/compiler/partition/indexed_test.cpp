// Gather and scatter on tables that are cut where indices address them. Indices of all tests are
// partly out of bounds: a gather moves them in, a scatter leaves them out.
#include <gtest/gtest.h>

#include <cstring>

#include "distribution.hpp"

namespace tpu::compiler::test {
namespace {

// Whole numbers as indices, [records, entries].
Value* indices(Graph& g, Dims dims, Cut cut, Elem elem = Elem::kI32) {
  Value* v = g.cut_arg(f32(dims), std::move(cut));
  return g.op(Kind::kConvert, {v}, {elem, std::move(dims)});
}

GatherAttrs rows() {
  GatherAttrs a;
  a.offset_dims = {1};
  a.collapsed_slice_dims = a.start_index_map = {0};
  a.slice_sizes = {1, 4};
  a.index_vector_dim = 1;
  return a;
}

// An embedding as Megatron cuts it: zeros for words of others, then one sum.
TEST(Indexed, WordsOfACutVocabularyAreSummed) {
  for (const Elem elem : {Elem::kI32, Elem::kI8, Elem::kI64}) {
    EXPECT_EQ(moves_of([&](Graph& g) -> Values {
                Value* table = g.cut_arg(f32({16, 4}), {{1, 2}, {}});
                Value* words = indices(g, {8, 1}, {{0}, {}}, elem);
                return {g.op(Kind::kGather, {table, words}, f32({8, 4}), rows())};
              }),
              "all_reduce");
  }
}

// What one core has of truth values, any core has.
TEST(Indexed, TruthsOfACutTableArePicked) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* table = g.cut_arg(f32({16, 4}), {{1, 2}, {}});
              table = g.op(Kind::kConvert, {table}, i1({16, 4}));
              Value* words = indices(g, {8, 1}, {{0}, {}});
              Value* picked = g.op(Kind::kGather, {table, words}, i1({8, 4}), rows());
              return {g.op(Kind::kConvert, {picked}, f32({8, 4}))};
            }),
            "all_reduce");
}

// NaN payloads, subnormals and -0: a sum would lose them.
TEST(Indexed, BitsOfACutTableArePicked) {
  for (const Elem elem : {Elem::kBf16, Elem::kF32}) {
    const Elem word = elem == Elem::kF32 ? Elem::kU32 : Elem::kU16;
    const Build build = [&](Graph& g) -> Values {
      Value* table = g.cut_arg({word, {16, 4}}, {{1, 2}, {}});
      Value* words = g.cut_arg(i32({8, 1}), {{0}, {}});
      table = g.op(Kind::kBitcastConvert, {table}, {elem, {16, 4}});
      Value* picked = g.op(Kind::kGather, {table, words}, {elem, {8, 4}}, rows());
      return {g.op(Kind::kBitcastConvert, {picked}, {word, {8, 4}})};
    };
    Graph one(false), many(true);
    Module& whole = one.done(build(one));
    splice(whole);
    Module& m = partitioned(many, build);
    Tensor table = make_tensor({word, {16, 4}});
    const auto bytes = static_cast<size_t>(elem_bytes(word));
    for (uint32_t i = 0; i < 64; ++i) {
      const uint32_t bits = (i % 2 == 0 ? 0x80000000u : 0xff800000u) | i << 16;
      std::memcpy(table.data.data() + i * bytes,
                  reinterpret_cast<const std::byte*>(&bits) + 4 - bytes, bytes);
    }
    const std::vector<Tensor> args = {table,
                                      tensor<int32_t>(i32({8, 1}), {0, 3, 15, 7, 7, 1, 12, 9})};
    const auto expected = interpret(whole, {args})[0];
    const auto got = join_results(m, interpret(m, split_arguments(m, args)));
    EXPECT_EQ(got[0].data, expected[0].data);
    EXPECT_EQ(count_of(m.main->body, Kind::kAllReduce), 1);
  }
}

TEST(Indexed, ASmallTableIsGathered) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* table = g.cut_arg(f32({8, 4}), {{1, 2}, {}});
              Value* words = indices(g, {64, 1}, {{0}, {}});
              return {g.op(Kind::kGather, {table, words}, f32({64, 4}), rows())};
            }),
            "all_gather");
}

// The gradient of the embedding: examples are cut too, the vocabulary moves nothing.
TEST(Indexed, ACutVocabularyIsUpdatedWhereItLies) {
  for (const bool examples_cut : {false, true}) {
    EXPECT_EQ(moves_of([=](Graph& g) -> Values {
                Value* table = g.cut_arg(f32({16, 4}), {{1, 2}, {}});
                Value* words = indices(
                    g, {8, 1}, {examples_cut ? std::vector<int>{0} : std::vector<int>{}, {}});
                ScatterAttrs a;
                a.update_window_dims = {1};
                a.inserted_window_dims = a.scatter_dims_to_operand_dims = {0};
                a.index_vector_dim = 1;
                Value* updates = g.cut_arg(
                    f32({8, 4}), {examples_cut ? std::vector<int>{0} : std::vector<int>{}, {}});
                return {g.with_body(g.op(Kind::kScatter, {table, words, updates}, f32({16, 4}), a),
                                    Kind::kAdd)};
              }),
              examples_cut ? "all_reduce" : "");
  }
}

// take_along_axis of logits whose examples and classes are cut.
TEST(Indexed, LogitsOfCutClassesArePicked) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* logits = g.cut_arg(f32({4, 16}), {{0}, {1, 2}});
              GatherAttrs a;
              a.collapsed_slice_dims = a.start_index_map = {1};
              a.operand_batching_dims = a.start_indices_batching_dims = {0};
              a.slice_sizes = {1, 1};
              a.index_vector_dim = 2;
              return {g.op(Kind::kGather, {logits, indices(g, {4, 2, 1}, {{0}, {}, {}})},
                           f32({4, 2}), a)};
            }),
            "all_reduce");
}

// Pairs of indices, of which either or both address a dimension that is cut.
TEST(Indexed, AnyEntryOfAnIndexMayAddressACutDimension) {
  for (const Cut& cut : {Cut{{0}, {}}, Cut{{}, {1, 2}}, Cut{{0}, {1, 2}}}) {
    const auto pick = [&](Graph& g) -> Values {
      Value* table = g.cut_arg(f32({4, 8}), cut);
      GatherAttrs a;
      a.collapsed_slice_dims = {0, 1};
      a.start_index_map = {1, 0};
      a.slice_sizes = {1, 1};
      a.index_vector_dim = 1;
      return {g.op(Kind::kGather, {table, indices(g, {5, 2}, {})}, f32({5}), a)};
    };
    EXPECT_EQ(moves_of(pick), "all_reduce");
    const auto store = [&](Graph& g) -> Values {
      Value* table = g.cut_arg(f32({4, 8}), cut);
      ScatterAttrs a;
      a.inserted_window_dims = {0, 1};
      a.scatter_dims_to_operand_dims = {1, 0};
      a.index_vector_dim = 0;
      return {g.with_body(
          g.op(Kind::kScatter, {table, indices(g, {2, 5}, {}), g.arg(f32({5}))}, table->type, a),
          Kind::kMaximum)};
    };
    EXPECT_EQ(moves_of(store), "");
  }
}

}  // namespace
}  // namespace tpu::compiler::test
