// Custom calls that resize images: values by the interpreter, as PyTorch gives them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "../../tensors.hpp"
#include "entry/pipeline.hpp"
#include "hlo_bytes.hpp"
#include "import/import.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "passes/pass_manager.hpp"

namespace tpu::compiler {
namespace {

using namespace hlo_bytes;
using test::tensor;
using test::values;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::FloatEq;
using testing::HasSubstr;
using testing::Pointwise;

using Floats = std::vector<float>;

Module resize(const std::string& target, const std::string& config, const std::string& from,
              const std::string& to) {
  return import_program(
      as_bytes(module({computation(
          "main", 1,
          {parameter(0, from), {"custom-call", to, {1}, bytes(28, target) + bytes(43, config)}})})),
      "");
}

Floats run(const std::string& target, const std::string& config, const Dims& from, const Dims& to,
           const Floats& x) {
  Module m = resize(target, config, shape(kF32, from), shape(kF32, to));
  verify(m);
  run_passes(m, canonical_passes());
  return values<float>(interpret(m, {{tensor({Elem::kF32, from}, x)}})[0][0]);
}

// Along dimension 1, which has as many elements as x.
Floats line(const std::string& target, const std::string& config, const Floats& x, int64_t to) {
  return run(target, config, {1, static_cast<int64_t>(x.size()), 1, 1}, {1, to, 1, 1}, x);
}

constexpr const char* kPlain = "\"00\"";
constexpr const char* kHalf = "\"01\"";
constexpr const char* kAlign = "\"10\"";

TEST(Resize, Nearest) {
  EXPECT_THAT(line("ResizeNearest", kPlain, {1, 2}, 6), ElementsAre(1, 1, 1, 2, 2, 2));
  EXPECT_THAT(line("ResizeNearest", kPlain, {1, 2, 3}, 5), ElementsAre(1, 1, 2, 2, 3));
  EXPECT_THAT(line("ResizeNearest", kPlain, {1, 2, 3, 4}, 2), ElementsAre(1, 3));
  EXPECT_THAT(line("ResizeNearest", kHalf, {1, 2, 3, 4}, 2), ElementsAre(2, 4));
  EXPECT_THAT(line("ResizeNearest", kAlign, {1, 2, 3}, 4), ElementsAre(1, 2, 2, 3));
}

TEST(Resize, NearestCopiesWhatIsNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_THAT(line("ResizeNearest", kPlain, {1, inf, 3}, 5), ElementsAre(1, 1, inf, inf, 3));
}

TEST(Resize, NearestGradient) {
  EXPECT_THAT(line("ResizeNearestGrad", kPlain, {1, 2, 4, 8, 16, 32}, 2), ElementsAre(7, 56));
  EXPECT_THAT(line("ResizeNearestGrad", kPlain, {1, 2, 4, 8, 16}, 3), ElementsAre(3, 12, 16));
  EXPECT_THAT(line("ResizeNearestGrad", kPlain, {5, 7}, 4), ElementsAre(5, 0, 7, 0));
}

TEST(Resize, Bilinear) {
  EXPECT_THAT(line("ResizeBilinear", kHalf, {1, 2}, 4), ElementsAre(1, 1.25, 1.75, 2));
  EXPECT_THAT(line("ResizeBilinear", kHalf, {1, 2, 3, 5}, 2), ElementsAre(1.5, 4));
  EXPECT_THAT(line("ResizeBilinear", kAlign, {1, 4}, 4), Pointwise(FloatEq(), Floats{1, 2, 3, 4}));
  EXPECT_THAT(line("ResizeBilinear", kPlain, {1, 2}, 4), ElementsAre(1, 1.5, 2, 2));
  EXPECT_THAT(line("ResizeBilinear", kAlign, {1, 4}, 1), ElementsAre(1));
}

TEST(Resize, BilinearGradient) {
  EXPECT_THAT(line("ResizeBilinearGrad", kHalf, {1, 4, 16, 64}, 2),
              ElementsAre(1 + 3 + 4, 1 + 12 + 64));
}

// Both dimensions, with images and channels around them.
TEST(Resize, BothDimensions) {
  EXPECT_THAT(run("ResizeNearest", kPlain, {2, 1, 2, 2}, {2, 2, 4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}),
              ElementsAreArray({1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4,
                                5, 6, 5, 6, 7, 8, 7, 8, 5, 6, 5, 6, 7, 8, 7, 8}));
  EXPECT_THAT(run("ResizeBilinear", kAlign, {1, 2, 2, 1}, {1, 3, 3, 1}, {0, 2, 4, 6}),
              ElementsAre(0, 1, 2, 2, 3, 4, 4, 5, 6));
}

TEST(Resize, OfOtherTypes) {
  const auto made = [](const std::string& target, int64_t type) {
    Module m = resize(target, kHalf, shape(type, {1, 2, 2, 3}), shape(type, {1, 5, 4, 3}));
    verify(m);
    return to_string(m.main->body.terminator()->operands[0]->type);
  };
  EXPECT_EQ(made("ResizeBilinear", kBf16), "bf16[1,5,4,3]");
  EXPECT_EQ(made("ResizeNearest", kS32), "i32[1,5,4,3]");
}

std::string refusal(const std::string& target, const std::string& config, const std::string& from,
                    const std::string& to) {
  try {
    resize(target, config, from, to);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Resize, BadInput) {
  const std::string four = shape(kF32, {1, 2, 2, 3});
  EXPECT_THAT(refusal("ResizeNearest", "\"2\"", four, four), HasSubstr("half_pixel_centers"));
  EXPECT_THAT(refusal("ResizeNearest", kPlain, four, shape(kF32, {1, 4, 4, 2})),
              HasSubstr("differ in dimensions 1 and 2"));
  EXPECT_THAT(refusal("ResizeNearest", kPlain, shape(kF32, {4}), shape(kF32, {8})),
              HasSubstr("rank 4"));
  EXPECT_THAT(
      refusal("ResizeBilinear", kHalf, shape(kS32, {1, 2, 2, 3}), shape(kS32, {1, 4, 4, 3})),
      HasSubstr("expected f32, bf16 or f64"));
  EXPECT_THAT(refusal("ResizeNearest", kPlain, four, shape(kF32, {1, 1 << 20, 2, 3})),
              HasSubstr("at most 16384 rows"));
}

}  // namespace
}  // namespace tpu::compiler
