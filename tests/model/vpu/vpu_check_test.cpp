// Programs and commands that must be refused, each with the text that says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "vpu_builder.hpp"

namespace tpu::model {
namespace {

using ::testing::HasSubstr;

std::string decode_error(std::span<const std::byte> code, uint32_t offset) {
  try {
    VpuProgram::decode(code, offset);
  } catch (const VpuError& error) {
    return error.what();
  }
  return "accepted";
}

KernelBuilder good() {
  KernelBuilder b;
  b.flat(3000);
  const uint32_t in = b.vector(0, Elem::kF32);
  const uint32_t out = b.vector(0x4000, Elem::kF32);
  b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, in);
  b.add(Section::kBody, VpuOp::kStore, 0, 0, 0, out);
  return b;
}

std::string program_error(const std::function<void(KernelBuilder&)>& change) {
  KernelBuilder b = good();
  change(b);
  return decode_error(b.code(), 0);
}

TEST(VpuProgram, RefusesWhatTheIsaDoesNotHave) {
  EXPECT_EQ(program_error([](auto&) {}), "accepted");
  EXPECT_THAT(program_error([](auto& b) { b.add(Section::kPost, static_cast<VpuOp>(255)); }),
              HasSubstr("post[0] (?): invalid opcode 255: expected 1 to "));
  EXPECT_THAT(program_error([](auto& b) { b.add(Section::kPost, static_cast<VpuOp>(0)); }),
              HasSubstr("opcode 0"));
  EXPECT_THAT(program_error([](auto& b) { b.add(Section::kBody, VpuOp::kMov, 32, 0); }),
              HasSubstr("body[2] (mov): invalid register r32: the header has 32 registers"));
  EXPECT_THAT(program_error([](auto& b) { b.registers = 0; }), HasSubstr("register r0"));
  EXPECT_THAT(program_error([](auto& b) { b.registers = 33; }),
              HasSubstr("the header has 33 registers: expected at most 32"));
  EXPECT_THAT(program_error([](auto& b) { b.add(Section::kBody, VpuOp::kFmaF, 0, 0, 0, 77); }),
              HasSubstr("register r77"));
  EXPECT_THAT(program_error([](auto& b) { b.add(Section::kBody, VpuOp::kStore, 0, 0, 4, 1); }),
              HasSubstr("store mode 4"));
  EXPECT_THAT(program_error([](auto& b) { b.add(Section::kBody, VpuOp::kCmpF, 0, 0, 0, 6); }),
              HasSubstr("comparison 6"));
  EXPECT_THAT(program_error([](auto& b) { b.add(Section::kBody, VpuOp::kLred, 0, 0, 0, 13); }),
              HasSubstr("reduction 13"));
  EXPECT_THAT(program_error([](auto& b) { b.add(Section::kBody, VpuOp::kScalar, 0, 0, 0, 4); }),
              HasSubstr("scalar 4"));
  EXPECT_THAT(program_error([](auto& b) { b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, 24); }),
              HasSubstr("access 24"));
  EXPECT_THAT(program_error([](auto& b) { b.add(Section::kEnter0, VpuOp::kMov, 1, 2); }),
              HasSubstr("enter0[0] (mov): register r2 is read before it is written"));
}

TEST(VpuProgram, RefusesTruncatedCode) {
  const std::vector<std::byte> code = good().code();
  for (size_t length = 0; length < code.size(); ++length) {
    EXPECT_NE(decode_error(std::span(code).first(length), 0), "accepted") << length;
  }
  EXPECT_THAT(decode_error(code, 4), HasSubstr("multiple of 8"));
  EXPECT_THAT(decode_error(code, 0xfffffff8u), HasSubstr("outside of the code"));
}

std::string kernel_error(const std::function<void(KernelBuilder&)>& change) {
  KernelBuilder b = good();
  change(b);
  const VpuProgram program = b.program();
  try {
    return b.kernel(program).check(0x10000);
  } catch (const VpuError& error) {
    return error.what();
  }
}

TEST(VpuKernelCheck, RefusesBadLoops) {
  EXPECT_EQ(kernel_error([](auto&) {}), "");
  EXPECT_THAT(kernel_error([](auto& b) { b.command.loops[3] = 2; }),
              HasSubstr("3000 columns are 3 blocks of 1024, the loop's count is 2"));
  EXPECT_THAT(kernel_error([](auto& b) { b.command.col_loop = 255; }), HasSubstr("without a loop"));
  EXPECT_THAT(kernel_error([](auto& b) { b.command.col_loop = 4; }),
              HasSubstr("invalid col_loop 4: expected 0 to 3"));
  EXPECT_THAT(kernel_error([](auto& b) { b.command.row_loop = 0; }), HasSubstr("flat kernel"));
  EXPECT_THAT(kernel_error([](auto& b) {
                b.command.loops = {0x10000, 0x10000, 2, 3};
              }),
              HasSubstr("exceed the limit of"));
  EXPECT_THAT(kernel_error([](auto& b) {
                b.shape(20, 20, 1, 2);
                b.command.head.flags = 0;
                b.command.col_loop = 1;
              }),
              HasSubstr("both loop 1"));
  EXPECT_THAT(kernel_error([](auto& b) { b.command.cols = 0xffffffffu; }), HasSubstr("blocks"));
}

TEST(VpuKernelCheck, RefusesBadOperands) {
  EXPECT_THAT(kernel_error([](auto& b) { b.bases[1] = 0x10000 - 3000 * 4 + 4; }),
              HasSubstr("access 1 (store in body): bytes [53540, 65540) are outside of VMEM"));
  EXPECT_EQ(kernel_error([](auto& b) { b.bases[1] = 0x10000 - 3000 * 4; }), "");
  EXPECT_THAT(kernel_error([](auto& b) { b.bases[0] = -4; }), HasSubstr("outside of VMEM"));
  EXPECT_THAT(kernel_error([](auto& b) { b.bases[0] = INT64_MAX - 3; }),
              HasSubstr("outside of VMEM"));
  EXPECT_THAT(kernel_error([](auto& b) { b.bases[0] = INT64_MIN; }), HasSubstr("outside of VMEM"));
  EXPECT_THAT(kernel_error([](auto& b) { b.accesses[0].loop[3] = -4096; }),
              HasSubstr("bytes [-8192, 4096)"));
  EXPECT_THAT(kernel_error([](auto& b) { b.bases[0] = 2; }), HasSubstr("multiple of 4"));
  EXPECT_THAT(kernel_error([](auto& b) { b.accesses[0].lane = 6; }), HasSubstr("lane stride 6"));
  EXPECT_THAT(kernel_error([](auto& b) {
                b.accesses[0].addr.space = static_cast<uint8_t>(spec::Space::kHbm);
              }),
              HasSubstr("must be in vmem, found hbm"));
  EXPECT_THAT(kernel_error([](auto& b) { b.accesses[0].addr.space = 9; }),
              HasSubstr("expected a space below 4"));
  EXPECT_THAT(kernel_error([](auto& b) { b.accesses[0].type = static_cast<uint8_t>(Elem::kI64); }),
              HasSubstr("type i64 is not supported; use two accesses"));
  EXPECT_THAT(kernel_error([](auto& b) { b.add(Section::kBody, VpuOp::kIndex, 0, 0, 0, 0); }),
              HasSubstr("an index must have space none"));
  EXPECT_THAT(kernel_error([](auto& b) { b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, 2); }),
              HasSubstr("uses access 2"));
}

TEST(VpuKernelCheck, FootprintsKnowTailAndMode) {
  KernelBuilder b;
  b.shape(10, 200, 0, 1);
  const uint32_t in = b.matrix(0x1000, Elem::kBf16);
  const uint32_t out = b.access(0x100, Elem::kF32, {0, 512, 0, 0}, 4000, 4);
  b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, in);
  b.add(Section::kBody, VpuOp::kStore, 0, 0, static_cast<int>(spec::VpuStoreMode::kSublane0), out);
  const VpuProgram program = b.program();
  const auto footprints = b.kernel(program).footprints();
  ASSERT_EQ(footprints.size(), 2u);
  EXPECT_EQ(footprints[0].begin, 0x1000);
  EXPECT_EQ(footprints[0].end, 0x1000 + 10 * 200 * 2);
  EXPECT_FALSE(footprints[0].write);
  EXPECT_EQ(footprints[1].begin, 0x100);
  EXPECT_EQ(footprints[1].end, 0x100 + 200 * 4);
  EXPECT_TRUE(footprints[1].write);
}

TEST(VpuSimd, NamesAreChecked) {
  EXPECT_EQ(vpu_simd_from_name("scalar"), VpuSimd::kScalar);
  EXPECT_EQ(vpu_simd_from_name("auto"), vpu_best_simd());
  EXPECT_THROW(vpu_simd_from_name("sse4"), VpuError);
  const bool is_arm = vpu_best_simd() == VpuSimd::kNeon;
  EXPECT_THROW(vpu_simd_from_name(is_arm ? "avx2" : "neon"), VpuError);
}

}  // namespace
}  // namespace tpu::model
