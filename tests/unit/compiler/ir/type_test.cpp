// Types, constants, locations and errors of the graph.
#include "ir/type.hpp"

#include <gtest/gtest.h>

#include "ir/error.hpp"

namespace tpu::compiler {
namespace {

TEST(Type, CountsElementsAndBytes) {
  EXPECT_EQ((Type{Elem::kBf16, {3, 5}}.bytes()), 30);
  EXPECT_EQ((Type{Elem::kI1, {}}.bytes()), 1);
  EXPECT_EQ((Type{Elem::kF32, {4, 0}}.count()), 0);
  EXPECT_EQ(to_string(Type{Elem::kU32, {2, 3}}), "ui32[2,3]");
  EXPECT_EQ(row_major_strides({2, 3, 4}), (Dims{12, 4, 1}));
}

TEST(Dense, SplatsRoundToBf16Evenly) {
  // 1 + 2^-8 lies halfway between two bf16 numbers and goes to the even one.
  EXPECT_EQ(make_splat({Elem::kBf16, {4}}, 1.00390625).as_double(3), 1.0);
  EXPECT_EQ(make_splat({Elem::kBf16, {4}}, 1.01171875).as_double(0), 1.015625);
}

TEST(Dense, ReadsEveryIntegerType) {
  EXPECT_EQ(make_splat_int({Elem::kI8, {2}}, -3).as_int(1), -3);
  EXPECT_EQ(make_splat_int({Elem::kU8, {2}}, -3).as_int(1), 253);
  EXPECT_EQ(make_splat_int({Elem::kU32, {}}, -1).as_int(0), 4294967295);
  EXPECT_EQ(make_splat_int({Elem::kI1, {}}, 7).as_int(0), 1);
}

TEST(Dense, ExpandsSplats) {
  const Dense d = make_splat_int({Elem::kI32, {3}}, 5);
  EXPECT_EQ(d.expanded(), make_dense_of<int32_t>({Elem::kI32, {3}}, {5, 5, 5}).expanded());
}

TEST(Dense, RefusesDataOfTheWrongSize) {
  EXPECT_THROW(make_dense({Elem::kI32, {3}}, std::vector<std::byte>(8)), Error);
}

TEST(Error, NamesPlaceOpAndPath) {
  auto loc = std::make_shared<Loc>();
  loc->path = "jit(f)/add";
  loc->frames = {{"f.py", 3, 7, "f"}, {"main.py", 9, 1, ""}};
  const Error e("no", "stablehlo.add", loc);
  EXPECT_STREQ(e.what(), "f.py:3:7: stablehlo.add: no [jit(f)/add]");
}

TEST(Loc, NestingJoinsPathsAndFillsMissingFrames) {
  auto outer = std::make_shared<Loc>(Loc{"jit(f)", {{"f.py", 1, 2, ""}}});
  auto inner = std::make_shared<Loc>(Loc{"add", {}});
  const LocRef both = nested_loc(outer, inner);
  EXPECT_EQ(to_string(*both), "f.py:1:2 (jit(f)/add)");
  EXPECT_EQ(nested_loc(nullptr, inner), LocRef(inner));
}

TEST(Type, CountsBeyondWhatBytesCanSayAreErrors) {
  const int64_t large = (int64_t{1} << 31) - 1;
  EXPECT_THROW((Type{Elem::kF32, {large, large}}.count()), Error);
  EXPECT_THROW((Type{Elem::kF32, {large, large, large}}.count()), Error);
  EXPECT_EQ((Type{Elem::kF32, {large, large, large, 0}}.count()), 0);
  EXPECT_EQ((Type{Elem::kI8, {large, 4}}.count()), 4 * large);
}

}  // namespace
}  // namespace tpu::compiler
