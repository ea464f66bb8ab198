// Bits that moves keep: all 65,536 bf16, and words of f32, through loads, stores, moves and
// operations on the sign, on all SIMD widths of this host and the emulated one, as single
// instructions (blocks with a tail) and as fused code (whole blocks).
#include <gtest/gtest.h>

#include <functional>

#include "vpu_builder.hpp"
#include "vpu_lane_code.hpp"

namespace tpu::model {
namespace {

constexpr uint32_t kHalves = 0x10000;
constexpr int64_t kIn = 0, kOther = 0x40000, kMask = 0x80000, kOut = 0xc0000;
constexpr size_t kMemory = 0x100000;

// In the order of their bits; the same shifted; 0 and 1 by turns.
std::vector<uint8_t> all_halves() {
  std::vector<uint8_t> vmem(kMemory);
  for (uint32_t i = 0; i < kHalves; ++i) {
    const auto bits = static_cast<uint16_t>(i), other = static_cast<uint16_t>(i + 77);
    const uint32_t mask = i % 2;
    std::memcpy(vmem.data() + kIn + 2 * i, &bits, 2);
    std::memcpy(vmem.data() + kOther + 2 * i, &other, 2);
    std::memcpy(vmem.data() + kMask + 4 * i, &mask, 4);
  }
  return vmem;
}

// r0 = all bf16, r1 = the shifted ones, r2 = masks; `make` leaves its result in r3.
using Make = std::function<void(KernelBuilder&)>;
using Expected = std::function<uint32_t(uint32_t)>;

void check(const char* name, Elem to, const Make& make, const Expected& expected) {
  const auto bytes = static_cast<size_t>(vpu_element_bytes(static_cast<uint8_t>(to)));
  for (const uint32_t count : {kHalves, kHalves - 25}) {
    for (const test::LaneCode& code : test::lane_codes()) {
      KernelBuilder b;
      b.flat(count);
      b.vector(kIn, Elem::kBf16);
      b.vector(kOther, Elem::kBf16);
      b.vector(kMask, Elem::kI32);
      b.vector(kOut, to);
      for (int i = 0; i < 3; ++i) {
        b.add(Section::kBody, VpuOp::kLoad, i, 0, 0, static_cast<uint32_t>(i));
      }
      make(b);
      b.add(Section::kBody, VpuOp::kStore, 0, 3, 0, 3);
      const VpuProgram program = b.program();
      std::vector<uint8_t> vmem = all_halves();
      const VpuKernel kernel = b.kernel(program);
      ASSERT_EQ(kernel.check(vmem.size()), "");
      kernel.run(vmem.data(), code.table);
      uint32_t wrong = 0;
      for (uint32_t i = 0; i < count; ++i) {
        uint32_t out = 0;
        std::memcpy(&out, vmem.data() + kOut + bytes * i, bytes);
        wrong += out != expected(i) ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0u) << name << " of " << count << " on " << code.name;
    }
  }
}

void body(KernelBuilder& b, VpuOp op, int rd, int rs1, int rs2 = 0, uint32_t imm = 0) {
  b.add(Section::kBody, op, rd, rs1, rs2, imm);
}

TEST(VpuBits, MovesKeepEveryBf16) {
  const Expected same = [](uint32_t i) { return i; };
  check(
      "mov", Elem::kBf16, [](KernelBuilder& b) { body(b, VpuOp::kMov, 3, 0); }, same);
  check(
      "maskid", Elem::kBf16, [](KernelBuilder& b) { body(b, VpuOp::kMaskid, 3, 0, 0, 5); }, same);
  check(
      "rbf16", Elem::kBf16, [](KernelBuilder& b) { body(b, VpuOp::kRbf16, 3, 0); }, same);
  check(
      "select", Elem::kBf16, [](KernelBuilder& b) { body(b, VpuOp::kSelect, 3, 2, 0, 1); },
      [](uint32_t i) { return i % 2 != 0 ? i : (i + 77) % kHalves; });
  check(
      "bits", Elem::kBf16,
      [](KernelBuilder& b) {
        body(b, VpuOp::kImm, 4, 0, 0, 16);
        body(b, VpuOp::kShr, 3, 0, 4);
        body(b, VpuOp::kShl, 3, 3, 4);
      },
      same);
}

TEST(VpuBits, SignsChangeAndAllOtherBitsStay) {
  check(
      "neg_f", Elem::kBf16, [](KernelBuilder& b) { body(b, VpuOp::kNegF, 3, 0); },
      [](uint32_t i) { return i ^ 0x8000u; });
  check(
      "abs_f", Elem::kBf16, [](KernelBuilder& b) { body(b, VpuOp::kAbsF, 3, 0); },
      [](uint32_t i) { return i & 0x7fffu; });
  check(
      "neg_f of words", Elem::kI32, [](KernelBuilder& b) { body(b, VpuOp::kNegF, 3, 0); },
      [](uint32_t i) { return (i ^ 0x8000u) << 16; });
  check(
      "abs_f, rbf16", Elem::kBf16,
      [](KernelBuilder& b) {
        body(b, VpuOp::kAbsF, 3, 0);
        body(b, VpuOp::kRbf16, 3, 3);
      },
      [](uint32_t i) { return i & 0x7fffu; });
}

TEST(VpuBits, LoadsWidenExactly) {
  check(
      "widened", Elem::kF32, [](KernelBuilder& b) { body(b, VpuOp::kMov, 3, 0); },
      [](uint32_t i) { return i << 16; });
}

// What the host makes of inf - inf has a sign: nobody may see it.
TEST(VpuBits, ArithmeticStillGivesTheCanonicalNanAndNoSubnormal) {
  const Expected difference = [](uint32_t i) {
    const bool finite = (i & 0x7f80u) != 0x7f80u;
    return finite ? 0u : 0x7fc0u;
  };
  check(
      "x - x", Elem::kBf16, [](KernelBuilder& b) { body(b, VpuOp::kSubF, 3, 0, 0); }, difference);
  check(
      "x - x, rbf16", Elem::kBf16,
      [](KernelBuilder& b) {
        body(b, VpuOp::kSubF, 3, 0, 0);
        body(b, VpuOp::kRbf16, 3, 3);
      },
      difference);
  check(
      "-(x - x)", Elem::kBf16,
      [](KernelBuilder& b) {
        body(b, VpuOp::kSubF, 3, 0, 0);
        body(b, VpuOp::kNegF, 3, 3);
        body(b, VpuOp::kRbf16, 3, 3);
      },
      [&](uint32_t i) { return difference(i) ^ 0x8000u; });
  check(
      "x * 1", Elem::kBf16,
      [](KernelBuilder& b) {
        body(b, VpuOp::kImm, 4, 0, 0, 0x3f800000u);
        body(b, VpuOp::kMulF, 3, 0, 4);
        body(b, VpuOp::kRbf16, 3, 3);
      },
      [](uint32_t i) {
        const uint32_t magnitude = i & 0x7fffu;
        return magnitude > 0x7f80u ? 0x7fc0u : magnitude < 0x80u ? i & 0x8000u : i;
      });
}

}  // namespace
}  // namespace tpu::model
