// Errors of the transcendental functions against double precision (whose own error is below 2^-28
// ulp of f32), special values, and equality of the SIMD code with the reference in integers. The
// bounds are those of docs/numerics.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "arith/flush_mode.hpp"
#include "arith/transcendental_scalar.hpp"
#include "tpu/spec/isa.hpp"
#include "vpu/vpu_ops.hpp"
#include "vpu/vpu_simd.hpp"
#include "vpu_lane_code.hpp"

namespace tpu::model {
namespace {

using spec::VpuOp;

constexpr int kBlock = 1024;
constexpr double kMinNormal = 1.17549435082228750797e-38;
constexpr double kWrong = 1e30;

struct alignas(64) Block {
  std::array<uint32_t, kBlock> x{}, y{}, out{};
};

void evaluate(VpuOp op, Block& block, const VpuOpTable& table) {
  VpuOpArgs args{};
  args.rd = block.out.data();
  args.rs1 = block.x.data();
  args.rs2 = block.y.data();
  args.dense_rows = 1;
  args.dense_lanes = kBlock;
  const spec::ScopedFlushMode flush;
  table.functions[static_cast<size_t>(op)](args);
}

double as_double(uint32_t bits) {
  return static_cast<double>(
      spec::f32_from_bits(spec::f32_is_zero(bits) ? bits & spec::kF32SignMask : bits));
}

double truth(VpuOp op, double x, double y) {
  switch (op) {
    case VpuOp::kSqrtF:
      return std::sqrt(x);
    case VpuOp::kRsqrtF:
      return 1 / std::sqrt(x);
    case VpuOp::kExpF:
      return std::exp(x);
    case VpuOp::kLogF:
      return std::log(x);
    case VpuOp::kTanhF:
      return std::tanh(x);
    case VpuOp::kLogisticF:
      return x > 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
    case VpuOp::kExpm1F:
      return std::expm1(x);
    case VpuOp::kLog1pF:
      return std::log1p(x);
    case VpuOp::kSinF:
      return std::sin(x);
    case VpuOp::kCosF:
      return std::cos(x);
    case VpuOp::kTanF:
      return std::tan(x);
    case VpuOp::kAtan2F:
      return std::atan2(x, y);
    case VpuOp::kCbrtF:
      return std::cbrt(x);
    case VpuOp::kErfF:
      return std::erf(x);
    default:
      return static_cast<double>(
          std::pow(static_cast<long double>(x), static_cast<long double>(y)));
  }
}

// Distance in units of the last place of the true value's binade. Below the smallest normal number
// zero and (rounded up) that number are right; at the overflow threshold infinity and the largest
// number are one unit apart.
double error_ulp(uint32_t got_bits, double expected) {
  const double got = static_cast<double>(spec::f32_from_bits(got_bits));
  if (std::isnan(expected)) {
    return got_bits == spec::kF32CanonicalNan ? 0 : kWrong;
  }
  if (std::isnan(got) || (got != 0 && std::signbit(got) != std::signbit(expected))) {
    return kWrong;
  }
  if (std::fabs(expected) < kMinNormal) {
    const bool near = std::fabs(got) == kMinNormal && std::fabs(expected) > kMinNormal * 0.999999;
    return got == 0 || near ? 0 : kWrong;
  }
  if (std::isinf(expected) || (std::isinf(got) && std::fabs(expected) >= 0x1p128)) {
    return std::isinf(got) ? 0 : kWrong;
  }
  const double limited = std::isinf(got) ? std::copysign(0x1p128, got) : got;
  const int binade = std::min(std::ilogb(expected), 127);
  return std::fabs(limited - expected) / std::ldexp(1.0, binade - 23);
}

struct Worst {
  double ulp = 0;
  uint32_t x = 0, y = 0;
};

void measure(VpuOp op, Block& block, Worst& worst) {
  evaluate(op, block, vpu_ops(vpu_best_simd()));
  for (size_t i = 0; i < kBlock; ++i) {
    const double expected = truth(op, as_double(block.x[i]), as_double(block.y[i]));
    const double error = error_ulp(block.out[i], expected);
    if (error > worst.ulp) {
      worst = {error, block.x[i], block.y[i]};
    }
  }
}

struct Bound {
  VpuOp op;
  double ulp;
};
constexpr std::array<Bound, 13> kBounds = {{{VpuOp::kSqrtF, 0.5},
                                            {VpuOp::kRsqrtF, 1.6},
                                            {VpuOp::kExpF, 1.1},
                                            {VpuOp::kLogF, 0.9},
                                            {VpuOp::kTanhF, 1.4},
                                            {VpuOp::kLogisticF, 2.5},
                                            {VpuOp::kExpm1F, 1.6},
                                            {VpuOp::kLog1pF, 1.6},
                                            {VpuOp::kSinF, 1.0},
                                            {VpuOp::kCosF, 1.0},
                                            {VpuOp::kTanF, 2.5},
                                            {VpuOp::kCbrtF, 0.6},
                                            {VpuOp::kErfF, 1.5}}};
constexpr double kPowBound = 8;
constexpr double kAtan2Bound = 2;

const char* name_of(VpuOp op) { return spec::kVpuOps[static_cast<size_t>(op) - 1].name.data(); }

// Step of the sweep; TPU_SWEEP_STEP=1 visits every float.
uint64_t sweep_step() {
  const char* text = std::getenv("TPU_SWEEP_STEP");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 997;
}

class Transcendental : public ::testing::TestWithParam<Bound> {};

TEST_P(Transcendental, ErrorStaysInBoundOverAllFloats) {
  const auto [op, bound] = GetParam();
  Worst worst;
  Block block;
  uint64_t next = 0;
  while (next < (uint64_t{1} << 32)) {
    for (uint32_t& x : block.x) {
      x = static_cast<uint32_t>(next);
      next += sweep_step();
    }
    measure(op, block, worst);
  }
  std::printf("%s: largest error %.3f ulp at %08x\n", name_of(op), worst.ulp, worst.x);
  EXPECT_LE(worst.ulp, bound) << std::hex << worst.x;
}

// Every float around the places where a function changes its method or its range ends.
TEST_P(Transcendental, ErrorStaysInBoundAtEdges) {
  const auto [op, bound] = GetParam();
  constexpr std::array<float, 36> kEdges = {
      1.0f,           2.0f,          0.5f,        0.70710678f, 1.41421356f,   0.625f,
      0.34657359f,    1.0397f,       9.0f,        10.0f,       16.635532f,    17.32868f,
      18.0f,          87.336544f,    88.72284f,   103.97f,     104.0f,        89.0f,
      1.1754944e-38f, 3.4028235e38f, 16777216.0f, 0.0001f,     5.9604645e-8f, 0.41421354f,
      0.78539816f,    1.57079633f,   3.14159265f, 4.71238898f, 6.28318531f,   65536.0f,
      102943.7f,      0.875f,        3.9192059f,  4.0f,        8.0f,          1.0e22f};
  Worst worst;
  Block block;
  for (const float edge : kEdges) {
    for (const uint32_t sign : {0u, spec::kF32SignMask}) {
      const uint32_t middle = spec::f32_bits(edge) | sign;
      for (uint32_t part = 0; part < 16; ++part) {
        for (uint32_t i = 0; i < kBlock; ++i) {
          block.x[i] = middle - 8 * kBlock + part * kBlock + i;
        }
        measure(op, block, worst);
      }
    }
  }
  EXPECT_LE(worst.ulp, bound) << std::hex << worst.x;
}

std::string bound_name(const ::testing::TestParamInfo<Bound>& param) {
  return name_of(param.param.op);
}
INSTANTIATE_TEST_SUITE_P(Vpu, Transcendental, ::testing::ValuesIn(kBounds), bound_name);

// Deterministic 32-bit numbers.
uint32_t mix(uint64_t i) {
  uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<uint32_t>(z >> 32);
}

// Half of the pairs have results over the whole exponent range, a quarter bases next to 1, the rest
// are any bits and small integer exponents.
void fill_pow(Block& block, uint64_t seed) {
  for (uint32_t i = 0; i < kBlock; ++i) {
    const uint64_t n = (seed * kBlock + i) * 2;
    const uint32_t kind = i % 8;
    uint32_t x = mix(n);
    x = kind == 1 ? 0x3f800000u - 1000000u + x % 2000000u : x;
    x = kind < 4 && kind != 1 ? x & 0x7fffffffu : x;
    uint32_t y = mix(n + 1);
    if (kind < 4) {
      const double log_x = std::log2(as_double(x)) + 1e-9;
      const double exponent = static_cast<double>(y % 2000001u) / 1000000.0 - 1;
      y = spec::f32_bits(static_cast<float>(exponent * 130 / log_x));
    } else if (kind == 4) {
      y = spec::f32_bits(static_cast<float>(static_cast<int>(y % 65u) - 32));
    }
    block.x[i] = x;
    block.y[i] = y;
  }
}

TEST(TranscendentalPow, ErrorStaysInBound) {
  Worst worst;
  Block block;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    fill_pow(block, seed);
    measure(VpuOp::kPowF, block, worst);
  }
  std::printf("pow_f: largest error %.3f ulp at %08x, %08x\n", worst.ulp, worst.x, worst.y);
  EXPECT_LE(worst.ulp, kPowBound) << std::hex << worst.x << ' ' << worst.y;
}

TEST(TranscendentalPow, SpecialValuesAreThoseOfIeee754) {
  std::vector<float> values;
  for (const float v : {0.0f, 1.0f, 2.0f, 3.0f, 0.5f, 1.5f, 1e30f, 1e-30f, 8388607.5f, 16777215.0f,
                        16777216.0f, 16777218.0f, 2147483648.0f, 3e38f, INFINITY, NAN}) {
    values.push_back(v);
    values.push_back(-v);
  }
  Block block;
  size_t count = 0;
  for (const float x : values) {
    for (const float y : values) {
      block.x[count] = spec::f32_bits(x);
      block.y[count] = spec::f32_bits(y);
      ++count;
    }
  }
  for (const test::LaneCode& code : test::lane_codes()) {
    evaluate(VpuOp::kPowF, block, code.table);
    for (size_t i = 0; i < count; ++i) {
      const double expected = std::pow(as_double(block.x[i]), as_double(block.y[i]));
      EXPECT_LE(error_ulp(block.out[i], expected), kPowBound)
          << as_double(block.x[i]) << " ^ " << as_double(block.y[i]) << " = "
          << spec::f32_from_bits(block.out[i]);
    }
  }
}

// Quotients of all sizes, a quarter of them near the places where the octant changes.
void fill_atan2(Block& block, uint64_t seed) {
  for (uint32_t i = 0; i < kBlock; ++i) {
    const uint64_t n = (seed * kBlock + i) * 2 + 77;
    block.x[i] = mix(n);
    block.y[i] = mix(n + 1);
    if (i % 4 != 0) {
      constexpr std::array<double, 4> kTurns = {0.41421356, 1.0, 2.41421356, 3.7};
      const double wide = static_cast<double>(static_cast<int>(mix(n + 2) % 2000) - 1000);
      const double factor =
          i % 4 == 1 ? kTurns[i / 4 % 4] * (1 + wide * 1e-7) : std::exp2(wide / 40);
      block.y[i] = (block.y[i] & 0x807fffffu) | (70 + mix(n + 3) % 110) << 23;
      block.x[i] = spec::f32_bits(static_cast<float>(as_double(block.y[i]) * factor));
      block.x[i] ^= mix(n + 4) & spec::kF32SignMask;
    }
  }
}

TEST(TranscendentalAtan2, ErrorStaysInBound) {
  Worst worst;
  Block block;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    fill_atan2(block, seed);
    measure(VpuOp::kAtan2F, block, worst);
  }
  std::printf("atan2_f: largest error %.3f ulp at %08x, %08x\n", worst.ulp, worst.x, worst.y);
  EXPECT_LE(worst.ulp, kAtan2Bound) << std::hex << worst.x << ' ' << worst.y;
}

TEST(TranscendentalAtan2, SpecialValuesAreThoseOfIeee754) {
  Block block;
  size_t count = 0;
  for (const float y :
       {0.0f, -0.0f, 1.0f, -1.0f, 1e-40f, 3e38f, 1.2e-38f, INFINITY, -INFINITY, NAN}) {
    for (const float x : {0.0f, -0.0f, 1.0f, -1.0f, -1e-40f, 3e38f, -3e38f, 1.2e-38f, -1.2e-38f,
                          INFINITY, -INFINITY, NAN}) {
      block.x[count] = spec::f32_bits(y);
      block.y[count] = spec::f32_bits(x);
      ++count;
    }
  }
  for (const test::LaneCode& code : test::lane_codes()) {
    evaluate(VpuOp::kAtan2F, block, code.table);
    for (size_t i = 0; i < count; ++i) {
      const double y = as_double(block.x[i]), x = as_double(block.y[i]);
      EXPECT_LE(error_ulp(block.out[i], std::atan2(y, x)), kAtan2Bound)
          << "atan2(" << y << ", " << x << ") = " << spec::f32_from_bits(block.out[i]);
    }
  }
}

// Arguments of all sizes that lie next to a multiple of pi/2: nearly all bits cancel.
TEST(TranscendentalTrigonometric, ArgumentsNextToMultiplesOfHalfPi) {
  constexpr long double kHalfPi = 1.57079632679489661923132169163975144L;
  Block block;
  Worst worst;
  for (const VpuOp op : {VpuOp::kSinF, VpuOp::kCosF, VpuOp::kTanF}) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      for (uint32_t i = 0; i < kBlock; ++i) {
        const uint64_t n = 1 + mix(seed * kBlock + i) % (1u << (1 + i % 31));
        block.x[i] = spec::f32_bits(static_cast<float>(static_cast<long double>(n) * kHalfPi));
      }
      measure(op, block, worst);
    }
    EXPECT_LE(worst.ulp, 2.5) << name_of(op) << std::hex << ' ' << worst.x;
  }
}

uint32_t reference(VpuOp op, uint32_t x, uint32_t y) {
  switch (op) {
    case VpuOp::kSqrtF:
      return spec::f32_sqrt_bits(x);
    case VpuOp::kRsqrtF:
      return spec::f32_rsqrt_bits(x);
    case VpuOp::kExpF:
      return spec::f32_exp_bits(x);
    case VpuOp::kLogF:
      return spec::f32_log_bits(x);
    case VpuOp::kTanhF:
      return spec::f32_tanh_bits(x);
    case VpuOp::kLogisticF:
      return spec::f32_logistic_bits(x);
    case VpuOp::kExpm1F:
      return spec::f32_expm1_bits(x);
    case VpuOp::kLog1pF:
      return spec::f32_log1p_bits(x);
    case VpuOp::kSinF:
      return spec::f32_sin_bits(x);
    case VpuOp::kCosF:
      return spec::f32_cos_bits(x);
    case VpuOp::kTanF:
      return spec::f32_tan_bits(x);
    case VpuOp::kAtan2F:
      return spec::f32_atan2_bits(x, y);
    case VpuOp::kCbrtF:
      return spec::f32_cbrt_bits(x);
    case VpuOp::kErfF:
      return spec::f32_erf_bits(x);
    default:
      return spec::f32_pow_bits(x, y);
  }
}

TEST(TranscendentalLaw, AllWidthsEqualTheIntegerLaw) {
  Block block;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (const VpuOp op :
         {VpuOp::kSqrtF, VpuOp::kRsqrtF, VpuOp::kExpF, VpuOp::kLogF, VpuOp::kTanhF,
          VpuOp::kLogisticF, VpuOp::kExpm1F, VpuOp::kLog1pF, VpuOp::kPowF, VpuOp::kSinF,
          VpuOp::kCosF, VpuOp::kTanF, VpuOp::kAtan2F, VpuOp::kCbrtF, VpuOp::kErfF}) {
      fill_pow(block, seed);
      for (uint32_t i = 0; op != VpuOp::kPowF && i < kBlock; ++i) {
        // Exponents from 2^-30 to 2^30 in three of four: where the functions bend.
        const uint32_t bits = mix(seed * kBlock + i + 1000000);
        const uint32_t exponent = 97 + (bits >> 8) % 60;
        block.x[i] = i % 4 == 0 ? bits : (bits & 0x807fffffu) | exponent << 23;
      }
      std::array<uint32_t, kBlock> expected{};
      for (size_t i = 0; i < kBlock; ++i) {
        expected[i] = reference(op, block.x[i], block.y[i]);
      }
      for (const test::LaneCode& code : test::lane_codes()) {
        evaluate(op, block, code.table);
        for (size_t i = 0; i < kBlock; ++i) {
          ASSERT_EQ(block.out[i], expected[i]) << name_of(op) << " on " << code.name << ' '
                                               << std::hex << block.x[i] << ' ' << block.y[i];
        }
      }
    }
  }
}

TEST(TranscendentalSpecial, ZerosInfinitiesAndNans) {
  constexpr float kInf = INFINITY;
  struct Case {
    VpuOp op;
    float x;
    float expected;
  };
  const std::array<Case, 67> cases = {
      {{VpuOp::kExpF, 0.0f, 1.0f},      {VpuOp::kExpF, -0.0f, 1.0f},
       {VpuOp::kExpF, kInf, kInf},      {VpuOp::kExpF, -kInf, 0.0f},
       {VpuOp::kExpF, 88.8f, kInf},     {VpuOp::kExpF, -88.0f, 0.0f},
       {VpuOp::kExpF, NAN, NAN},        {VpuOp::kLogF, 1.0f, 0.0f},
       {VpuOp::kLogF, 0.0f, -kInf},     {VpuOp::kLogF, -0.0f, -kInf},
       {VpuOp::kLogF, 1e-40f, -kInf},   {VpuOp::kLogF, -1e-40f, -kInf},
       {VpuOp::kLogF, -1.0f, NAN},      {VpuOp::kLogF, kInf, kInf},
       {VpuOp::kLogF, -kInf, NAN},      {VpuOp::kTanhF, 0.0f, 0.0f},
       {VpuOp::kTanhF, -0.0f, -0.0f},   {VpuOp::kTanhF, -1e-40f, -0.0f},
       {VpuOp::kTanhF, kInf, 1.0f},     {VpuOp::kTanhF, -kInf, -1.0f},
       {VpuOp::kTanhF, NAN, NAN},       {VpuOp::kLogisticF, 0.0f, 0.5f},
       {VpuOp::kLogisticF, kInf, 1.0f}, {VpuOp::kLogisticF, -kInf, 0.0f},
       {VpuOp::kLogisticF, -NAN, NAN},  {VpuOp::kExpm1F, 0.0f, 0.0f},
       {VpuOp::kExpm1F, -0.0f, -0.0f},  {VpuOp::kExpm1F, -1e-40f, -0.0f},
       {VpuOp::kExpm1F, kInf, kInf},    {VpuOp::kExpm1F, -kInf, -1.0f},
       {VpuOp::kExpm1F, NAN, NAN},      {VpuOp::kLog1pF, 0.0f, 0.0f},
       {VpuOp::kLog1pF, -0.0f, -0.0f},  {VpuOp::kLog1pF, -1.0f, -kInf},
       {VpuOp::kLog1pF, -1.5f, NAN},    {VpuOp::kLog1pF, kInf, kInf},
       {VpuOp::kLog1pF, -kInf, NAN},    {VpuOp::kRsqrtF, 0.0f, kInf},
       {VpuOp::kRsqrtF, -0.0f, -kInf},  {VpuOp::kRsqrtF, -1.0f, NAN},
       {VpuOp::kRsqrtF, kInf, 0.0f},    {VpuOp::kSqrtF, -0.0f, -0.0f},
       {VpuOp::kSqrtF, -1.0f, NAN},     {VpuOp::kSqrtF, kInf, kInf},
       {VpuOp::kSinF, 0.0f, 0.0f},      {VpuOp::kSinF, -0.0f, -0.0f},
       {VpuOp::kSinF, kInf, NAN},       {VpuOp::kSinF, -kInf, NAN},
       {VpuOp::kSinF, NAN, NAN},        {VpuOp::kSinF, -1e-40f, -0.0f},
       {VpuOp::kCosF, -0.0f, 1.0f},     {VpuOp::kCosF, 1e-40f, 1.0f},
       {VpuOp::kCosF, kInf, NAN},       {VpuOp::kCosF, NAN, NAN},
       {VpuOp::kTanF, -0.0f, -0.0f},    {VpuOp::kTanF, -kInf, NAN},
       {VpuOp::kTanF, NAN, NAN},        {VpuOp::kCbrtF, -0.0f, -0.0f},
       {VpuOp::kCbrtF, -27.0f, -3.0f},  {VpuOp::kCbrtF, kInf, kInf},
       {VpuOp::kCbrtF, -kInf, -kInf},   {VpuOp::kCbrtF, -1e-40f, -0.0f},
       {VpuOp::kCbrtF, NAN, NAN},       {VpuOp::kErfF, -0.0f, -0.0f},
       {VpuOp::kErfF, kInf, 1.0f},      {VpuOp::kErfF, -kInf, -1.0f},
       {VpuOp::kErfF, NAN, NAN}}};
  Block block;
  for (const test::LaneCode& code : test::lane_codes()) {
    for (const Case& c : cases) {
      block.x.fill(spec::f32_bits(c.x));
      evaluate(c.op, block, code.table);
      const uint32_t expected =
          std::isnan(c.expected) ? spec::kF32CanonicalNan : spec::f32_bits(c.expected);
      EXPECT_EQ(block.out[5], expected) << name_of(c.op) << "(" << c.x << ")";
    }
  }
}

}  // namespace
}  // namespace tpu::model
