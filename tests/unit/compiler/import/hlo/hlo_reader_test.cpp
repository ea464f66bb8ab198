// HloModuleProtos by hand through the import: what their parts become, and every way in which one
// can be damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "hlo_bytes.hpp"
#include "import/import.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler {
namespace {

using namespace hlo_bytes;
using testing::AllOf;
using testing::HasSubstr;

const std::string kVector = shape(kF32, {4});
const std::string kScalar = shape(kF32, {});

Module load(const std::string& program, const ImportOptions& options = {}) {
  return import_program(as_bytes(program), "", options);
}

std::string error_of(const std::string& program, const ImportOptions& options = {}) {
  try {
    load(program, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// A program of one computation.
std::string program(const std::vector<Instruction>& instructions, const std::string& fields = {}) {
  return module({computation("main", 1, instructions)}, fields);
}

const std::string kSum =
    computation("sum", 1, {parameter(0, kScalar), parameter(1, kScalar), {"add", kScalar, {1, 2}}});

std::string sum_of_rows() {
  return module(
      {kSum,
       computation(
           "main", 2,
           {parameter(0, shape(kF32, {3, 4})),
            {"constant", kScalar, {}, bytes(8, bytes(1, kScalar) + bytes(8, std::string(4, '\0')))},
            {"reduce", kVector, {1, 2}, packed(14, {0}) + calls({1})}})});
}

std::string body_of(const Module& m) { return print(m.main->body); }

TEST(HloReader, ReadsOneOp) {
  const Module m = load(program({parameter(0, kVector), {"tanh", kVector, {1}}}));
  EXPECT_EQ(m.name, "test");
  ASSERT_EQ(m.main->args.size(), 1u);
  EXPECT_EQ(m.main->args[0].name, "parameter.1");
  EXPECT_EQ(to_string(m.main->body.args[0]->type), "f32[4]");
  EXPECT_THAT(body_of(m), HasSubstr("tanh"));
}

TEST(HloReader, NamesTheInstructionWhereThereIsNoMetadata) {
  const Module m = load(program({parameter(0, kVector), {"tanh", kVector, {1}}}));
  EXPECT_EQ(to_string(*m.main->body.ops[0]->loc), "(main/tanh.2)");
}

TEST(HloReader, MetadataBecomesTheLocation) {
  const std::string metadata =
      bytes(7, bytes(2, "jit(f)/tanh") + bytes(3, "model.py") + number(4, 12) + number(18, 7));
  const Module m = load(program({parameter(0, kVector), {"tanh", kVector, {1}, metadata}}));
  EXPECT_EQ(to_string(*m.main->body.ops[0]->loc), "model.py:12:7 (jit(f)/tanh)");
}

TEST(HloReader, StackFramesBecomeTheCallStack) {
  const std::string stack =
      bytes(17, bytes(1, "a.py") + bytes(1, "b.py") + bytes(2, "inner") + bytes(2, "outer") +
                    bytes(3, number(1, 1) + number(2, 1) + number(3, 5) + number(4, 2)) +
                    bytes(3, number(1, 2) + number(2, 2) + number(3, 9) + number(4, 1)) +
                    bytes(4, number(1, 2)) + bytes(4, number(1, 1) + number(2, 1)));
  const Module m = load(program(
      {parameter(0, kVector), {"tanh", kVector, {1}, bytes(7, bytes(2, "t") + number(15, 2))}},
      stack));
  const Loc& loc = *m.main->body.ops[0]->loc;
  ASSERT_EQ(loc.frames.size(), 2u);
  EXPECT_EQ(loc.frames[0].file, "a.py");
  EXPECT_EQ(loc.frames[0].function, "inner");
  EXPECT_EQ(loc.frames[0].line, 5u);
  EXPECT_EQ(loc.frames[1].file, "b.py");
}

TEST(HloReader, CyclesOfStackFramesEnd) {
  const std::string stack =
      bytes(17, bytes(1, "a.py") + bytes(3, number(1, 1) + number(3, 5)) +
                    bytes(4, number(1, 1) + number(2, 2)) + bytes(4, number(1, 1) + number(2, 1)) +
                    bytes(4, number(1, 99) + number(2, 3)));
  for (const int64_t frame : Ints{1, 2, 3, 4, 1'000'000'000'000}) {
    EXPECT_NO_THROW(load(program(
        {parameter(0, kVector), {"tanh", kVector, {1}, bytes(7, number(15, frame))}}, stack)));
  }
}

TEST(HloReader, TakesNumbersOneByOneAndPacked) {
  const std::string one_by_one = number(14, 1) + number(14, 0);
  for (const std::string& dims : {one_by_one, packed(14, {1, 0})}) {
    const Module m = load(program(
        {parameter(0, shape(kF32, {2, 3})), {"transpose", shape(kF32, {3, 2}), {1}, dims}}));
    EXPECT_EQ(to_string(m.main->results[0].global), "f32[3,2]");
  }
}

TEST(HloReader, ResolvesTuples) {
  const std::string pair = tuple_shape({kVector, tuple_shape({kScalar, kVector})});
  const Module m =
      load(program({parameter(0, pair),
                    {"get-tuple-element", tuple_shape({kScalar, kVector}), {1}, number(13, 1)},
                    {"get-tuple-element", kScalar, {2}, number(13, 0)},
                    {"get-tuple-element", kVector, {1}, number(13, 0)},
                    {"tuple", tuple_shape({kScalar, kVector}), {3, 4}}}));
  ASSERT_EQ(m.main->args.size(), 3u);
  EXPECT_EQ(m.main->args[1].name, "parameter.1.1");
  ASSERT_EQ(m.main->results.size(), 2u);
  EXPECT_EQ(m.main->body.terminator()->operands[0], m.main->body.args[1].get());
  EXPECT_EQ(m.main->body.terminator()->operands[1], m.main->body.args[0].get());
}

TEST(HloReader, DonationsFindTheirMembers) {
  const std::string pair = tuple_shape({kVector, kVector});
  const std::string aliases =
      bytes(8, bytes(1, packed(1, {1}) + number(2, 0) + packed(3, {0}) + number(4, 2)));
  const std::string donors = bytes(18, bytes(1, packed(2, {1})));
  const Module m = load(program({parameter(0, pair),
                                 {"get-tuple-element", kVector, {1}, number(13, 0)},
                                 {"get-tuple-element", kVector, {1}, number(13, 1)},
                                 {"tuple", pair, {3, 2}}},
                                aliases + donors));
  EXPECT_EQ(m.main->args[0].alias_result, 1);
  EXPECT_TRUE(m.main->args[0].donated);
  EXPECT_EQ(m.main->args[1].alias_result, -1);
  EXPECT_TRUE(m.main->args[1].donated);
}

TEST(HloReader, DonationsOfWhatIsNotThereAreErrors) {
  const std::string far = bytes(18, bytes(1, number(1, 7)));
  EXPECT_THAT(
      error_of(program({parameter(0, kVector), {"tanh", kVector, {1}}}, far)),
      HasSubstr("the donation of parameter 7 names what the entry computation 'main' lacks"));
  const std::string deep = bytes(8, bytes(1, packed(1, {3}) + number(2, 0)));
  EXPECT_THAT(error_of(program({parameter(0, kVector), {"tanh", kVector, {1}}}, deep)),
              HasSubstr("the donation of parameter 0"));
}

TEST(HloReader, ReadsLiteralsInTheOrderOfTheirLayout) {
  // Columns one after the other: [[1, 2, 3], [4, 5, 6]].
  const std::string type = shape(kS32, {2, 3}, {0, 1});
  const std::string literal = bytes(8, bytes(1, type) + packed(4, {1, 4, 2, 5, 3, 6}));
  const Module m = load(program({{"constant", shape(kS32, {2, 3}), {}, literal}}));
  const Dense& value = m.main->body.ops[0]->as<ConstantAttrs>().value;
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(value.as_int(i), i + 1);
  }
}

TEST(HloReader, ReadsTruthsAndSmallNumbers) {
  const std::string truths = bytes(8, bytes(1, shape(kPred, {3})) + packed(2, {1, 0, 1}));
  const Module m = load(program({{"constant", shape(kPred, {3}), {}, truths}}));
  const Dense& value = m.main->body.ops[0]->as<ConstantAttrs>().value;
  EXPECT_EQ(value.as_int(0), 1);
  EXPECT_EQ(value.as_int(1), 0);
  EXPECT_EQ(value.as_int(2), 1);
  const std::string small = bytes(8, bytes(1, shape(kS8, {2})) + bytes(15, "\x05\xff"));
  const Module n = load(program({{"constant", shape(kS8, {2}), {}, small}}));
  EXPECT_EQ(n.main->body.ops[0]->as<ConstantAttrs>().value.as_int(1), -1);
}

TEST(HloReader, CalledComputationsBecomeRegions) {
  EXPECT_THAT(body_of(load(sum_of_rows())), AllOf(HasSubstr("reduce"), HasSubstr("add")));
}

TEST(HloReader, NumbersOfCoresComeFromTheConfigurationToo) {
  const std::string groups = bytes(49, packed(1, {0, 1}));
  const std::string sums = module(
      {kSum,
       computation("main", 2,
                   {parameter(0, kVector), {"all-reduce", kVector, {1}, groups + calls({1})}})});
  const std::string with_config = bytes(1, sums) + bytes(2, number(4, 2) + number(5, 1));
  EXPECT_EQ(load(with_config).num_cores, 2);
  EXPECT_EQ(load(sums, {.replicas = 2}).num_cores, 2);
  EXPECT_THAT(error_of(sums), HasSubstr("the op names replica 1, the program has 1"));
  EXPECT_THAT(error_of(with_config, {.replicas = 4}), HasSubstr("num_replicas = 2"));
}

TEST(HloReader, FindsModulesInWrappers) {
  const std::string one = program({parameter(0, kVector), {"tanh", kVector, {1}}});
  const std::string hlo_proto = bytes(1, one) + bytes(3, "buffers");
  EXPECT_TRUE(is_hlo(as_bytes(one)));
  EXPECT_TRUE(is_hlo(as_bytes(hlo_proto)));
  EXPECT_EQ(load(hlo_proto).main->args.size(), 1u);
  const std::string snapshot = bytes(1, hlo_proto) + bytes(2, bytes(1, kVector)) + bytes(4, "CPU");
  EXPECT_EQ(load(snapshot).main->args.size(), 1u);
  for (const std::string& other : {std::string(), std::string("ML\xefR"), std::string("module {}"),
                                   std::string("\n\nHloModule f\n"), std::string(64, '\n')}) {
    EXPECT_FALSE(is_hlo(as_bytes(other))) << other;
  }
}

// ---- damage

TEST(HloReader, CutsAreErrors) {
  const std::string all = sum_of_rows();
  for (size_t n = 0; n < all.size(); ++n) {
    EXPECT_THROW(load(all.substr(0, n)), Error) << n;
  }
  EXPECT_NO_THROW(load(all));
}

TEST(HloReader, WrongWireTypesNameMessageAndField) {
  EXPECT_THAT(error_of(program({{"iota", kVector, {}, bytes(9, "x")}})),
              HasSubstr("the HLO module is damaged: HloInstructionProto: field 9 has the wire type "
                        "2, expected 0 (a number) (instruction 1 of computation 'main')"));
  EXPECT_THAT(error_of(program({{"iota", bytes(2, "f32"), {}, ""}})),
              HasSubstr("ShapeProto: field 2 has the wire type 2"));
  EXPECT_THAT(error_of(program({{"iota", kVector, {}, number(15, 3)}})),
              HasSubstr("field 15 has the wire type 0, expected 2 (bytes)"));
  EXPECT_THAT(error_of(program({{"iota", kVector, {}, number(24, 3)}})),
              HasSubstr("field 24 has the wire type 0, expected 5 (32 bits)"));
}

TEST(HloReader, OperandsPrecedeTheirUsers) {
  EXPECT_THAT(error_of(program({parameter(0, kVector), {"tanh", kVector, {7}}})),
              HasSubstr("computation 'main', instruction 'tanh.2' (tanh): operand 0 is the "
                        "instruction of id 7, which does not precede it in the computation"));
  EXPECT_THAT(error_of(program({parameter(0, kVector), {"tanh", kVector, {2}}})),
              HasSubstr("id 2, which does not precede it"));
  EXPECT_THAT(
      error_of(program({parameter(0, kVector), {"tanh", kVector, {3}}, {"tanh", kVector, {2}}})),
      HasSubstr("id 3, which does not precede it"));
}

TEST(HloReader, ComputationsPrecedeTheirCallers) {
  const auto self = [](int64_t callee) {
    return module(
        {computation("main", 1, {parameter(0, kVector), {"call", kVector, {1}, calls({callee})}})});
  };
  EXPECT_THAT(error_of(self(1)),
              HasSubstr("it calls the computation of id 1, which does not precede its own"));
  EXPECT_THAT(error_of(self(99)), HasSubstr("it calls the computation of id 99"));
}

TEST(HloReader, IdsAreUnique) {
  const std::string twice = bytes(1, "main") + bytes(2, instruction(parameter(0, kVector), 1)) +
                            bytes(2, instruction({"iota", kVector, {}, packed(14, {0})}, 1)) +
                            number(5, 1) + number(6, 1);
  EXPECT_THAT(error_of(module({twice})), HasSubstr("another instruction has its id, 1"));
  EXPECT_THAT(error_of(module({kSum, kSum})), HasSubstr("two computations have the id 1"));
}

TEST(HloReader, RootAndEntryExist) {
  const std::string no_root = computation("main", 1, {parameter(0, kVector)}, 9);
  EXPECT_THAT(
      error_of(module({no_root})),
      HasSubstr("computation 'main': its root is the instruction of id 9, which it does not have"));
  const std::string no_entry = bytes(1, "test") + bytes(3, kSum) + number(6, 4);
  EXPECT_THAT(error_of(no_entry), HasSubstr("the entry computation is that of id 4"));
}

TEST(HloReader, ParametersAreNumberedWithoutHoles) {
  EXPECT_THAT(error_of(program({parameter(1, kVector)})),
              HasSubstr("parameter number 1 is impossible"));
  EXPECT_THAT(error_of(program({parameter(1, kVector), {"tanh", kVector, {1}}})),
              HasSubstr("parameter 0 is missing"));
  EXPECT_THAT(error_of(program({parameter(0, kVector), parameter(0, kVector)})),
              HasSubstr("another instruction is parameter 0 too"));
  EXPECT_THAT(error_of(program({parameter(-1, kVector)})), HasSubstr("impossible"));
}

TEST(HloReader, StatedShapesAgreeWithOperands) {
  EXPECT_THAT(error_of(program({parameter(0, kVector), {"tanh", shape(kF32, {5}), {1}}})),
              AllOf(HasSubstr("stablehlo.tanh"), HasSubstr("main/tanh.2")));
  EXPECT_THAT(error_of(program({parameter(0, kVector), {"copy", kScalar, {1}}})),
              HasSubstr("instruction 'copy.2' (copy): its shape is f32[], expected f32[4], that of "
                        "its operand"));
  EXPECT_THAT(error_of(program({parameter(0, kVector), {"tuple", tuple_shape({kScalar}), {1}}})),
              HasSubstr("member 0 of its shape is f32[], expected f32[4]"));
  EXPECT_THAT(error_of(program({parameter(0, kVector), {"tuple", tuple_shape({kVector}), {1, 1}}})),
              HasSubstr("its shape is (f32[4]), expected a tuple of 2 members"));
  EXPECT_THAT(error_of(program({parameter(0, kVector), {"get-tuple-element", kVector, {1}}})),
              HasSubstr("member 0 of f32[4]"));
  EXPECT_THAT(error_of(program({parameter(0, kVector), {"add", kVector, {1}}})),
              HasSubstr("it has 1 operands, expected 2"));
  EXPECT_THAT(error_of(program({parameter(0, tuple_shape({kVector})), {"tanh", kVector, {1}}})),
              "");
}

// Tuples of what is empty have no values at all.
TEST(HloReader, OnlyWhatSendAndRecvGiveIsDone) {
  const std::string empty = tuple_shape({}), three = tuple_shape({empty, empty, empty});
  const auto done = [&](const std::string& opcode, const std::string& result) {
    return error_of(
        program({{"tuple", empty}, {"tuple", three, {1, 1, 1}}, {opcode, result, {2}}}));
  };
  EXPECT_THAT(done("send-done", empty), HasSubstr("expected what send gives"));
  EXPECT_THAT(done("recv-done", tuple_shape({empty, empty})),
              HasSubstr("expected what recv gives"));
}

TEST(HloReader, CalledComputationsTakeTheirArguments) {
  const auto call = [](const std::vector<Instruction>& callee, const Ints& operands) {
    return module(
        {computation("callee", 1, callee),
         computation("main", 2,
                     {parameter(0, kVector), {"fusion", kVector, operands, calls({1})}})});
  };
  EXPECT_THAT(error_of(call({parameter(0, kVector), {"tanh", kVector, {1}}}, {1})), "");
  EXPECT_THAT(error_of(call({parameter(0, kVector), {"tanh", kVector, {1}}}, {1, 1})),
              HasSubstr("computation 'callee' has 1 parameters, it is called with 2 arguments"));
  EXPECT_THAT(error_of(call({parameter(0, kScalar), {"iota", kVector, {}, packed(14, {0})}}, {1})),
              HasSubstr("computation 'callee', instruction 'parameter.1' (parameter): its shape is "
                        "f32[], expected f32[4]"));
  EXPECT_THAT(error_of(call({parameter(0, kVector), {"iota", kScalar, {}, packed(14, {0})}}, {1})),
              testing::Not(""));
}

TEST(HloReader, LiteralsHaveAsManyElementsAsTheirShape) {
  const auto constant = [](const std::string& literal) {
    return program({{"constant", kVector, {}, bytes(8, literal)}});
  };
  const std::string three = bytes(1, kVector) + bytes(8, std::string(12, '\0'));
  EXPECT_THAT(error_of(constant(three)),
              HasSubstr("its literal has 12 bytes of elements, expected 16 for f32[4]"));
  EXPECT_THAT(error_of(constant(bytes(1, kScalar) + bytes(8, std::string(4, '\0')))),
              HasSubstr("its literal is of shape f32[], expected f32[4]"));
  EXPECT_THAT(error_of(constant(bytes(1, kVector) + packed(4, {1, 2, 3, 4}))),
              HasSubstr("elements of type 4, the shape says type 11"));
  EXPECT_THAT(error_of(constant(bytes(1, kVector) + bytes(8, std::string(5, '\0')))),
              HasSubstr("a multiple of 4 bytes"));
  EXPECT_THAT(error_of(program({{"constant", kVector, {}, ""}})),
              HasSubstr("its literal is missing"));
}

TEST(HloReader, AlgorithmsOfProductsAreThoseOfTheirTypes) {
  constexpr int64_t kF32Sums = 11, kF64Sums = 12;  // DOT_F32_F32_F32, DOT_F64_F64_F64
  const auto product = [](int64_t type, int64_t algorithm) {
    const std::string square = shape(type, {4, 4});
    return program(
        {parameter(0, square),
         {"dot",
          square,
          {1, 1},
          bytes(30, packed(1, {1}) + packed(2, {0})) + bytes(51, number(2, algorithm))}});
  };
  for (const auto& [type, algorithm] : {std::pair(kF32, kF32Sums), std::pair(kF64, kF64Sums)}) {
    const Module m = load(product(type, algorithm));
    EXPECT_EQ(m.main->body.ops[0]->as<DotAttrs>().lhs_precision, Precision::kHighest);
  }
  EXPECT_THAT(error_of(product(kF32, kF64Sums)), HasSubstr("this dot algorithm is not supported"));
}

// Later versions of XLA may add fields.
TEST(HloReader, UnknownFieldsOfAProductAreSkipped) {
  const std::string square = shape(kF32, {4, 4});
  const std::string dims = packed(1, {1}) + packed(2, {0});
  for (const std::string& more : {packed(5, {1}), packed(6, {1, 0})}) {
    const Module m =
        load(program({parameter(0, square), {"dot", square, {1, 1}, bytes(30, more + dims)}}));
    const auto& dot = m.main->body.ops[0]->as<DotAttrs>();
    EXPECT_EQ(dot.lhs_contract, Dims{1});
    EXPECT_EQ(dot.rhs_contract, Dims{0});
  }
}

TEST(HloReader, HugeSizesAreRefused) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const std::string huge = shape(kF32, {kHuge, kHuge});
  EXPECT_THAT(error_of(program({parameter(0, huge), {"tanh", huge, {1}}})), HasSubstr("too large"));
  EXPECT_THROW(load(program({{"constant", huge, {}, bytes(8, bytes(1, huge))}})), Error);
  constexpr int64_t kLarge = int64_t{1} << 40;  // the square wraps to 0
  const std::string wraps = shape(kF32, {kLarge, kLarge});
  EXPECT_THAT(error_of(program({{"constant", wraps, {}, bytes(8, bytes(1, wraps))}})),
              HasSubstr("its literal has the invalid shape"));
  const std::string negative = shape(kF32, {-3});
  EXPECT_THROW(load(program({parameter(0, negative)})), Error);
  std::string wide = number(2, kTuple);
  for (int i = 0; i < 300; ++i) {
    wide += bytes(4, kVector);
  }
  std::string wider = number(2, kTuple);
  for (int i = 0; i < 300; ++i) {
    wider += bytes(4, wide);
  }
  EXPECT_THAT(error_of(program({parameter(0, wider)})),
              HasSubstr("a tuple of more than 65536 arrays"));
  std::string deep = kVector;
  for (int i = 0; i < 100; ++i) {
    deep = tuple_shape({deep});
  }
  EXPECT_THAT(error_of(program({parameter(0, deep)})), HasSubstr("more than 64 deep"));
}

TEST(HloReader, TuplesThatDoubleAreBounded) {
  std::vector<Instruction> doubling = {parameter(0, kVector)};
  std::string type = kVector;
  for (int64_t i = 1; i <= 14; ++i) {
    type = tuple_shape({type, type});
    doubling.push_back({"tuple", type, {i, i}});
  }
  for (int i = 0; i < 1100; ++i) {
    doubling.push_back({"copy", type, {15}});
  }
  EXPECT_THAT(error_of(program(doubling)), HasSubstr("more than 16000000 arrays in tuples"));
}

TEST(HloReader, ComputationsThatDoubleAreBounded) {
  std::vector<std::string> all = {
      computation("f1", 1, {parameter(0, kVector), {"tanh", kVector, {1}}})};
  for (int64_t n = 2; n <= 40; ++n) {
    all.push_back(computation("f" + std::to_string(n), n,
                              {parameter(0, kVector),
                               {"fusion", kVector, {1}, calls({n - 1})},
                               {"fusion", kVector, {2}, calls({n - 1})}}));
  }
  EXPECT_THAT(error_of(module(all)),
              HasSubstr("written out the program has more than 2000000 instructions"));
}

TEST(HloReader, DynamicShapesAreRefused) {
  const std::string dynamic = shape(kF32, {4}) + packed(6, {1});
  EXPECT_THAT(error_of(program({parameter(0, dynamic), {"tanh", dynamic, {1}}})),
              HasSubstr("dynamic shapes are not supported"));
  EXPECT_THAT(error_of(program({parameter(0, shape(kF32, {4}) + packed(6, {1, 0}))})),
              HasSubstr("is_dynamic_dimension has 2 entries, expected 1"));
}

// A scatter of updates and indices whose size is an argument; `more`: behind them.
std::string sized_scatter(const Ints& scattered, const std::vector<Instruction>& more = {}) {
  const std::string indices = shape(kS32, {6, 1}), updates = shape(kF32, {6});
  std::vector<Instruction> all = {
      parameter(0, kVector),
      parameter(1, indices),
      parameter(2, updates),
      parameter(3, shape(kS32, {})),
      parameter(4, shape(kS32, {})),
      {"set-dimension-size", indices + packed(6, {1, 0}), {2, 4}, packed(14, {0})},
      {"set-dimension-size", updates + packed(6, {1}), {3, 4}, packed(14, {0})},
      {"set-dimension-size", updates + packed(6, {1}), {3, 5}, packed(14, {0})},
      {"scatter", kVector, scattered,
       bytes(48, packed(2, {0}) + packed(3, {0}) + number(4, 1)) + calls({1})}};
  all.insert(all.end(), more.begin(), more.end());
  return module({kSum, computation("main", 2, all)});
}

TEST(HloReader, ScattersEndWhereTheirIndicesDo) {
  const std::string body = body_of(load(sized_scatter({1, 6, 7})));
  EXPECT_THAT(body, AllOf(HasSubstr("select"), HasSubstr("scatter"), HasSubstr("-1")));
  EXPECT_EQ(body.find("set_dimension_size"), std::string::npos) << body;
  // Sizes that differ or are missing, and other readers.
  const std::string why = "stablehlo.set_dimension_size: dynamic shapes are not supported";
  for (const Ints& scattered : {Ints{1, 6, 8}, Ints{1, 6, 3}, Ints{1, 2, 7}}) {
    EXPECT_THAT(error_of(sized_scatter(scattered)), HasSubstr(why));
  }
  EXPECT_THAT(
      error_of(sized_scatter({1, 6, 7}, {{"slice",
                                          shape(kF32, {1}),
                                          {7},
                                          bytes(17, number(1, 0) + number(2, 1) + number(3, 1))}})),
      HasSubstr(why));
}

TEST(HloReader, TypesOfNoTpuAreRefused) {
  const std::string f16 = shape(kF16, {4});
  EXPECT_THAT(error_of(program({parameter(0, f16), {"tanh", f16, {1}}})),
              HasSubstr("element type f16 is not supported by the TPU; use bfloat16"));
  EXPECT_THROW(load(program({parameter(0, shape(77, {4}))})), Error);
}

TEST(HloReader, EveryBitFlipIsReadOrRefused) {
  const std::string all = sum_of_rows();
  int refused = 0;
  for (size_t bit = 0; bit < all.size() * 8; ++bit) {
    std::string broken = all;
    broken[bit / 8] = static_cast<char>(broken[bit / 8] ^ (1 << (bit % 8)));
    try {
      load(broken);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

// A shape whose layout has the memory space of the host.
std::string in_host(int64_t type, const Ints& dims) {
  return number(2, type) + packed(3, dims) + bytes(5, packed(1, {0}) + number(8, 5));
}

std::vector<std::string> placements_of(const Module& m) {
  std::vector<std::string> kinds;
  for (const auto& op : m.main->body.ops) {
    if (op->kind == Kind::kCustomCall) {
      EXPECT_EQ(op->as<CustomCallAttrs>().target, kPlacementTarget);
      kinds.push_back(op->as<CustomCallAttrs>().backend_config);
    }
  }
  return kinds;
}

TEST(HloMemory, CopiesBetweenMemoriesArePlacements) {
  const std::string here = shape(kF32, {8}), there = in_host(kF32, {8});
  const Module m =
      import_program(as_bytes(module({computation("main", 1,
                                                  {parameter(0, here),
                                                   {"copy", there, {1}},
                                                   {"copy", there, {2}},
                                                   {"copy-start", tuple_shape({here, there}), {3}},
                                                   {"copy-done", here, {4}},
                                                   {"negate", here, {5}}})})),
                     "");
  EXPECT_EQ(placements_of(m), (std::vector<std::string>{"pinned_host", "device"}));
}

TEST(HloMemory, ParametersAndResultsAreInTheHostsMemory) {
  const std::string here = shape(kF32, {8}), there = in_host(kF32, {8});
  const Module m = import_program(
      as_bytes(module({computation("main", 1,
                                   {parameter(0, there),
                                    parameter(1, here),
                                    {"copy", here, {1}},
                                    {"add", here, {2, 3}},
                                    {"copy", there, {4}},
                                    {"tuple", tuple_shape({here, there}), {4, 5}}})})),
      "");
  EXPECT_EQ(m.main->args.at(0).memory, MemoryKind::kPinnedHost);
  EXPECT_EQ(m.main->args.at(1).memory, MemoryKind::kDevice);
  EXPECT_EQ(m.main->results.at(0).memory, MemoryKind::kDevice);
  EXPECT_EQ(m.main->results.at(1).memory, MemoryKind::kPinnedHost);
  EXPECT_EQ(placements_of(m), (std::vector<std::string>{"device", "pinned_host"}));
}

}  // namespace
}  // namespace tpu::compiler
