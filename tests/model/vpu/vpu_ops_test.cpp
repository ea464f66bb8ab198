// Every lane-wise instruction and every reduction against the plain reference, on all SIMD widths
// of this host and the emulated one: special values with each other, then random ones.
#include <gtest/gtest.h>

#include "arith/flush_mode.hpp"
#include "vpu_builder.hpp"
#include "vpu_lane_code.hpp"

namespace tpu::model {
namespace {

constexpr uint32_t kBase[] = {0, 0x100000, 0x200000, 0x300000};
constexpr uint32_t kElements = 8 * 1024;

std::vector<uint8_t> random_memory(uint64_t seed) {
  std::vector<uint8_t> vmem(0x400000);
  Random random(seed);
  for (uint32_t base = 0; base < kBase[3]; base += kBase[1]) {
    for (uint32_t i = 0; i < kElements; ++i) {
      const uint32_t word = random.word();
      std::memcpy(vmem.data() + base + 4 * i, &word, 4);
    }
  }
  return vmem;
}

bool is_lane_op(const spec::VpuOpInfo& info) {
  return info.load == 0 && info.store == 0 && info.reduce == 0 && info.op != VpuOp::kIndex &&
         info.op != VpuOp::kMaskid;
}

// Runs out = op(in0, in1, in2) over all elements and compares each word.
void check_op(const spec::VpuOpInfo& info, uint32_t imm, const test::LaneCode& code) {
  KernelBuilder b;
  b.flat(kElements);
  b.scalars = {0x12345678u, 2, 3, 0xfffffff0u};
  for (int i = 0; i < 4; ++i) {
    b.vector(kBase[i], Elem::kI32);
  }
  for (uint32_t i = 0; i < 3; ++i) {
    b.add(Section::kBody, VpuOp::kLoad, static_cast<int>(i), 0, 0, i);
  }
  b.add(Section::kBody, info.op, 3, 0, 1, imm);
  b.add(Section::kBody, VpuOp::kStore, 0, 3, 0, 3);
  const VpuProgram program = b.program();
  const VpuKernel kernel = b.kernel(program);
  std::vector<uint8_t> vmem = random_memory(info.op == VpuOp::kPowF ? 7 : 3);
  ASSERT_EQ(kernel.check(vmem.size()), "");
  kernel.run(vmem.data(), code.table);
  int shown = 0;
  for (uint32_t i = 0; i < kElements && shown < 5; ++i) {
    std::array<uint32_t, 4> word{};
    for (size_t k = 0; k < 4; ++k) {
      std::memcpy(&word[k], vmem.data() + kBase[k] + 4 * i, 4);
    }
    const uint32_t value = info.op == VpuOp::kScalar ? b.scalars[imm] : imm;
    const uint32_t expected = reference::lane_op(info.op, word[0], word[1], word[2], value);
    if (word[3] != expected) {
      ADD_FAILURE() << info.name << " on " << code.name << std::hex << ": (" << word[0] << ", "
                    << word[1] << ", " << word[2] << ") gives " << word[3] << ", expected "
                    << expected;
      ++shown;
    }
  }
}

TEST(VpuOps, LaneOperationsEqualReferenceOnAllWidths) {
  for (const test::LaneCode& code : test::lane_codes()) {
    for (const spec::VpuOpInfo& info : spec::kVpuOps) {
      if (!is_lane_op(info)) {
        continue;
      }
      const VpuForm form = vpu_form(info.op);
      if (form.compare) {
        for (uint32_t order = 0; order < spec::kVpuCompareCount; ++order) {
          check_op(info, order, code);
        }
      } else {
        check_op(info, form.rs3 ? 2 : 3, code);
      }
    }
  }
}

// out = op(in0, constant) or op(constant, in0): constants have code of their own.
void check_constant(const spec::VpuOpInfo& info, uint32_t imm, uint32_t constant, bool first,
                    const test::LaneCode& code) {
  KernelBuilder b;
  b.flat(kElements);
  b.vector(kBase[0], Elem::kI32);
  b.vector(kBase[3], Elem::kI32);
  b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, 0);
  b.add(Section::kBody, VpuOp::kImm, 1, 0, 0, constant);
  b.add(Section::kBody, info.op, 2, first ? 1 : 0, first ? 0 : 1, imm);
  b.add(Section::kBody, VpuOp::kStore, 0, 2, 0, 1);
  const VpuProgram program = b.program();
  std::vector<uint8_t> vmem = random_memory(3);
  b.kernel(program).run(vmem.data(), code.table);
  int shown = 0;
  for (uint32_t i = 0; i < kElements && shown < 5; ++i) {
    uint32_t in = 0;
    uint32_t out = 0;
    std::memcpy(&in, vmem.data() + kBase[0] + 4 * i, 4);
    std::memcpy(&out, vmem.data() + kBase[3] + 4 * i, 4);
    const uint32_t expected =
        reference::lane_op(info.op, first ? constant : in, first ? in : constant, 0, imm);
    if (out != expected) {
      ADD_FAILURE() << info.name << " on " << code.name << std::hex << ": " << in << " with the "
                    << (first ? "first " : "second ") << constant << " gives " << out
                    << ", expected " << expected;
      ++shown;
    }
  }
}

TEST(VpuOps, ConstantOperandsEqualReferenceOnAllWidths) {
  const uint32_t constants[] = {0,           0x80000000u, 0x3f800000u, 0xc0000000u, 0x00800000u,
                                0x00000001u, 0x807fffffu, 0x7f800000u, 0xff800000u, 0x7fc00000u,
                                0xffc12345u, 0x7f800001u, 31,          32};
  for (const test::LaneCode& code : test::lane_codes()) {
    for (const spec::VpuOpInfo& info : spec::kVpuOps) {
      const VpuForm form = vpu_form(info.op);
      if (!is_lane_op(info) || !form.rs2 || form.rs3 || info.op == VpuOp::kPowF) {
        continue;
      }
      for (const uint32_t constant : constants) {
        for (uint32_t order = 0; order < (form.compare ? spec::kVpuCompareCount : 1); ++order) {
          check_constant(info, order, constant, false, code);
          check_constant(info, order, constant, true, code);
        }
      }
    }
  }
}

TEST(VpuOps, ReductionsFollowTheTreeOnAllWidths) {
  for (const test::LaneCode& code : test::lane_codes()) {
    for (uint32_t r = 0; r < spec::kVpuReduceCount; ++r) {
      for (const VpuOp op : {VpuOp::kLred, VpuOp::kSred}) {
        KernelBuilder b;
        b.shape(24, 300, 1, 2);
        const uint32_t in = b.matrix(0, Elem::kF32);
        const uint32_t out = b.matrix(0x100000, Elem::kF32);
        b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, in);
        b.add(Section::kBody, op, 1, 0, 0, r);
        b.add(Section::kBody, VpuOp::kStore, 0, 1, 0, out);
        const VpuProgram program = b.program();
        std::vector<uint8_t> vmem(0x200000);
        Random random(r + 1);
        for (uint32_t i = 0; i < 24 * 300; ++i) {
          const uint32_t word = r < 4 && i % 3 != 0
                                    ? spec::f32_bits(static_cast<float>(random.below(1000)) / 7.0f)
                                    : random.word();
          std::memcpy(vmem.data() + 4 * i, &word, 4);
        }
        std::vector<uint8_t> expected = vmem;
        b.machine(program, expected.data()).run();
        b.kernel(program).run(vmem.data(), code.table);
        EXPECT_TRUE(vmem == expected) << spec::kVpuReduceNames[r] << " on " << code.name
                                      << (op == VpuOp::kLred ? " over lanes" : " over sublanes");
      }
    }
  }
}

TEST(VpuOps, HostModeIsRestored) {
  KernelBuilder b;
  b.flat(1);
  const uint32_t a = b.vector(0, Elem::kF32);
  b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, a);
  const VpuProgram program = b.program();
  std::vector<uint8_t> vmem(4096);
  const uint64_t before = spec::ScopedFlushMode::mode();
  b.kernel(program).run(vmem.data());
  EXPECT_EQ(spec::ScopedFlushMode::mode(), before);
}

}  // namespace
}  // namespace tpu::model
