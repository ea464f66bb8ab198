// Programs that need more HBM than there is, or than they may use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "board/board_loader.hpp"
#include "entry/compile.hpp"
#include "ir/error_kinds.hpp"
#include "kept_layers.hpp"

namespace tpu::compiler {
namespace {

using test::GraphBuilder;
using testing::HasSubstr;

constexpr int kLayers = 10;
constexpr int64_t kRows = 8192, kWidth = 512;  // an activation has 16 MiB

exe::ExecutableT compiled(const CompileOptions& options = {}) {
  GraphBuilder b;
  test::kept_layers(b, kLayers, kRows, kWidth);
  return compile(std::move(b.module()), spec::load_board("v3_8"), options).executable;
}

int64_t needed(const exe::ExecutableT& e) {
  return static_cast<int64_t>(e.hbm_bytes + e.image.size());
}

std::string refused(const CompileOptions& options) {
  try {
    compiled(options);
  } catch (const HbmExhausted& e) {
    return e.what();
  }
  return "";
}

TEST(Fit, ValuesAreComputedAgainWhereAProgramIsTooLarge) {
  const exe::ExecutableT whole = compiled();
  CompileOptions options;
  options.hbm_bytes = needed(whole) * 3 / 4;
  const exe::ExecutableT less = compiled(options);
  EXPECT_LE(needed(less), options.hbm_bytes);
  EXPECT_GT(less.vector_ops, whole.vector_ops);
  EXPECT_EQ(less.matmul_flops, whole.matmul_flops);
}

TEST(Fit, WhatFitsStaysAsItIs) {
  const exe::ExecutableT whole = compiled();
  CompileOptions options;
  options.hbm_bytes = needed(whole);
  EXPECT_EQ(compiled(options).image, whole.image);
  options.fit = false;
  EXPECT_EQ(compiled(options).image, whole.image);
  options.hbm_bytes -= 1;  // instructions count
  EXPECT_NE(refused(options), "");
}

TEST(Fit, IsSwitchedOffAndTheErrorSaysSo) {
  CompileOptions options;
  options.hbm_bytes = needed(compiled()) * 3 / 4;
  options.fit = false;
  const std::string text = refused(options);
  EXPECT_THAT(text, HasSubstr("it may use " + std::to_string(options.hbm_bytes) + " bytes"));
  options.fit = true;
  EXPECT_THAT(text,
              HasSubstr("`tpuc --fit auto` (TPUBOARD_FIT=auto) computes values again in "
                        "place of keeping them: " +
                        std::to_string(needed(compiled(options))) + " bytes then, which fits"));
}

TEST(Fit, SwitchedOffSaysWhatWouldStillBeTooMuch) {
  CompileOptions options;
  options.hbm_bytes = needed(compiled()) / 4;
  options.fit = false;
  const std::string text = refused(options);
  options.fit = true;
  const std::string fitted = refused(options);
  std::smatch least;
  ASSERT_TRUE(std::regex_search(fitted, least, std::regex("needs at least ([0-9]+) bytes")));
  EXPECT_THAT(text, HasSubstr(": at least " + least[1].str() + " bytes then, still too much"));
}

// All that can be made again is, and it is still too large.
TEST(Fit, ErrorsSayWhatIsAliveAndWhatHelps) {
  CompileOptions options;
  options.hbm_bytes = needed(compiled()) / 4;
  const std::string text = refused(options);
  EXPECT_THAT(text, HasSubstr(" x 16777216 bytes: f32[8192,512] of dot_general at test.py:"));
  EXPECT_THAT(text, HasSubstr("without values that can be computed again"));
  EXPECT_THAT(text, HasSubstr("the batch cut over 8 cores: about "));
}

TEST(Fit, MoreThanACoreHasIsRejected) {
  CompileOptions options;
  options.hbm_bytes = (spec::load_board("v3_8").hbm.gib_per_core << 30) + 1;
  try {
    compiled(options);
    FAIL() << "compiled for more HBM than a core has";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("expected at most 17179869184, which a core of board v3_8 has"));
  }
}

// An array that travels beside kernels has memory for longer than one that the core waits for.
TEST(Fit, TransfersThatTheCoreWaitsForNeedLess) {
  const auto compiled_offload = [](const CompileOptions& options) {
    GraphBuilder b;
    const Type type{Elem::kF32, {kRows, kWidth}};
    Value* x = b.arg(type);
    const HostAttrs attrs{1, -1, type, true, false};
    Value* away = b.op(Kind::kTanh, {x}, type);
    b.region().append(Kind::kSend, {away}, {}, attrs, unknown_loc());
    Value* y = b.op(Kind::kTanh, {away}, type);
    DotAttrs dot;
    dot.lhs_contract = {1};
    dot.rhs_contract = {0};
    for (int layer = 0; layer < 6; ++layer) {
      y = b.op(Kind::kDotGeneral, {y, b.arg({Elem::kF32, {kWidth, kWidth}})}, type, dot);
    }
    Value* back = b.region().append(Kind::kRecv, {}, {type}, attrs, unknown_loc())->result();
    b.done({b.op(Kind::kAdd, {y, back}, type)});
    return compile(std::move(b.module()), spec::load_board("v3_8"), options).executable;
  };
  const exe::ExecutableT beside = compiled_offload({});
  CompileOptions options;
  options.host_beside = false;
  const exe::ExecutableT waiting = compiled_offload(options);
  EXPECT_EQ(beside.host_calls.size(), 4u);
  EXPECT_EQ(waiting.host_calls.size(), 2u);
  ASSERT_LT(needed(waiting), needed(beside));
  options.host_beside = true;
  options.hbm_bytes = needed(waiting);
  EXPECT_EQ(compiled_offload(options).image, waiting.image);
}

}  // namespace
}  // namespace tpu::compiler
