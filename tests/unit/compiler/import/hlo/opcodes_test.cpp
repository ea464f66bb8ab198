// Every opcode of HLO: an example of each is imported, or refused by its name.
#include "import/hlo/opcodes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "hlo_bytes.hpp"
#include "import/import.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler {
namespace {

using namespace hlo_bytes;
using testing::HasSubstr;

// XLA's list (xla/hlo/ir/hlo_opcode.h), without those of the table under test.
constexpr std::string_view kAll =
    "abs acos acosh add add-dependency after-all all-gather all-gather-done all-gather-start "
    "all-reduce all-reduce-done all-reduce-start all-to-all and asin asinh async-done async-start "
    "async-update atan atan2 atanh batch-norm-grad batch-norm-inference batch-norm-training "
    "bitcast "
    "bitcast-convert broadcast call cbrt ceil cholesky clamp collective-broadcast "
    "collective-permute collective-permute-done collective-permute-start collective-reduce compare "
    "complex concatenate conditional constant convert convolution copy copy-done copy-start cosh "
    "cosine count-leading-zeros custom-call divide domain dot dynamic-reshape dynamic-slice "
    "dynamic-update-slice erf exponential exponential-minus-one fft floor fusion gather "
    "get-dimension-size get-tuple-element imag infeed iota is-finite log log-plus-one logistic map "
    "maximum minimum mulhi multiply negate not opt-barrier or outfeed pad parameter partition-id "
    "popcnt power ragged-all-to-all ragged-dot real recv recv-done reduce reduce-precision "
    "reduce-scatter reduce-window remainder replica-id reshape reverse rng rng-bit-generator "
    "rng-get-and-update-state round-nearest-afz round-nearest-even rsqrt scaled-dot scan scatter "
    "select select-and-scatter send send-done set-dimension-size shift-left shift-right-arithmetic "
    "shift-right-logical shuffle sign sine sinh slice sort sqrt stochastic-convert subtract tan "
    "tanh topk transpose triangular-solve tuple while xor";

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> all;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    all.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

const std::string kF4 = shape(kF32, {4}), kF44 = shape(kF32, {4, 4}), kU4 = shape(kU32, {4}),
                  kS4 = shape(kS32, {4}), kC4 = shape(kC64, {4}), kP4 = shape(kPred, {4}),
                  kF = shape(kF32, {}), kS = shape(kS32, {}), kP = shape(kPred, {}),
                  kU = shape(kU32, {}), kTok = shape(kToken, {});

// Computations with the ids 1 .. 5, which examples call.
std::vector<std::string> library() {
  return {
      computation("sum", 1, {parameter(0, kF), parameter(1, kF), {"add", kF, {1, 2}}}),
      computation("less", 2,
                  {parameter(0, kF), parameter(1, kF), {"compare", kP, {1, 2}, bytes(63, "LT")}}),
      computation("twice", 3, {parameter(0, kF4), {"add", kF4, {1, 1}}}),
      computation(
          "below", 4,
          {parameter(0, kF4),
           {"slice", shape(kF32, {1}), {1}, bytes(17, number(1, 0) + number(2, 1) + number(3, 1))},
           {"reshape", kF, {2}},
           {"constant", kF, {}, bytes(8, bytes(1, kF) + bytes(8, std::string(4, '\0')))},
           {"compare", kP, {3, 4}, bytes(63, "LT")}}),
      computation("one", 5, {parameter(0, kF), {"add", kF, {1, 1}}})};
}

using Program = std::vector<Instruction>;

std::string zero(const std::string& type) {
  return bytes(8, bytes(1, type) + (type == kF ? bytes(8, std::string(4, '\0')) : packed(4, {0})));
}

std::string window(int64_t size) {
  return bytes(15, bytes(1, number(1, size) + number(2, 1) + number(5, 1) + number(6, 1)));
}

const std::string kTwo = bytes(49, packed(1, {0, 1}));  // a group of two replicas

// Examples by opcode; one that is in none of the lists below is missing.
std::map<std::string, Program> examples() {
  std::map<std::string, Program> all;
  const auto unary = [&](std::string_view names, const std::string& from, const std::string& to) {
    for (const std::string& name : words(names)) {
      all[name] = {parameter(0, from), {name, to, {1}}};
    }
  };
  const auto binary = [&](std::string_view names, const std::string& type) {
    for (const std::string& name : words(names)) {
      all[name] = {parameter(0, type), parameter(1, type), {name, type, {1, 2}}};
    }
  };
  unary(
      "abs acos acosh asin asinh atan atanh cbrt ceil copy cosh cosine domain erf exponential "
      "exponential-minus-one floor log log-plus-one logistic negate opt-barrier "
      "round-nearest-afz round-nearest-even rsqrt sign sine sinh sqrt tan tanh",
      kF4, kF4);
  unary("count-leading-zeros not popcnt", kU4, kU4);
  unary("real imag", kC4, kF4);
  unary("is-finite", kF4, kP4);
  unary("convert", kF4, kS4);
  unary("bitcast-convert", kF4, kU4);
  unary("reshape", kF4, shape(kF32, {2, 2}));
  unary("bitcast", kF4, shape(kU32, {2, 2}));
  binary("add atan2 divide maximum minimum multiply power remainder subtract", kF4);
  binary("and or xor shift-left shift-right-arithmetic shift-right-logical mulhi", kU4);
  all["complex"] = {parameter(0, kF4), parameter(1, kF4), {"complex", kC4, {1, 2}}};
  all["compare"] = {
      parameter(0, kF4), parameter(1, kF4), {"compare", kP4, {1, 2}, bytes(63, "GE")}};
  all["clamp"] = {parameter(0, kF4), {"clamp", kF4, {1, 1, 1}}};
  all["select"] = {parameter(0, kP4), parameter(1, kF4), {"select", kF4, {1, 2, 2}}};
  all["parameter"] = {parameter(0, kF4)};
  all["constant"] = {{"constant", kS, {}, zero(kS)}};
  all["iota"] = {{"iota", kF4, {}, packed(14, {0})}};
  all["tuple"] = {parameter(0, kF4), {"tuple", tuple_shape({kF4, kF4}), {1, 1}}};
  all["get-tuple-element"] = {parameter(0, tuple_shape({kF4})),
                              {"get-tuple-element", kF4, {1}, number(13, 0)}};
  all["broadcast"] = {parameter(0, kF4), {"broadcast", kF44, {1}, packed(14, {1})}};
  all["transpose"] = {parameter(0, kF44), {"transpose", kF44, {1}, packed(14, {1, 0})}};
  all["reverse"] = {parameter(0, kF4), {"reverse", kF4, {1}, packed(14, {0})}};
  all["concatenate"] = {parameter(0, kF4),
                        {"concatenate", shape(kF32, {8}), {1, 1}, packed(14, {0})}};
  all["slice"] = {
      parameter(0, kF4),
      {"slice", shape(kF32, {2}), {1}, bytes(17, number(1, 0) + number(2, 4) + number(3, 2))}};
  all["pad"] = {
      parameter(0, kF4),
      {"constant", kF, {}, zero(kF)},
      {"pad", shape(kF32, {6}), {1, 2}, bytes(21, bytes(1, number(1, 1) + number(2, 1)))}};
  all["dynamic-slice"] = {parameter(0, kF4),
                          parameter(1, kS),
                          {"dynamic-slice", shape(kF32, {2}), {1, 2}, packed(20, {2})}};
  all["dynamic-update-slice"] = {parameter(0, kF4),
                                 parameter(1, kF4),
                                 parameter(2, kS),
                                 {"dynamic-update-slice", kF4, {1, 2, 3}}};
  all["gather"] = {parameter(0, kF44),
                   parameter(1, shape(kS32, {3, 1})),
                   {"gather",
                    shape(kF32, {3, 4}),
                    {1, 2},
                    bytes(33, packed(1, {1}) + packed(2, {0}) + packed(3, {0}) + number(4, 1)) +
                        packed(34, {1, 4})}};
  all["scatter"] = {
      parameter(0, kF44),
      parameter(1, shape(kS32, {3, 1})),
      parameter(2, shape(kF32, {3, 4})),
      {"scatter",
       kF44,
       {1, 2, 3},
       bytes(48, packed(1, {1}) + packed(2, {0}) + packed(3, {0}) + number(4, 1)) + calls({1})}};
  all["get-dimension-size"] = {parameter(0, kF4), {"get-dimension-size", kS, {1}, packed(14, {0})}};
  all["set-dimension-size"] = {
      parameter(0, kF4), parameter(1, kS), {"set-dimension-size", kF4, {1, 2}, packed(14, {0})}};
  all["reduce-precision"] = {parameter(0, kF4),
                             {"reduce-precision", kF4, {1}, number(18, 8) + number(19, 7)}};
  all["dot"] = {parameter(0, kF44),
                {"dot", kF44, {1, 1}, bytes(30, packed(1, {1}) + packed(2, {0}))}};
  all["convolution"] = {
      parameter(0, shape(kF32, {1, 4, 1})),
      parameter(1, shape(kF32, {2, 1, 1})),
      {"convolution",
       shape(kF32, {1, 3, 1}),
       {1, 2},
       window(2) +
           bytes(16, number(7, 0) + number(8, 2) + packed(11, {1}) + number(3, 1) + number(4, 2) +
                         packed(6, {0}) + number(9, 0) + number(10, 2) + packed(12, {1}))}};
  all["fft"] = {parameter(0, kC4), {"fft", kC4, {1}, packed(32, {4})}};
  all["cholesky"] = {parameter(0, kF44), {"cholesky", kF44, {1}, bytes(62, number(1, 1))}};
  all["triangular-solve"] = {
      parameter(0, kF44),
      {"triangular-solve", kF44, {1, 1}, bytes(59, number(1, 1) + number(2, 1) + number(4, 1))}};
  const std::string epsilon =
      std::string("\xc5\x01", 2) + std::string("\x00\x00\x80\x3f", 4);  // field 24
  const std::string norm = tuple_shape({kF44, kF4, kF4});
  all["batch-norm-training"] = {parameter(0, kF44),
                                parameter(1, kF4),
                                {"batch-norm-training", norm, {1, 2, 2}, epsilon + number(25, 1)}};
  all["batch-norm-inference"] = {
      parameter(0, kF44),
      parameter(1, kF4),
      {"batch-norm-inference", kF44, {1, 2, 2, 2, 2}, epsilon + number(25, 1)}};
  all["batch-norm-grad"] = {parameter(0, kF44),
                            parameter(1, kF4),
                            {"batch-norm-grad", norm, {1, 2, 2, 2, 1}, epsilon + number(25, 1)}};
  all["rng"] = {{"constant", kF, {}, zero(kF)}, {"rng", kF4, {1, 1}, number(23, 1)}};
  all["rng-bit-generator"] = {
      parameter(0, shape(kU64, {2})),
      {"rng-bit-generator", tuple_shape({shape(kU64, {2}), kU4}), {1}, number(70, 1)}};
  all["map"] = {parameter(0, kF4), {"map", kF4, {1}, packed(14, {0}) + calls({5})}};
  all["reduce"] = {parameter(0, kF44),
                   {"constant", kF, {}, zero(kF)},
                   {"reduce", kF4, {1, 2}, packed(14, {1}) + calls({1})}};
  all["reduce-window"] = {parameter(0, kF4),
                          {"constant", kF, {}, zero(kF)},
                          {"reduce-window", shape(kF32, {3}), {1, 2}, window(2) + calls({1})}};
  all["select-and-scatter"] = {parameter(0, kF4),
                               parameter(1, shape(kF32, {3})),
                               {"constant", kF, {}, zero(kF)},
                               {"select-and-scatter", kF4, {1, 2, 3}, window(2) + calls({2, 1})}};
  all["sort"] = {parameter(0, kF4),
                 {"sort", kF4, {1}, packed(14, {0}) + number(60, 1) + calls({2})}};
  all["topk"] = {parameter(0, kF4),
                 {"topk",
                  tuple_shape({shape(kF32, {2}), shape(kS32, {2})}),
                  {1},
                  number(81, 2) + number(85, 1)}};
  all["while"] = {parameter(0, kF4), {"while", kF4, {1}, calls({3, 4})}};
  all["conditional"] = {
      parameter(0, kP), parameter(1, kF4), {"conditional", kF4, {1, 2, 2}, calls({3, 3})}};
  all["call"] = {parameter(0, kF4), {"call", kF4, {1}, calls({3})}};
  all["fusion"] = {parameter(0, kF4), {"fusion", kF4, {1}, bytes(11, "kLoop") + calls({3})}};
  all["custom-call"] = {parameter(0, kF4),
                        {"custom-call", kF4, {1}, bytes(28, "LayoutConstraint")}};
  all["after-all"] = {{"after-all", kTok}, {"iota", kF4, {}, packed(14, {0})}};
  all["add-dependency"] = {parameter(0, kF4), {"after-all", kTok}, {"add-dependency", kF4, {1, 2}}};
  const std::string async = tuple_shape({tuple_shape({kF4}), kF4, kU});
  all["async-start"] = all["async-done"] = {
      parameter(0, kF4), {"async-start", async, {1}, calls({3})}, {"async-done", kF4, {2}}};
  all["async-update"] = {parameter(0, kF4),
                         {"async-start", async, {1}, calls({3})},
                         {"async-update", async, {2}},
                         {"async-done", kF4, {3}}};
  all["copy-start"] = all["copy-done"] = {
      parameter(0, kF4), {"copy-start", tuple_shape({kF4, kF4, kU}), {1}}, {"copy-done", kF4, {2}}};
  const std::string wide = shape(kF32, {8}), half = shape(kF32, {2});
  all["all-reduce"] = {parameter(0, kF4), {"all-reduce", kF4, {1}, kTwo + calls({1})}};
  all["all-reduce-start"] =
      all["all-reduce-done"] = {parameter(0, kF4),
                                {"all-reduce-start", kF4, {1}, kTwo + calls({1})},
                                {"all-reduce-done", kF4, {2}}};
  all["all-gather"] = {parameter(0, kF4), {"all-gather", wide, {1}, kTwo + packed(14, {0})}};
  all["all-gather-start"] = all["all-gather-done"] = {
      parameter(0, kF4),
      {"all-gather-start", tuple_shape({kF4, wide}), {1}, kTwo + packed(14, {0})},
      {"all-gather-done", wide, {2}}};
  all["reduce-scatter"] = {parameter(0, kF4),
                           {"reduce-scatter", half, {1}, kTwo + packed(14, {0}) + calls({1})}};
  all["all-to-all"] = {parameter(0, kF4), {"all-to-all", kF4, {1}, kTwo + packed(14, {0})}};
  const std::string pairs = bytes(52, number(1, 0) + number(2, 1));
  all["collective-permute"] = {parameter(0, kF4), {"collective-permute", kF4, {1}, pairs}};
  all["collective-permute-start"] = all["collective-permute-done"] = {
      parameter(0, kF4),
      {"collective-permute-start", tuple_shape({kF4, kF4, kU, kU}), {1}, pairs},
      {"collective-permute-done", kF4, {2}}};
  all["collective-broadcast"] = {parameter(0, kF4), {"collective-broadcast", kF4, {1}, kTwo}};
  all["partition-id"] = {{"partition-id", kU}};
  all["replica-id"] = {{"replica-id", kU}};
  const std::string host = number(26, 1) + number(47, 1);
  all["send"] = all["send-done"] = {parameter(0, kF4),
                                    {"after-all", kTok},
                                    {"send", tuple_shape({kF4, kU, kTok}), {1, 2}, host},
                                    {"send-done", kTok, {3}, host},
                                    {"tuple", tuple_shape({}), {}}};
  all["recv"] = all["recv-done"] = {{"after-all", kTok},
                                    {"recv", tuple_shape({kF4, kU, kTok}), {1}, host},
                                    {"recv-done", tuple_shape({kF4, kTok}), {2}, host},
                                    {"get-tuple-element", kF4, {3}, number(13, 0)}};
  // Refused.
  all["infeed"] = {{"after-all", kTok}, {"infeed", tuple_shape({kF4, kTok}), {1}}};
  all["outfeed"] = {parameter(0, kF4), {"after-all", kTok}, {"outfeed", kTok, {1, 2}}};
  all["collective-reduce"] = {parameter(0, kF4),
                              {"collective-reduce", kF4, {1}, kTwo + calls({1})}};
  all["dynamic-reshape"] = {parameter(0, kF4), parameter(1, kS), {"dynamic-reshape", kF4, {1, 2}}};
  all["ragged-all-to-all"] = {parameter(0, kF4), {"ragged-all-to-all", kF4, {1, 1, 1, 1, 1, 1}}};
  all["ragged-dot"] = {parameter(0, kF44), {"ragged-dot", kF44, {1, 1, 1}}};
  all["rng-get-and-update-state"] = {{"rng-get-and-update-state", shape(kU64, {1})}};
  all["scaled-dot"] = {parameter(0, kF44), {"scaled-dot", kF44, {1, 1, 1, 1}}};
  all["scan"] = {parameter(0, kF4), {"scan", kF4, {1}, calls({3})}};
  all["shuffle"] = {parameter(0, kF4), {"shuffle", kF4, {1}}};
  all["stochastic-convert"] = {
      parameter(0, kF4), parameter(1, kU4), {"stochastic-convert", kS4, {1, 2}}};
  return all;
}

const std::set<std::string> kRefused = {
    "collective-reduce", "dynamic-reshape",          "infeed",     "outfeed", "ragged-all-to-all",
    "ragged-dot",        "rng-get-and-update-state", "scaled-dot", "scan",    "shuffle",
    "stochastic-convert"};

class EveryOpcode : public testing::TestWithParam<std::string> {};

TEST_P(EveryOpcode, IsImportedOrRefusedByItsName) {
  const auto all = examples();
  const auto example = all.find(GetParam());
  ASSERT_NE(example, all.end()) << "this opcode has no example";
  ASSERT_TRUE(std::any_of(example->second.begin(), example->second.end(),
                          [](const Instruction& i) { return i.opcode == GetParam(); }));
  std::vector<std::string> computations = library();
  computations.push_back(computation("main", 6, example->second));
  try {
    const Module m = import_program(as_bytes(module(computations)), "", {.replicas = 2});
    EXPECT_FALSE(kRefused.contains(GetParam())) << print(m);
  } catch (const Error& e) {
    EXPECT_TRUE(kRefused.contains(GetParam())) << e.what();
    EXPECT_THAT(e.what(), HasSubstr("." + GetParam() + ":"));
    EXPECT_THAT(e.what(), HasSubstr("not supported"));
  }
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Hlo, EveryOpcode, testing::ValuesIn(words(kAll)), test_name);

TEST(HloOpcodes, AreThoseOfXla) {
  std::vector<std::string> own;
  for (const hlo::Opcode& o : hlo::opcodes()) {
    own.emplace_back(o.name);
  }
  EXPECT_EQ(own, words(kAll));
}

TEST(HloOpcodes, OneThatIsNotKnownIsNamed) {
  const Program odd = {parameter(0, kF4), {"frobnicate", kF4, {1}}};
  try {
    import_program(as_bytes(module({computation("main", 1, odd)})), "");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("hlo.frobnicate: this instruction of HLO is not supported"));
  }
}

}  // namespace
}  // namespace tpu::compiler
