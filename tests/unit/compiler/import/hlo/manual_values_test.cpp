// Values of programs with manual parts: what eight cores compute, with what the program around the
// parts says, beside the same written by hand.
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "legalize/legalize.hpp"
#include "manual_programs.hpp"
#include "partition/partition.hpp"
#include "passes/inline.hpp"
#include "passes/simplify.hpp"
#include "tensors.hpp"

namespace tpu::compiler {
namespace {

using namespace hlo_bytes;
using Row = std::array<float, 8>;
using Array = std::array<Row, 8>;
using Element = std::function<float(size_t row, size_t column)>;

Array array_of(const Element& element) {
  Array all;
  for (size_t i = 0; i < 8; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      all[i][j] = element(i, j);
    }
  }
  return all;
}

// Argument `number` of all programs here: no two elements have the same value.
float given(size_t number, size_t row, size_t column) {
  return static_cast<float>(1 + number * 100 + row * 8 + column);
}

// Results of 8 x 8. Of arguments that are smaller, the first elements are used.
std::vector<Array> run(const std::string& bytes) {
  Module m = load(bytes);
  verify(m);
  inline_calls(m);
  splice(m);
  partition(m);
  verify(m);
  simplify(m);
  std::vector<Tensor> arguments;
  for (size_t i = 0; i < m.main->args.size(); ++i) {
    const Type& type = m.main->args[i].global;
    std::vector<float> v(static_cast<size_t>(type.count()));
    for (size_t e = 0; e < v.size(); ++e) {
      v[e] = given(i, e / 8, e % 8);
    }
    arguments.push_back(test::tensor<float>(type, v));
  }
  std::vector<Array> all;
  for (const Tensor& t : join_results(m, interpret(m, split_arguments(m, arguments)))) {
    const std::vector<float> v = test::values<float>(t);
    all.push_back(array_of([&](size_t i, size_t j) { return v.at(i * 8 + j); }));
  }
  return all;
}

TEST(HloManualValues, FollowTheOrderOfWhatIsRead) {
  const auto got = run(program({kColumnsOfWhole,
                                sharded(parameter(1, kWhole), kColumns),
                                enter(1),
                                {"negate", kPart, {3}},
                                leave(4),
                                {"abs", kWhole, {5}},
                                enter(2),
                                {"subtract", kPart, {4, 7}},
                                leave(8),
                                result_of({6, 9})}));
  EXPECT_EQ(got.at(0), array_of([](size_t i, size_t j) { return given(0, i, j); }));
  EXPECT_EQ(got.at(1),
            array_of([](size_t i, size_t j) { return -given(0, i, j) - given(1, i, j); }));
}

TEST(HloManualValues, OfTwoEntriesOfOneArray) {
  const auto got = run(program({kColumnsOfWhole,
                                enter(1),
                                {"negate", kPart, {2}},
                                enter(1),
                                {"subtract", kPart, {3, 4}},
                                leave(5)}));
  EXPECT_EQ(got.at(0), array_of([](size_t i, size_t j) { return -2 * given(0, i, j); }));
}

// Column j is that of core j; the second argument is cut by rows outside.
TEST(HloManualValues, OfArraysThatAreNotEntered) {
  const auto got = run(program({kColumnsOfWhole,
                                sharded(parameter(1, kPart), kRows),
                                enter(1),
                                {"add", kPart, {3, 2}},
                                leave(4)}));
  EXPECT_EQ(got.at(0),
            array_of([](size_t i, size_t j) { return given(0, i, j) + given(1, 0, i); }));
}

TEST(HloManualValues, OfCollectivesAndTheNumberOfTheCore) {
  const std::string row = shape(kF32, {1, 8});
  const auto got = run(program({sharded(parameter(0, kWhole), kReplicated),
                                enter(1, kWhole),
                                {"reduce-scatter", row, {2}, kOverAll + packed(14, {0})},
                                {"partition-id", shape(kU32, {}), {}},
                                {"convert", kScalar, {4}},
                                {"broadcast", row, {5}},
                                {"add", row, {3, 6}},
                                leave(7, kRows)},
                               {sum()}));
  EXPECT_EQ(got.at(0), array_of([](size_t i, size_t j) {
              return 8 * given(0, i, j) + static_cast<float>(i);
            }));
}

TEST(HloManualValues, OfCollectivesThatReadNoShard) {
  const auto got = run(program({kColumnsOfWhole,
                                sharded(parameter(1, kPart), kRows),
                                enter(1),
                                {"constant", kPart, {}, kOnes},
                                {"all-reduce", kPart, {4}, kOverAll},
                                {"all-reduce", kPart, {2}, kOverAll},
                                {"multiply", kPart, {5, 6}},
                                {"add", kPart, {3, 7}},
                                leave(8)},
                               {sum()}));
  EXPECT_EQ(got.at(0),
            array_of([](size_t i, size_t j) { return given(0, i, j) + 64 * given(1, 0, i); }));
}

// The scattered sum differs by core; nothing between is an array of all devices.
TEST(HloManualValues, OfScatteredSumsThatReadNoShard) {
  const std::string row = shape(kF32, {1, 8});
  const auto got = run(program({sharded(parameter(0, kWhole), kRows),
                                sharded(parameter(1, kWhole), kColumns),
                                {"reduce-scatter", row, {2}, kOverAll + packed(14, {0})},
                                {"negate", row, {3}},
                                enter(1, row),
                                {"add", row, {4, 5}},
                                leave(6, kRows)},
                               {sum()}));
  EXPECT_EQ(got.at(0),
            array_of([](size_t i, size_t j) { return given(0, i, j) - 8 * given(1, i, j); }));
}

TEST(HloManualValues, OfTheNumberOfTheCoreAlone) {
  const auto got = run(program({sharded(parameter(0, kWhole), kRows),
                                {"partition-id", shape(kU32, {}), {}},
                                {"convert", kScalar, {2}},
                                {"broadcast", kPart, {3}},
                                call_of("Sharding", kPart, 4, kManual),
                                leave(5),
                                {"add", kWhole, {1, 6}}}));
  EXPECT_EQ(got.at(0),
            array_of([](size_t i, size_t j) { return given(0, i, j) + static_cast<float>(j); }));
}

// A shard passes by arrays of all devices that depend on it: once, and twice; an entry does too.
TEST(HloManualValues, OfShardsThatPassByAnArrayOfAllDevices) {
  const auto got = run(program({kColumnsOfWhole,
                                enter(1),
                                {"negate", kPart, {2}},
                                leave(3),
                                sharded({"transpose", kWhole, {4}, packed(14, {1, 0})}, kColumns),
                                enter(5),
                                {"subtract", kPart, {6, 3}},
                                {"add", kPart, {7, 2}},
                                leave(8),
                                sharded({"transpose", kWhole, {9}, packed(14, {1, 0})}, kColumns),
                                enter(10),
                                {"subtract", kPart, {11, 3}},
                                leave(12)}));
  const auto second = [](size_t i, size_t j) { return 2 * given(0, i, j) - given(0, j, i); };
  EXPECT_EQ(got.at(0), array_of([&](size_t i, size_t j) { return second(j, i) + given(0, i, j); }));
}

// What a collective gives is a stack too.
TEST(HloManualValues, OfSumsThatPassByAnArrayOfAllDevices) {
  const auto got = run(program({kColumnsOfWhole,
                                enter(1),
                                {"slice", shape(kF32, {1, 1}), {2}, kFirstElement},
                                {"reshape", kScalar, {3}},
                                {"all-reduce", kPart, {2}, kOverAll},
                                leave(5),
                                sharded({"negate", kWhole, {6}}, kColumns),
                                enter(7),
                                {"broadcast", kPart, {4}},
                                {"add", kPart, {8, 9}},
                                leave(10)},
                               {sum()}));
  EXPECT_EQ(got.at(0), array_of([](size_t i, size_t j) {
              float all = 0;
              for (size_t k = 0; k < 8; ++k) {
                all += given(0, i, k);
              }
              return given(0, 0, j) - all;
            }));
}

// Three times: the part is one of the loop's body.
TEST(HloManualValues, OfPartsInALoop) {
  const std::string count = shape(kS32, {}), both = tuple_shape({count, kWhole});
  const auto literal = [&](int64_t value) {
    return Instruction{"constant", count, {}, bytes(8, bytes(1, count) + packed(4, {value}))};
  };
  const std::string body = computation("body", 2,
                                       {parameter(0, both),
                                        {"get-tuple-element", count, {1}},
                                        literal(1),
                                        {"add", count, {2, 3}},
                                        {"get-tuple-element", kWhole, {1}, number(13, 1)},
                                        call_of("Sharding", kWhole, 5, kColumns),
                                        enter(6),
                                        {"all-reduce", kPart, {7}, kOverAll},
                                        leave(8),
                                        {"tuple", both, {4, 9}}});
  const std::string condition =
      computation("condition", 3,
                  {parameter(0, both),
                   {"get-tuple-element", count, {1}},
                   literal(3),
                   {"compare", shape(kPred, {}), {2, 3}, bytes(63, "LT")}});
  const auto got = run(program({sharded(parameter(0, kWhole), kRows),
                                literal(0),
                                {"tuple", both, {2, 1}},
                                {"while", both, {3}, calls({2, 3})},
                                {"get-tuple-element", kWhole, {4}, number(13, 1)}},
                               {sum(), body, condition}));
  EXPECT_EQ(got.at(0), array_of([](size_t i, size_t) {
              float all = 0;
              for (size_t j = 0; j < 8; ++j) {
                all += given(0, i, j);
              }
              return all * 64;
            }));
}

}  // namespace
}  // namespace tpu::compiler
