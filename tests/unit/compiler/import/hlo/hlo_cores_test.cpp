// Groups, shardings and collectives of HLO modules, in every form in which XLA writes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hlo_bytes.hpp"
#include "import/import.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler {
namespace {

using namespace hlo_bytes;
using testing::HasSubstr;

const std::string kVector = shape(kF32, {8});
const std::string kScalar = shape(kF32, {});
const std::string kSum =
    computation("sum", 1, {parameter(0, kScalar), parameter(1, kScalar), {"add", kScalar, {1, 2}}});

std::string program(const std::vector<Instruction>& instructions) {
  return module({kSum, computation("main", 2, instructions)});
}

Module load(const std::string& bytes, const ImportOptions& options = {.replicas = 8}) {
  return import_program(as_bytes(bytes), "", options);
}

std::string error_of(const std::string& bytes, const ImportOptions& options = {.replicas = 8}) {
  try {
    load(bytes, options);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

// All-reduce with the groups of `fields`.
std::string reduced(const std::string& fields) {
  return program({parameter(0, kVector), {"all-reduce", kVector, {1}, fields + calls({1})}});
}

const Op* find(const Module& m, Kind kind) {
  const Op* found = nullptr;
  walk(m.main->body, [&](const Op& op) { found = op.kind == kind ? &op : found; });
  return found;
}

Groups groups_of(const std::string& fields) {
  const Module m = load(reduced(fields));
  return find(m, Kind::kAllReduce)->as<CollectiveAttrs>().groups;
}

std::string mesh_axis(const std::string& name, int64_t size) {
  return bytes(1, bytes(1, name) + number(2, size));
}

std::string axis(int64_t index) { return number(1, index); }

std::string part(int64_t index, int64_t before, int64_t size) {
  return number(1, index) + bytes(2, number(1, before) + number(2, size));
}

TEST(HloGroups, AreReadInEveryForm) {
  const Groups even_odd = {{0, 2, 4, 6}, {1, 3, 5, 7}};
  const std::string rows = bytes(1, packed(1, {0, 2, 4, 6})) + bytes(1, packed(1, {1, 3, 5, 7}));
  const std::string listed =
      bytes(49, packed(1, {0, 2, 4, 6})) + bytes(49, packed(1, {1, 3, 5, 7}));
  const std::string iota = number(1, 2) + number(2, 4) + packed(3, {4, 2}) + packed(4, {1, 0});
  const std::string mesh = bytes(1, mesh_axis("x", 4) + mesh_axis("y", 2)) + bytes(2, axis(0));
  const std::string parts = bytes(1, mesh_axis("x", 8)) + bytes(2, part(0, 1, 4));
  EXPECT_EQ(groups_of(listed), even_odd);
  EXPECT_EQ(groups_of(bytes(87, rows)), even_odd);
  EXPECT_EQ(groups_of(bytes(87, bytes(2, iota))), even_odd);
  EXPECT_EQ(groups_of(bytes(92, iota)), even_odd);
  EXPECT_EQ(groups_of(listed + number(92, 1)), even_odd);  // with the group mode of TensorFlow 2.20
  EXPECT_EQ(groups_of(bytes(93, mesh)), even_odd);
  EXPECT_EQ(groups_of(bytes(93, parts)), even_odd);
  EXPECT_EQ(groups_of(""), (Groups{{0, 1, 2, 3, 4, 5, 6, 7}}));
}

TEST(HloGroups, ImpossibleOnesAreErrors) {
  const auto iota = [](const Ints& dims, const Ints& order) {
    return reduced(bytes(92, number(1, 2) + number(2, 4) + packed(3, dims) + packed(4, order)));
  };
  EXPECT_THAT(error_of(iota({4, 3}, {})), HasSubstr("2 groups of 4 devices, the list has 12"));
  EXPECT_THAT(error_of(iota({4, 2}, {0, 0})), HasSubstr("what is not a permutation"));
  EXPECT_THAT(error_of(iota({int64_t{1} << 40, int64_t{1} << 40}, {})),
              HasSubstr("impossible dimensions"));
  EXPECT_THAT(error_of(iota({-2, -4}, {})), HasSubstr("impossible dimensions"));
  const auto mesh = [](const std::string& axes) {
    return reduced(bytes(93, bytes(1, mesh_axis("x", 8)) + axes));
  };
  EXPECT_THAT(error_of(mesh(bytes(2, axis(3)))), HasSubstr("axis 3 of a mesh that has 1"));
  EXPECT_THAT(error_of(mesh(bytes(2, part(0, 1, 3)))), HasSubstr("does not divide it"));
  EXPECT_THAT(error_of(mesh(bytes(2, part(0, 4, 4)))), HasSubstr("larger than the axis"));
  EXPECT_THAT(error_of(mesh(bytes(2, part(0, -1, 2)))), HasSubstr("an impossible part"));
  EXPECT_THAT(error_of(mesh(bytes(2, axis(0)) + bytes(2, axis(0)))),
              HasSubstr("what is not a permutation"));
  EXPECT_THAT(error_of(reduced(bytes(49, packed(1, {0, 1, -1})))),
              HasSubstr("a group names a replica of a negative number"));
  EXPECT_THAT(error_of(reduced(bytes(49, ""))), HasSubstr("a group of its replicas is empty"));
  EXPECT_THAT(error_of(reduced(bytes(49, packed(1, {0, 9})))),
              HasSubstr("the op names replica 9, the program has 8"));
}

TEST(HloCollectives, WhatOnlyASumUsesComesAsSoonAsItCan) {
  // Only a sum uses the product and its negation. Sine is used otherwise, too.
  const std::string pair = tuple_shape({kVector, kVector, kVector});
  const Module m = load(program(
      {parameter(0, kVector),
       parameter(1, kVector),
       {"constant", kVector, {}, bytes(8, bytes(1, kVector) + bytes(8, std::string(32, '\0')))},
       {"exponential", kVector, {1}},
       {"tanh", kVector, {4}},
       {"cosine", kVector, {5}},
       {"multiply", kVector, {4, 3}},
       {"negate", kVector, {7}},
       {"sine", kVector, {4}},
       {"all-reduce", kVector, {8}, calls({1})},
       {"all-reduce", kVector, {9}, calls({1})},
       {"subtract", kVector, {6, 10}},
       {"add", kVector, {9, 11}},
       {"tuple", pair, {12, 13, 2}}}));
  std::vector<std::string> kinds;
  walk(m.main->body, [&](const Op& op) { kinds.emplace_back(kind_name(op.kind)); });
  const auto at = [&](const std::string& kind) {
    return std::ranges::find(kinds, kind) - kinds.begin();
  };
  EXPECT_EQ(at("multiply"), at("exponential") + 1);
  EXPECT_EQ(at("negate"), at("exponential") + 2);
  EXPECT_LT(at("negate"), at("tanh"));
  EXPECT_LT(at("cosine"), at("sine"));  // as in the module
}

TEST(HloCollectives, ScalarsOfArgumentsComeInFrontOfSums) {
  const auto kinds_of = [](bool sum) {
    const Module m = load(program({parameter(0, kVector),
                                   {"tanh", kVector, {1}},
                                   sum ? Instruction{"all-reduce", kVector, {2}, calls({1})}
                                       : Instruction{"negate", kVector, {2}},
                                   parameter(1, kScalar),
                                   {"exponential", kScalar, {4}},
                                   {"sine", kScalar, {5}},
                                   {"tuple", tuple_shape({kVector, kScalar}), {3, 6}}}));
    std::vector<std::string> kinds;
    walk(m.main->body, [&](const Op& op) { kinds.emplace_back(kind_name(op.kind)); });
    return kinds;
  };
  const auto at = [](const std::vector<std::string>& kinds, const std::string& kind) {
    return std::ranges::find(kinds, kind) - kinds.begin();
  };
  const std::vector<std::string> with = kinds_of(true), without = kinds_of(false);
  EXPECT_LT(at(with, "exponential"), at(with, "sine"));
  EXPECT_LT(at(with, "sine"), at(with, "tanh"));
  EXPECT_LT(at(without, "tanh"), at(without, "exponential"));
}

// Of two arrays in one parameter all replicas have the same first one, whose memory a result takes.
TEST(HloReplicas, ArraysThatAreTheSameOnAllHaveNoEntryForEach) {
  const std::string pair = tuple_shape({kVector, kVector});
  Instruction both = parameter(0, pair);
  both.fields += bytes(61, packed(1, {1, 0}));  // parameter_replication
  const auto load_for = [&](const ImportOptions& options) {
    return load(module({kSum, computation("main", 2,
                                          {both,
                                           {"get-tuple-element", kVector, {1}, number(13, 0)},
                                           {"get-tuple-element", kVector, {1}, number(13, 1)},
                                           {"all-reduce", kVector, {3}, calls({1})},
                                           {"subtract", kVector, {2, 4}},
                                           {"tuple", pair, {5, 3}}})},
                       bytes(8, bytes(1, packed(1, {0}) + packed(3, {0})))),
                options);
  };
  const Module m = load_for({.replicas = 8});
  EXPECT_EQ(to_string(m.main->args[0].global), "f32[8]");
  EXPECT_EQ(to_string(m.main->args[1].global), "f32[8,8]");
  EXPECT_EQ(to_string(m.main->results[0].global), "f32[8]");
  EXPECT_EQ(to_string(m.main->results[1].global), "f32[8,8]");
  EXPECT_TRUE(m.main->args[0].wanted->sharding.is_replicated());
  // Cores of one replica may cut its arrays: nothing is said of them.
  EXPECT_EQ(to_string(load_for({.replicas = 4, .partitions = 2}).main->args[0].global), "f32[4,8]");
}

TEST(HloCollectives, OfSeveralArraysAreOneOp) {
  const std::string pair = tuple_shape({kVector, kVector});
  const Module m = load(program(
      {parameter(0, kVector), parameter(1, kVector), {"all-reduce", pair, {1, 2}, calls({1})}}));
  EXPECT_EQ(find(m, Kind::kAllReduce)->results.size(), 2u);
}

TEST(HloCollectives, AllToAllOfATupleExchangesItsMembers) {
  const std::string two = tuple_shape({kScalar, kScalar});
  const std::string groups = bytes(49, packed(1, {0, 1}));
  const Module m = load(
      program({parameter(0, kScalar), parameter(1, kScalar), {"all-to-all", two, {1, 2}, groups}}),
      {.replicas = 2});
  const Op* op = find(m, Kind::kAllToAll);
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(to_string(op->type()), "f32[2]");
  EXPECT_EQ(op->as<CollectiveAttrs>().split_count, 2);
  EXPECT_THAT(error_of(program({parameter(0, kScalar), {"all-to-all", kScalar, {1}, groups}}),
                       {.replicas = 2}),
              HasSubstr("it has 1 operands, expected 2, one for each member of a group"));
}

TEST(HloCollectives, PermutesSeveralArraysOneByOne) {
  const std::string pair = tuple_shape({kVector, kScalar});
  const Module m =
      load(program({parameter(0, kVector),
                    parameter(1, kScalar),
                    {"collective-permute", pair, {1, 2}, bytes(52, number(1, 0) + number(2, 3))}}));
  size_t permutes = 0;
  walk(m.main->body, [&](const Op& op) { permutes += op.kind == Kind::kCollectivePermute; });
  EXPECT_EQ(permutes, 2u);
}

TEST(HloCollectives, StartsNeedTheirEnds) {
  const std::string async = tuple_shape({kVector, kVector});
  EXPECT_THAT(error_of(program({parameter(0, kVector), {"all-gather-done", kVector, {1}}})),
              HasSubstr("its operand is not the beginning of what it ends"));
  EXPECT_THAT(error_of(program(
                  {parameter(0, kVector),
                   {"collective-permute-start", async, {1}, bytes(52, number(1, 0) + number(2, 3))},
                   {"get-tuple-element", kVector, {2}, number(13, 1)},
                   {"negate", kVector, {3}}})),
              HasSubstr("operand 0 has no value that a program can read"));
}

// ---- shardings, for 8 partitions

std::string cut(const std::string& sharding) {
  Instruction array = parameter(0, kVector);
  array.fields += bytes(40, sharding);
  return program({array, {"negate", kVector, {1}}});
}

std::string sharding_of(const std::string& sharding) {
  const Module m = load(cut(sharding), {.partitions = 8});
  if (!m.main->args[0].wanted) {
    return "none";
  }
  const Type whole = m.main->args[0].global;
  return to_string(local_type(whole, m.mesh, m.main->args[0].wanted->sharding, "", nullptr).dims);
}

TEST(HloShardings, AreReadInEveryForm) {
  const std::string tiles = number(1, 3) + packed(3, {8});
  EXPECT_EQ(sharding_of(number(1, 0)), "[8]");
  EXPECT_EQ(sharding_of(tiles + packed(4, {0, 1, 2, 3, 4, 5, 6, 7})), "[1]");
  EXPECT_EQ(sharding_of(tiles + packed(9, {8}) + packed(10, {0})), "[1]");
  EXPECT_EQ(sharding_of(number(1, 3) + packed(3, {4, 2}) + packed(9, {8}) + packed(10, {0}) +
                        number(6, 1)),
            "[2]");
  EXPECT_EQ(sharding_of(number(1, 3) + packed(3, {2, 4}) + packed(9, {4, 2}) + packed(10, {1, 0}) +
                        packed(8, {0})),
            "[4]");
  EXPECT_EQ(sharding_of(number(1, 5)), "none");
  const std::string mesh = bytes(2, mesh_axis("x", 4) + mesh_axis("y", 2));
  EXPECT_EQ(sharding_of(bytes(14, mesh + bytes(3, bytes(1, axis(0))))), "[2]");
  EXPECT_EQ(sharding_of(bytes(14, mesh + bytes(3, bytes(1, axis(1)) + bytes(1, axis(0))))), "[1]");
  EXPECT_EQ(sharding_of(bytes(14, mesh + bytes(3, bytes(1, part(0, 2, 2))))), "[4]");
  EXPECT_EQ(sharding_of(bytes(14, mesh + bytes(3, ""))), "[8]");
  const std::string listed = bytes(2, mesh_axis("x", 8) + packed(2, {7, 6, 5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(sharding_of(bytes(14, listed + bytes(3, bytes(1, axis(0))))), "[1]");
}

TEST(HloShardings, ManualAlongAllAxesIsManual) {
  const std::string mesh = bytes(2, mesh_axis("x", 4) + mesh_axis("y", 2));
  const std::string all = bytes(7, axis(0)) + bytes(7, axis(1));
  const ImportOptions eight = {.partitions = 8};
  EXPECT_THAT(error_of(cut(bytes(14, mesh + bytes(3, "") + all)), eight),
              HasSubstr("'{manual}' is possible inside of jax.shard_map alone"));
  EXPECT_THAT(error_of(cut(bytes(14, mesh + bytes(3, "") + bytes(7, axis(0)))), eight),
              testing::Not(HasSubstr("'{manual}'")));
  EXPECT_THAT(error_of(cut(bytes(14, mesh + bytes(1, "")))), HasSubstr("tuple_shardings"));
}

TEST(HloShardings, ImpossibleOnesAreErrors) {
  const ImportOptions eight = {.partitions = 8};
  EXPECT_THAT(error_of(cut(number(1, 9)), eight), HasSubstr("the type 9 of a sharding"));
  EXPECT_THAT(error_of(cut(number(1, 3) + packed(3, {4}) + packed(9, {4})), eight),
              HasSubstr("argument 0 ('parameter.1')"));
  const std::string two = bytes(5, number(1, 0)) + bytes(5, number(1, 0));
  EXPECT_THAT(error_of(cut(number(1, 2) + two), eight),
              HasSubstr("its sharding is of 2 arrays, expected 1"));
}

TEST(HloShardings, OfInstructionsAreConstraints) {
  const std::string tiles = number(1, 3) + packed(3, {8}) + packed(9, {8});
  const Module m = load(program({parameter(0, kVector),
                                 {"negate", kVector, {1}, bytes(40, tiles)},
                                 {"abs", kVector, {2}}}),
                        {.partitions = 8});
  EXPECT_NE(find(m, Kind::kShardingConstraint), nullptr);
}

TEST(HloShardings, OfTheRootAreThoseOfResults) {
  const std::string tiles = number(1, 3) + packed(3, {8}) + packed(9, {8});
  const std::string both = number(1, 2) + bytes(5, tiles) + bytes(5, number(1, 0));
  const Module m =
      load(program({parameter(0, kVector),
                    {"tuple", tuple_shape({kVector, kVector}), {1, 1}, bytes(40, both)}}),
           {.partitions = 8});
  ASSERT_TRUE(m.main->results[0].wanted && m.main->results[1].wanted);
  EXPECT_TRUE(m.main->results[0].wanted->sharding.is_cut());
  EXPECT_FALSE(m.main->results[1].wanted->sharding.is_cut());
}

}  // namespace
}  // namespace tpu::compiler
