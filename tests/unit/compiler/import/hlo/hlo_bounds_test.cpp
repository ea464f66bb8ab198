// Small HLO modules that ask for much memory or time, and how they are refused.
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

std::string error_of(const std::string& bytes, const ImportOptions& options = {}) {
  try {
    import_program(as_bytes(bytes), "", options);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// A tuple of 2^n arrays.
std::string wide_tuple(int n) {
  std::string type = kVector;
  for (int i = 0; i < n; ++i) {
    type = tuple_shape({type, type});
  }
  return type;
}

TEST(HloBounds, OperandsCountAsOftenAsTheyAreNamed) {
  const std::string program = module({computation(
      "main", 1, {parameter(0, wide_tuple(14)), {"after-all", shape(kToken, {}), Ints(1000, 1)}})});
  EXPECT_LT(program.size(), 1'000'000u);
  EXPECT_THAT(error_of(program), HasSubstr("more than 16000000 arrays in tuples"));
}

TEST(HloBounds, ComputationsCountOnceForEachArray) {
  std::vector<Instruction> sum = {parameter(0, kScalar), parameter(1, kScalar)};
  for (int64_t i = 0; i < 200; ++i) {
    sum.push_back({"add", kScalar, {i + 1, 2}});
  }
  const std::string program = module(
      {computation("sum", 1, sum), computation("main", 2,
                                               {parameter(0, kVector),
                                                {"reduce-scatter", wide_tuple(14), Ints(1 << 14, 1),
                                                 calls({1}) + packed(14, {0})}})});
  EXPECT_THAT(error_of(program), HasSubstr("more than 2000000 instructions"));
}

TEST(HloBounds, ConstantsCountAsOftenAsTheyAreWrittenOut) {
  constexpr int64_t kCount = 1 << 18;
  const std::string large = shape(kF32, {kCount});
  const std::string literal =
      bytes(8, bytes(1, large) + bytes(8, std::string(kCount * sizeof(float), '\0')));
  std::vector<std::string> all = {computation("f1", 1, {{"constant", large, {}, literal}})};
  for (int64_t n = 2; n <= 16; ++n) {
    all.push_back(computation(
        "f" + std::to_string(n), n,
        {{"fusion", large, {}, calls({n - 1})}, {"fusion", large, {}, calls({n - 1})}}));
  }
  EXPECT_THAT(error_of(module(all)), HasSubstr("bytes of constants"));
}

TEST(HloBounds, DevicesOfGroupsAreCounted) {
  const std::string sum = computation(
      "sum", 1, {parameter(0, kScalar), parameter(1, kScalar), {"add", kScalar, {1, 2}}});
  const std::string groups = bytes(92, number(1, 1) + number(2, 4096) + packed(3, {4096}));
  std::vector<Instruction> many = {parameter(0, kVector)};
  for (int64_t i = 1; i <= 8000; ++i) {
    many.push_back({"all-reduce", kVector, {i}, groups + calls({1})});
  }
  EXPECT_THAT(error_of(module({sum, computation("main", 2, many)})),
              HasSubstr("more than 32000000 devices in the groups of collectives"));
  const std::string more = bytes(92, number(1, 1) + number(2, 8192) + packed(3, {8192}));
  EXPECT_THAT(
      error_of(module({sum, computation("main", 2,
                                        {parameter(0, kVector),
                                         {"all-reduce", kVector, {1}, more + calls({1})}})})),
      HasSubstr("a list of devices with impossible dimensions"));
}

// With quadratic searches each of these takes minutes.
TEST(HloBounds, ListsAreReadInLinearTime) {
  constexpr int64_t kRank = 300'000;
  Ints turned;
  for (int64_t d = kRank; d-- > 0;) {
    turned.push_back(d);
  }
  const std::string thin = shape(kF32, Ints(kRank, 1), turned);
  turned.back() = 1;
  const std::string wrong = shape(kF32, Ints(kRank, 1), turned);
  EXPECT_NO_THROW(error_of(module({computation("main", 1, {parameter(0, thin)})})));
  EXPECT_THAT(error_of(module({computation("main", 1, {parameter(0, wrong)})})),
              HasSubstr("does not name each of the 300000 dimensions once"));
  const std::string sharding =
      number(1, 3) + packed(3, {1}) + packed(9, Ints(kRank, 1)) + packed(10, turned);
  Instruction array = parameter(0, kVector);
  array.fields += bytes(40, sharding);
  EXPECT_THAT(error_of(module({computation("main", 1, {array})})),
              HasSubstr("a list of devices with impossible dimensions"));
  std::string axes;
  for (int64_t i = 0; i < 1000; ++i) {
    axes += bytes(1, number(2, 1));
  }
  array = parameter(0, kVector);
  array.fields += bytes(40, bytes(14, bytes(2, axes) + bytes(3, bytes(1, number(1, 0)))));
  EXPECT_THAT(error_of(module({computation("main", 1, {array})})),
              HasSubstr("a mesh of 1000 axes"));
}

TEST(HloBounds, ComputationsOfOneNameAreNumberedInLinearTime) {
  constexpr int64_t kCount = 20'000;
  std::vector<std::string> all;
  std::vector<Instruction> main = {parameter(0, kScalar)};
  for (int64_t i = 1; i <= kCount; ++i) {
    all.push_back(computation("same", i, {parameter(0, kScalar), {"tanh", kScalar, {1}}}));
    main.push_back({"call", kScalar, {i}, calls({i})});
  }
  all.push_back(computation("main", kCount + 1, main));
  const Module m = import_program(as_bytes(module(all)), "", {});
  EXPECT_EQ(m.functions.size(), static_cast<size_t>(kCount));
}

}  // namespace
}  // namespace tpu::compiler
