// Work on the shards of single devices in HLO modules, in the forms of PyTorch/XLA (GSPMD, without
// a function of its own) and of JAX (Shardy, as text).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "manual_programs.hpp"

namespace tpu::compiler {
namespace {

using namespace hlo_bytes;
using testing::HasSubstr;

std::string error_of(const std::string& bytes) {
  try {
    load(bytes);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::vector<const Op*> all_of(const Region& region, Kind kind) {
  std::vector<const Op*> found;
  walk(region, [&](const Op& op) {
    if (op.kind == kind) {
      found.push_back(&op);
    }
  });
  return found;
}

std::vector<const Op*> manual_parts(const Module& m) {
  return all_of(m.main->body, Kind::kManualComputation);
}

// Body of the function that the manual computation calls.
const Region& body_of(const Module& m, const Op& computation) {
  const std::string callee =
      all_of(*computation.regions.at(0), Kind::kCall).at(0)->as<CallAttrs>().callee;
  for (const auto& f : m.functions) {
    if (f->name == callee) {
      return f->body;
    }
  }
  throw Error("no function " + callee);
}

// How an array of 8 x 8 is cut.
std::string cut(const Module& m, const ShardingAttrs& attrs) {
  return to_string(local_type({Elem::kF32, {8, 8}}, m.mesh, attrs.sharding, "", nullptr).dims);
}

std::string arguments_of(const Region& region) {
  std::string text;
  for (const auto& v : region.args) {
    text += (text.empty() ? "" : ", ") + to_string(v->type);
  }
  return text;
}

TEST(HloManualParts, OfAnArgumentBecomeAFunction) {
  const std::string one = bytes(8, bytes(1, kScalar) + bytes(8, std::string("\0\0\x80\x3f", 4)));
  const Module m = load(program({kColumnsOfWhole,
                                 enter(1),
                                 {"constant", kScalar, {}, one},
                                 {"broadcast", kPart, {3}},
                                 {"add", kPart, {2, 4}},
                                 call_of("Sharding", kPart, 5, kManual),
                                 leave(6)}));
  const auto parts = manual_parts(m);
  ASSERT_EQ(parts.size(), 1u);
  const auto& attrs = parts[0]->as<ManualAttrs>();
  EXPECT_EQ(attrs.manual_axes, (std::vector<int>{0, 1, 2}));
  ASSERT_EQ(attrs.in.size(), 1u);
  EXPECT_EQ(cut(m, attrs.in[0]), "[8,1]");
  ASSERT_EQ(attrs.out.size(), 1u);
  EXPECT_EQ(cut(m, attrs.out[0]), "[8,1]");
  EXPECT_EQ(arguments_of(*parts[0]->regions[0]), "f32[8,1]");
  EXPECT_THAT(print(body_of(m, *parts[0])), HasSubstr("add"));
  // The constant is in the function only.
  EXPECT_TRUE(all_of(m.main->body, Kind::kConstant).empty());
  EXPECT_EQ(all_of(body_of(m, *parts[0]), Kind::kConstant).size(), 1u);
}

TEST(HloManualParts, OfSeveralEntriesAndExitsAreOne) {
  const Module m = load(program({kColumnsOfWhole,
                                 sharded(parameter(1, kWhole), kColumns),
                                 enter(1),
                                 enter(2),
                                 {"add", kPart, {3, 4}},
                                 {"negate", kPart, {5}},
                                 leave(5),
                                 leave(5),
                                 leave(6),
                                 result_of({7, 8, 9})}));
  const auto parts = manual_parts(m);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0]->operands.size(), 2u);
  EXPECT_EQ(parts[0]->results.size(), 3u);
  EXPECT_EQ(body_of(m, *parts[0]).terminator()->operands.size(), 2u);
}

TEST(HloManualParts, InAChainAreSeveral) {
  const Module m = load(program({kColumnsOfWhole,
                                 enter(1),
                                 {"negate", kPart, {2}},
                                 leave(3),
                                 enter(4),
                                 {"abs", kPart, {5}},
                                 leave(6)}));
  const auto parts = manual_parts(m);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(cut(m, parts[1]->as<ManualAttrs>().in[0]), "[8,1]");  // as the first gives it
}

// What the second part reads of the first goes through the program of all devices as a stack.
TEST(HloManualParts, ThatReadAroundTheirBorderAreCut) {
  const Module m = load(program({kColumnsOfWhole,
                                 enter(1),
                                 {"negate", kPart, {2}},
                                 leave(3),
                                 {"abs", kWhole, {4}},
                                 sharded({"tanh", kWhole, {5}}, kColumns),
                                 enter(6),
                                 {"add", kPart, {3, 7}},
                                 leave(8)}));
  const auto parts = manual_parts(m);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0]->results.size(), 2u);
  EXPECT_EQ(to_string(parts[0]->type(0)), "f32[8,8,1]");
  EXPECT_EQ(to_string(parts[0]->type(1)), "f32[8,8]");
  EXPECT_EQ(arguments_of(*parts[1]->regions[0]), "f32[1,8,1], f32[8,1]");
}

TEST(HloManualParts, TakeOtherArgumentsReplicated) {
  const Module m = load(program({kColumnsOfWhole,
                                 parameter(1, kScalar),
                                 enter(1),
                                 {"broadcast", kPart, {2}},
                                 {"add", kPart, {3, 4}},
                                 leave(5)}));
  const auto parts = manual_parts(m);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(arguments_of(*parts[0]->regions[0]), "f32[8,1], f32[8,1]");
  EXPECT_FALSE(parts[0]->as<ManualAttrs>().in[1].sharding.is_cut());
}

// They read no shard. One reads an array of all devices, which all cores have whole in the part.
TEST(HloManualParts, HaveTheCollectivesThatTheyRead) {
  const Module m = load(program({kColumnsOfWhole,
                                 sharded(parameter(1, kPart), kRows),
                                 enter(1),
                                 {"constant", kPart, {}, kOnes},
                                 {"all-reduce", kPart, {4}, kOverAll},
                                 {"all-reduce", kPart, {2}, kOverAll},
                                 {"multiply", kPart, {5, 6}},
                                 {"add", kPart, {3, 7}},
                                 leave(8)},
                                {sum()}));
  const auto parts = manual_parts(m);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(all_of(body_of(m, *parts[0]), Kind::kAllReduce).size(), 2u);
  EXPECT_TRUE(all_of(m.main->body, Kind::kAllReduce).empty());
  ASSERT_EQ(parts[0]->as<ManualAttrs>().in.size(), 2u);
  EXPECT_FALSE(parts[0]->as<ManualAttrs>().in[1].sharding.is_cut());
}

TEST(HloManualParts, HaveTheNumberOfTheCoreWithoutAnEntry) {
  const Module m = load(program({parameter(0, kWhole),
                                 {"partition-id", shape(kU32, {}), {}},
                                 {"convert", kScalar, {2}},
                                 {"broadcast", kPart, {3}},
                                 call_of("Sharding", kPart, 4, kManual),
                                 leave(5),
                                 {"add", kWhole, {1, 6}}}));
  ASSERT_EQ(manual_parts(m).size(), 1u);
  EXPECT_TRUE(manual_parts(m)[0]->operands.empty());
  EXPECT_EQ(all_of(body_of(m, *manual_parts(m)[0]), Kind::kPartitionId).size(), 1u);
  EXPECT_TRUE(all_of(m.main->body, Kind::kPartitionId).empty());
}

// The state behind the random bits is one of two results, and both are read.
TEST(HloManualParts, CopyOpsWithSeveralResults) {
  const std::string state = shape(kU64, {2}), bits = shape(kU64, {8, 1});
  const Module m = load(program(
      {{"constant", state, {}, bytes(8, bytes(1, state) + packed(7, {3, 4}))},
       {"rng-bit-generator", tuple_shape({state, bits}), {1}, number(70, 1)},
       {"get-tuple-element", bits, {2}, number(13, 1)},
       {"get-tuple-element", state, {2}},
       {"slice", shape(kU64, {1}), {4}, bytes(17, number(1, 0) + number(2, 1) + number(3, 1))},
       {"reshape", shape(kU64, {}), {5}},
       {"broadcast", bits, {6}},
       {"add", bits, {3, 7}},
       {"convert", kPart, {8}},
       call_of("Sharding", kPart, 9, kManual),
       leave(10)}));
  ASSERT_EQ(manual_parts(m).size(), 1u);
  EXPECT_TRUE(manual_parts(m)[0]->operands.empty());
  EXPECT_EQ(all_of(body_of(m, *manual_parts(m)[0]), Kind::kRngBitGenerator).size(), 1u);
  EXPECT_TRUE(all_of(m.main->body, Kind::kRngBitGenerator).empty());
}

// A function with a manual part gives an array of all devices, whatever is in the part.
TEST(HloManualParts, ReadResultsOfOthersThatFunctionsHave) {
  const std::string other = computation("other", 2,
                                        {sharded(parameter(0, kWhole), kColumns),
                                         call_of("Sharding", kWhole, 1, kColumns),
                                         enter(2),
                                         {"all-reduce", kPart, {3}, kOverAll},
                                         call_of("Sharding", kPart, 4, kManual),
                                         leave(5)});
  const Module m = load(program({kColumnsOfWhole,
                                 {"call", kWhole, {1}, calls({2})},
                                 {"slice", kPart, {2}, kFirstColumn},
                                 enter(1),
                                 {"add", kPart, {3, 4}},
                                 leave(5)},
                                {sum(), other}));
  ASSERT_EQ(manual_parts(m).size(), 1u);
  EXPECT_EQ(manual_parts(m)[0]->operands.size(), 2u);
}

// The constraint in front of an entry is said once more for what else reads it.
TEST(HloManualParts, LeaveConstraintsToTheRest) {
  const auto constraints = [](bool others) {
    const Module m = load(program({parameter(0, kWhole),
                                   call_of("Sharding", kWhole, 1, kColumns),
                                   enter(2),
                                   {"negate", kPart, {3}},
                                   leave(4),
                                   {"abs", kWhole, {others ? 2 : 5}},
                                   result_of({5, 6})}));
    return all_of(m.main->body, Kind::kShardingConstraint).size();
  };
  EXPECT_EQ(constraints(false), 0u);
  EXPECT_EQ(constraints(true), 1u);
}

// A listed order can be said however early the manual part has made the mesh.
TEST(HloManualParts, LeaveOrdersOfDevicesToTheRest) {
  const std::string turned = number(1, 3) + packed(3, {2, 4}) + packed(4, {0, 1, 3, 2, 6, 7, 5, 4});
  const Module m = load(program({parameter(0, kWhole),
                                 enter(1, kWhole),
                                 {"negate", kWhole, {2}},
                                 leave(3, kReplicated),
                                 call_of("Sharding", kWhole, 4, turned)}));
  const auto all = all_of(m.main->body, Kind::kShardingConstraint);
  ASSERT_EQ(all.size(), 1u);
  const Sharding& sharding = all[0]->as<ShardingAttrs>().sharding;
  EXPECT_EQ(sharding.shard_index(m.mesh, 3, 2), (Dims{0, 2}));
  EXPECT_EQ(sharding.shard_index(m.mesh, 6, 2), (Dims{1, 0}));
}

// The program has the entry behind an exit of the same part, which does not depend on it.
TEST(HloManualParts, AreOrderedByWhatTheyRead) {
  const Module m = load(program({kColumnsOfWhole,
                                 sharded(parameter(1, kWhole), kColumns),
                                 enter(1),
                                 {"negate", kPart, {3}},
                                 leave(4),
                                 {"abs", kWhole, {5}},
                                 enter(2),
                                 {"add", kPart, {4, 7}},
                                 leave(8),
                                 result_of({6, 9})}));
  ASSERT_EQ(manual_parts(m).size(), 1u);
  EXPECT_EQ(manual_parts(m)[0]->results.size(), 2u);
}

TEST(HloManualParts, KeepCollectivesAndTheNumberOfTheCore) {
  const std::string number_shape = shape(kU32, {});
  const std::string row = shape(kF32, {1, 8});
  const Module m = load(program({sharded(parameter(0, kWhole), kReplicated),
                                 enter(1, kWhole),
                                 {"reduce-scatter", row, {2}, kOverAll + packed(14, {0})},
                                 {"partition-id", number_shape, {}},
                                 {"convert", kScalar, {4}},
                                 {"broadcast", row, {5}},
                                 {"add", row, {3, 6}},
                                 leave(7, kRows)},
                                {sum()}));
  const auto parts = manual_parts(m);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0]->operands.size(), 1u);
  const Region& body = body_of(m, *parts[0]);
  EXPECT_EQ(all_of(body, Kind::kReduceScatter).size(), 1u);
  EXPECT_EQ(all_of(body, Kind::kPartitionId).size(), 1u);
  EXPECT_TRUE(all_of(m.main->body, Kind::kPartitionId).empty());
}

TEST(HloManualParts, OfMembersOfATuple) {
  const std::string both = number(1, 2) + bytes(5, kReplicated) + bytes(5, kColumns);
  const Module m =
      load(program({sharded(parameter(0, tuple_shape({kWhole, kWhole})), both),
                    sharded({"get-tuple-element", kWhole, {1}, number(13, 1)}, kColumns),
                    enter(2),
                    {"negate", kPart, {3}},
                    leave(4)}));
  ASSERT_EQ(manual_parts(m).size(), 1u);
  EXPECT_EQ(cut(m, manual_parts(m)[0]->as<ManualAttrs>().in[0]), "[8,1]");
}

TEST(HloManualParts, WithRegionsReadWhatIsAroundThem) {
  const std::string body = computation("body", 1, {parameter(0, kPart), {"negate", kPart, {1}}});
  const std::string condition = computation(
      "condition", 2,
      {parameter(0, kPart),
       {"constant", shape(kPred, {}), {}, bytes(8, bytes(1, shape(kPred, {})) + packed(2, {0}))}});
  const Module m =
      load(program({kColumnsOfWhole, enter(1), {"while", kPart, {2}, calls({1, 2})}, leave(3)},
                   {body, condition}));
  ASSERT_EQ(manual_parts(m).size(), 1u);
  EXPECT_EQ(all_of(body_of(m, *manual_parts(m)[0]), Kind::kWhile).size(), 1u);
}

TEST(HloManualParts, MayBeginWithAConstant) {
  const Module m = load(program({parameter(0, kWhole),
                                 {"iota", kPart, {}, packed(14, {0})},
                                 call_of("Sharding", kPart, 2, kManual),
                                 leave(3),
                                 {"add", kWhole, {1, 4}}}));
  ASSERT_EQ(manual_parts(m).size(), 1u);
  EXPECT_EQ(manual_parts(m)[0]->as<ManualAttrs>().manual_axes, (std::vector<int>{0, 1, 2}));
}

TEST(HloManualParts, OfOneDeviceAreThePlainProgram) {
  const std::string bytes = program(
      {parameter(0, kWhole), enter(1, kWhole), {"negate", kWhole, {2}}, leave(3, kReplicated)});
  EXPECT_NO_THROW(import_program(as_bytes(bytes), "", {.partitions = 1}));
}

TEST(HloManualParts, ErrorsSayWhatIsMissing) {
  EXPECT_THAT(error_of(program({kColumnsOfWhole, enter(1), {"negate", kPart, {2}}})),
              HasSubstr("an array of one device is a result of the program; SPMDShardToFullShape"));
  EXPECT_THAT(error_of(program({parameter(0, kWhole), enter(1), {"negate", kPart, {2}}, leave(3)})),
              HasSubstr("does not specify how the operand is sharded"));
  EXPECT_THAT(error_of(program({kColumnsOfWhole,
                                enter(1),
                                {"constant", kPart, {}, kOnes},
                                {"all-reduce", kPart, {3}, kOverAll},
                                {"add", kPart, {2, 4}},
                                leave(5),
                                {"tuple", tuple_shape({kWhole, kPart}), {6, 4}}},
                               {sum()})),
              HasSubstr("an array of one device is a result of the program; SPMDShardToFullShape"));
  const std::string token = number(2, kToken);
  EXPECT_THAT(
      error_of(program({parameter(0, token), call_of("SPMDShardToFullShape", token, 1, kReplicated),
                        parameter(1, kWhole)})),
      HasSubstr("a token of the program of all devices"));
  EXPECT_THAT(error_of(program({kColumnsOfWhole, enter(1), enter(2), leave(3)})),
              HasSubstr("the operand is an array of one device already"));
  // Manual along the first axis only: the device has no place in a stack that the text could name.
  const std::string some =
      number(1, 3) + packed(3, {1, 8}) + packed(9, {8}) + packed(10, {0}) + packed(8, {4});
  EXPECT_THAT(error_of(program({kColumnsOfWhole,
                                call_of("SPMDFullToShardShape", kPart, 1, some),
                                {"negate", kPart, {2}},
                                leave(3),
                                {"abs", kWhole, {4}},
                                sharded({"tanh", kWhole, {5}}, kColumns),
                                call_of("SPMDFullToShardShape", kPart, 6, some),
                                {"add", kPart, {3, 7}},
                                leave(8)})),
              HasSubstr("passes by an array of all devices"));
}

// ---- Shardy

using Texts = std::vector<std::pair<std::string, std::string>>;

std::string frontend_attributes(uint32_t field, const Texts& texts) {
  std::string all;
  for (const auto& [key, value] : texts) {
    all += bytes(1, bytes(1, key) + bytes(2, value));
  }
  return bytes(field, all);
}
std::string attributes(const Texts& texts) { return frontend_attributes(68, texts); }

Instruction custom_call(const std::string& target, const std::string& shape, int64_t operand,
                        const Texts& texts = {}) {
  return {"custom-call", shape, {operand}, bytes(28, target) + attributes(texts)};
}

const std::string kMesh = R"({mesh = #sdy.mesh<["a"=2, "b"=4]>})";

std::string shardy_program(const std::vector<std::string>& computations,
                           const std::string& meshes = kMesh, const Texts& others = {}) {
  Texts texts = others;
  texts.emplace_back("xla.sdy.meshes", meshes);
  return module(computations, frontend_attributes(19, texts));
}

std::string in_list(const std::string& sharding) {
  return "#sdy.sharding_per_value<[" + sharding + "]>";
}

// jax.shard_map of one array along `b`. The attributes are on the custom calls, or on the call.
std::string shard_map(const std::string& in, const std::string& out, const std::string& axes,
                      bool on_call = false, const std::string& prefix = "") {
  const Texts enter = {{"xla.sdy.in_shardings", in}, {"xla.sdy.manual_axes", axes}};
  const Texts leave = {{"xla.sdy.out_shardings", out}, {"xla.sdy.manual_axes", axes}};
  const Texts all = {enter[0], leave[0], enter[1]};
  const std::string part = shape(kF32, {8, 2});
  return shardy_program(
      {computation("body", 1, {parameter(0, part), {"negate", part, {1}}}),
       computation(
           "main", 2,
           {parameter(0, kWhole),
            custom_call(prefix + "xla.sdy.GlobalToLocalShape", part, 1, on_call ? Texts() : enter),
            {"call", part, {2}, calls({1}) + (on_call ? attributes(all) : "")},
            custom_call(prefix + "xla.sdy.LocalToGlobalShape", kWhole, 3,
                        on_call ? Texts() : leave)})});
}

const std::string kAlongB = in_list(R"(<@mesh, [{}, {"b"}]>)"), kB = R"(#sdy<manual_axes{"b"}>)";

std::string quotes_escaped(std::string text) {
  for (size_t at = text.find('"'); at != std::string::npos; at = text.find('"', at + 2)) {
    text.insert(at, "\\");
  }
  return text;
}

void expect_shard_map_along_b(const Module& m) {
  const auto parts = manual_parts(m);
  ASSERT_EQ(parts.size(), 1u);
  const auto& attrs = parts[0]->as<ManualAttrs>();
  EXPECT_EQ(attrs.manual_axes, (std::vector<int>{1, 2}));
  EXPECT_EQ(cut(m, attrs.in.at(0)), "[8,2]");
  EXPECT_EQ(cut(m, attrs.out.at(0)), "[8,2]");
}

TEST(HloShardy, ShardMapIsReadInEveryForm) {
  expect_shard_map_along_b(load(shard_map(kAlongB, kAlongB, kB)));
  expect_shard_map_along_b(load(shard_map(kAlongB, kAlongB, kB, true)));
  const std::string old = quotes_escaped(kAlongB);
  expect_shard_map_along_b(load(shard_map(old, old, quotes_escaped(kB), true, "local_")));
  const std::string inlined = in_list(R"(<mesh<["a"=2, "b"=4]>, [{}, {"b"}p2]>)");
  expect_shard_map_along_b(load(shard_map(inlined, inlined, kB)));
  const std::string parts = in_list(R"(<@mesh, [{}, {"b":(1)2, "b":(2)2}], replicated={"a"}>)");
  expect_shard_map_along_b(load(shard_map(parts, parts, kB)));
  const Module open = load(shard_map(in_list(R"(<@mesh, [{?}, {"b", ?}]>)"), kAlongB, kB));
  EXPECT_EQ(manual_parts(open)[0]->as<ManualAttrs>().in[0].open, (std::vector<bool>{true, true}));
}

TEST(HloShardy, MeshesMayListTheirDevices) {
  const std::string listed = R"({mesh = #sdy.mesh<["a"=8], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>})";
  Instruction array = parameter(0, kWhole);
  array.fields += attributes({{"xla.sdy.sharding", R"(#sdy.sharding<@mesh, [{"a"}, {}]>)"}});
  const Module m = load(shardy_program({computation("main", 1, {array})}, listed));
  ASSERT_TRUE(m.main->args[0].wanted);
  EXPECT_EQ(m.main->args[0].wanted->sharding.shard_index(m.mesh, 7, 2), (Dims{0, 0}));
}

TEST(HloShardy, ResultsHaveTheirCustomCalls) {
  const Texts rows = {{"xla.sdy.sharding", in_list(R"(<@mesh, [{"a"}, {?}]>)")}};
  const Module m = load(shardy_program({computation(
      "main", 1,
      {parameter(0, kWhole), custom_call("xla.sdy.FuncResultSharding", kWhole, 1, rows),
       sharded({"tuple", tuple_shape({kWhole, kWhole}), {2, 1}},
               number(1, 2) + bytes(5, kColumns) + bytes(5, kColumns))})}));
  ASSERT_TRUE(m.main->results[0].wanted);
  EXPECT_EQ(cut(m, *m.main->results[0].wanted), "[4,8]");
  EXPECT_EQ(m.main->results[0].wanted->open, (std::vector<bool>{false, true}));
  EXPECT_FALSE(m.main->results[1].wanted);  // the field is no more than an estimate
}

TEST(HloShardy, MembersOfTuplesAreListedInTheModule) {
  const std::string both = in_list(R"(<@mesh, [{"a"}, {}]>, <@mesh, [{}, {"b"}]>)");
  const std::string pair = tuple_shape({kWhole, kWhole});
  const std::vector<std::string> main = {computation("main", 1, {parameter(0, pair)})};
  const Module m = load(shardy_program(
      main, kMesh,
      {{"xla.sdy.tuple_args_shardings", both}, {"xla.sdy.tuple_results_shardings", both}}));
  EXPECT_EQ(cut(m, m.main->args[0].wanted.value()), "[4,8]");
  EXPECT_EQ(cut(m, m.main->args[1].wanted.value()), "[8,2]");
  EXPECT_EQ(cut(m, m.main->results[1].wanted.value()), "[8,2]");
  EXPECT_THAT(error_of(shardy_program(main, kMesh, {{"xla.sdy.tuple_args_shardings", kAlongB}})),
              HasSubstr("'xla.sdy.tuple_args_shardings': 1 shardings, expected 2"));
}

TEST(HloShardy, ErrorsNameTheAttribute) {
  const auto in = [](const std::string& text) {
    return error_of(shard_map(in_list(text), kAlongB, kB));
  };
  EXPECT_THAT(in(R"(<@mesh, [{}, {"b"})"),
              HasSubstr("its frontend attribute 'xla.sdy.in_shardings': "));
  EXPECT_THAT(in(R"(<@mesh, [{}, {b}]>)"), HasSubstr("expected '\"' at 'b}]>]>'"));
  EXPECT_THAT(in(R"(<mesh, [{}, {"b"}]>)"), HasSubstr("expected '<' at ', [{}"));
  EXPECT_THAT(in(R"(<@other, [{}, {"b"}]>)"), HasSubstr("the mesh @other is not defined"));
  EXPECT_THAT(in(R"(<@mesh, [{}, {"c"}]>)"), HasSubstr("names the axis 'c'"));
  EXPECT_THAT(in(R"(<@mesh, [{}, {}], unreduced=max{"b"}>)"),
              HasSubstr("the terms along the unreduced axes are not added"));
  EXPECT_THAT(in(R"(<@mesh, [{}, {"b"}]>, <@mesh, [{}, {"b"}]>)"),
              HasSubstr("has 2 shardings, expected 1, one for each array"));
  EXPECT_THAT(error_of(shard_map(kAlongB, kAlongB, "b")),
              HasSubstr("'xla.sdy.manual_axes': 'b' is not an attribute of Shardy"));
  EXPECT_THAT(
      error_of(shardy_program({computation("main", 1, {parameter(0, kWhole)})}, "{mesh = 3}")),
      HasSubstr("its frontend attribute 'xla.sdy.meshes'"));
  EXPECT_THAT(error_of(program(
                  {parameter(0, kWhole), custom_call("xla.sdy.GlobalToLocalShape", kPart, 1)})),
              HasSubstr("'xla.sdy.in_shardings' is missing"));
  EXPECT_THAT(error_of(program({parameter(0, kWhole),
                                {"custom-call",
                                 tuple_shape({}),
                                 {1},
                                 bytes(28, "xla.sdy.ShardingGroup") +
                                     attributes({{"xla.sdy.sharding_group_id", "x"}})},
                                {"negate", kWhole, {1}}})),
              HasSubstr("'xla.sdy.sharding_group_id': 'x' is not a number"));
}

}  // namespace
}  // namespace tpu::compiler
