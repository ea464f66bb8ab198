// Random kernels (loops, sections, masks, strides, types, store modes) against the plain reference
// on all SIMD widths of this host and the emulated one, whole and cut into ranges: VMEM must be
// equal to the byte.
#include <gtest/gtest.h>

#include <cstdlib>

#include "vpu_builder.hpp"
#include "vpu_lane_code.hpp"

namespace tpu::model {
namespace {

constexpr size_t kMemory = 1 << 20;
constexpr int kRegistersUsed = 7;

enum class Sort {
  kAny,
  kCrowded,  // operands of whole words that lie over each other, a few words apart or at one place
  kFused     // long runs of the instructions that fused code has, on whole blocks
};

class Generator {
 public:
  explicit Generator(uint64_t seed, Sort sort = Sort::kAny)
      : random_(seed),
        crowded_(sort == Sort::kCrowded || (sort == Sort::kFused && random_.below(3) == 0)),
        fused_(sort == Sort::kFused) {}

  KernelBuilder make() {
    make_shape();
    if (crowded_ || fused_) {
      make_whole_blocks();
    }
    crowded_ ? make_crowded_accesses() : make_accesses();
    if (fused_) {
      make_constants();
    }
    for (int s = 0; s < kVpuSections; ++s) {
      // Registers of a crowded kernel stay inside its body.
      const bool wanted =
          s == static_cast<int>(Section::kBody) || (!crowded_ && random_.below(3) == 0);
      const uint32_t most = fused_ ? 60 : crowded_ ? 12 : 6;
      const uint32_t count = wanted ? 1 + random_.below(most) : 0;
      for (uint32_t i = 0; i < count; ++i) {
        make_insn(static_cast<Section>(s));
      }
    }
    return b_;
  }

 private:
  void make_shape() {
    for (auto& count : b_.command.loops) {
      count = random_.below(3) == 0 ? 1 + random_.below(3) : 1;
    }
    if (random_.below(3) == 0) {
      b_.flat(1 + random_.below(3000));
      return;
    }
    const auto row_loop = static_cast<uint8_t>(random_.below(4));
    const auto col_loop = static_cast<uint8_t>((row_loop + 1 + random_.below(3)) % 4);
    b_.shape(1 + random_.below(30), 1 + random_.below(300), row_loop, col_loop);
    if (b_.command.rows <= 8 && random_.below(2) == 0) {
      b_.command.row_loop = 255;
    }
    if (b_.command.cols <= 128 && random_.below(2) == 0) {
      b_.command.col_loop = 255;
    }
  }

  void make_accesses() {
    static constexpr std::array kTypes = {Elem::kF32, Elem::kF32,  Elem::kBf16,
                                          Elem::kI32, Elem::kI8,   Elem::kUi8,
                                          Elem::kI1,  Elem::kUi16, Elem::kI16};
    const bool flat = b_.command.flat();
    for (int i = 0; i < 6; ++i) {
      const Elem type = kTypes[random_.below(kTypes.size())];
      const int bytes = vpu_element_bytes(static_cast<uint8_t>(type));
      const int64_t base = 0x20000 + 0x20000 * i;
      if (fused_ ? random_.below(8) != 0 : random_.below(2) == 0) {
        flat ? b_.vector(base, type) : b_.matrix(base, type);
        continue;
      }
      static constexpr std::array kLane = {0, 1, -1, 3};
      std::array<int32_t, 4> loop{};
      for (auto& stride : loop) {
        stride = (static_cast<int32_t>(random_.below(2000)) - 1000) * bytes;
      }
      b_.access(base, type, loop, static_cast<int32_t>(random_.below(300)) * bytes,
                kLane[random_.below(kLane.size())] * bytes);
    }
    index_ = b_.access(random_.next(), Elem::kI32, {1000, 100, 10, 1}, 77, 3, spec::Space::kNone);
  }

  void make_whole_blocks() {
    if (b_.command.flat()) {
      const uint32_t most = fused_ ? 6 : 2;
      b_.flat(1024 * (1 + random_.below(most)) + (random_.below(4) == 0 ? 100 : 0));
    } else {
      b_.command.loops = {1, 1, 1, 1};
      const uint32_t most = fused_ ? 4 : 2;  // few blocks are interpreted
      b_.shape(8 * (1 + random_.below(most)), 128 * (1 + random_.below(2)), 2, 3);
    }
  }

  void make_crowded_accesses() {
    static constexpr std::array<int64_t, 8> kShifts = {0, 0, 0, 4, -4, 512, -512, 4096};
    static constexpr std::array kPitches = {512, 512, 1024, 516, 0, 4, -512};
    const bool flat = b_.command.flat();
    for (int i = 0; i < 6; ++i) {
      const int64_t base =
          0x40000 + kShifts[random_.below(kShifts.size())] + (random_.below(3) == 0 ? 0x20000 : 0);
      const Elem type = random_.below(8) == 0 ? Elem::kUi16 : Elem::kI32;
      if (flat || random_.below(4) == 0) {
        flat ? b_.vector(base, type) : b_.matrix(base, type);
        continue;
      }
      const int32_t pitch = kPitches[random_.below(kPitches.size())];
      std::array<int32_t, 4> loop{};
      for (auto& stride : loop) {
        stride = random_.below(2) == 0 ? 512 : 4096;
      }
      b_.access(base, type, loop, pitch, vpu_element_bytes(static_cast<uint8_t>(type)));
    }
    index_ = b_.access(random_.next(), Elem::kI32, {1000, 100, 10, 1}, 77, 3, spec::Space::kNone);
  }

  // Registers that nothing else writes, with the words that operations may treat in ways of their
  // own.
  void make_constants() {
    for (int i = 0; i < 4; ++i) {
      const int rd = registers() + i;
      if (i == 3) {
        b_.scalars[1] = random_.word();
        b_.add(Section::kPre, VpuOp::kScalar, rd, 0, 0, 1);
      } else {
        b_.add(Section::kPre, VpuOp::kImm, rd, 0, 0, i == 0 ? 0 : random_.word());
      }
      defined_.push_back(rd);
    }
  }

  // More than the narrower host's registers, at times.
  int registers() const { return fused_ ? 24 : kRegistersUsed; }

  int source() { return defined_[random_.below(static_cast<uint32_t>(defined_.size()))]; }

  void make_insn(Section section) {
    const int rd = static_cast<int>(random_.below(static_cast<uint32_t>(registers())));
    const uint32_t choice = defined_.empty() ? random_.below(4) : random_.below(fused_ ? 30 : 16);
    if (choice < 3) {
      b_.add(section, VpuOp::kLoad, rd, 0, 0, random_.below(6));
    } else if (choice == 3) {
      b_.add(section, VpuOp::kIndex, rd, 0, 0, index_);
    } else if (choice < 7) {
      const int mask = random_.below(3) == 0 ? static_cast<int>(random_.below(4)) : 0;
      b_.add(section, VpuOp::kStore, 0, source(), mask, random_.below(6));
      return;
    } else if (choice == 7 && random_.below(3) == 0) {
      b_.add(section, random_.below(2) == 0 ? VpuOp::kLred : VpuOp::kSred, rd, source(), 0,
             random_.below(spec::kVpuReduceCount));
    } else if (choice == 8) {
      b_.add(section, VpuOp::kMaskid, rd, source(), 0, random_.word());
    } else {
      make_lane_op(section, rd);
    }
    defined_.push_back(rd);
  }

  void make_lane_op(Section section, int rd) {
    const spec::VpuOpInfo* info = nullptr;
    do {
      info = &spec::kVpuOps[random_.below(spec::kVpuOps.size())];
    } while (info->load + info->store + info->reduce != 0 || info->op == VpuOp::kIndex ||
             info->op == VpuOp::kMaskid ||
             (fused_ && !fused_has(info->op) && random_.below(16) != 0));
    const VpuForm form = vpu_form(info->op);
    uint32_t imm = random_.below(form.compare ? spec::kVpuCompareCount : 4);
    imm = form.rs3 ? static_cast<uint32_t>(source()) : imm;
    const int rs1 = form.rs1 ? source() : 0;
    const int rs2 = form.rs2 ? source() : 0;
    b_.add(section, info->op, rd, rs1, rs2, imm);
  }

  Random random_;
  const bool crowded_;
  const bool fused_;
  KernelBuilder b_;
  std::vector<int> defined_;
  uint32_t index_ = 0;
};

std::vector<uint8_t> start_memory(uint64_t seed) {
  std::vector<uint8_t> vmem(kMemory);
  Random random(seed);
  for (size_t i = 0; i < kMemory; i += 4) {
    const uint32_t word = random.word();
    std::memcpy(vmem.data() + i, &word, 4);
  }
  return vmem;
}

void run_in_parts(const VpuKernel& kernel, uint8_t* vmem, VpuSimd simd) {
  const uint64_t count = kernel.split_count();
  for (uint64_t part = 0; part < count; ++part) {  // last first
    kernel.run_range(vmem, count - 1 - part, count - part, simd);
  }
}

// Legal kernels and those that can be cut, of `seeds`.
struct Seen {
  int legal = 0, split = 0;
};

void compare_with_reference(Sort sort, uint64_t seeds, Seen& seen, uint64_t first = 1) {
  const char* chosen = std::getenv("TPU_TEST_SEED");
  first = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : first;
  seeds = chosen != nullptr ? 1 : seeds;
  const std::vector<uint8_t> start = start_memory(99);
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const KernelBuilder b = Generator(seed, sort).make();
    const VpuProgram program = b.program();
    const VpuKernel kernel = b.kernel(program);
    if (!kernel.check(kMemory).empty()) {
      continue;
    }
    ++seen.legal;
    std::vector<uint8_t> expected = start;
    b.machine(program, expected.data()).run();
    for (const test::LaneCode& code : test::lane_codes()) {
      std::vector<uint8_t> vmem = start;
      kernel.run(vmem.data(), code.table);
      ASSERT_TRUE(vmem == expected)
          << "TPU_TEST_SEED=" << seed << " on " << code.name << ", first byte "
          << std::ranges::mismatch(vmem, expected).in1 - vmem.begin();
    }
    if (kernel.can_split() && kernel.split_count() > 1) {
      ++seen.split;
      std::vector<uint8_t> vmem = start;
      run_in_parts(kernel, vmem.data(), vpu_best_simd());
      ASSERT_TRUE(vmem == expected) << "in parts, TPU_TEST_SEED=" << seed;
    }
  }
  if (chosen != nullptr) {
    seen = {1 << 20, 1 << 20};
  }
}

TEST(VpuRandom, KernelsEqualReferenceOnAllWidths) {
  Seen seen;
  compare_with_reference(Sort::kAny, 1500, seen);
  EXPECT_GT(seen.legal, 1000);
  EXPECT_GT(seen.split, 20);
}

// Registers that are memory must not see what the kernel stores there.
TEST(VpuRandom, OperandsOverEachOther) {
  Seen seen;
  compare_with_reference(Sort::kCrowded, 2000, seen);
  EXPECT_GT(seen.legal, 1900);
}

// Instructions that share their loads and stores, and leave out what nobody can tell. In two parts
// that run side by side.
TEST(VpuRandom, LongRunsOfLanewiseInstructions) {
  Seen seen;
  compare_with_reference(Sort::kFused, 1000, seen);
  EXPECT_GT(seen.legal, 900);
}

TEST(VpuRandom, MoreLongRunsOfLanewiseInstructions) {
  Seen seen;
  compare_with_reference(Sort::kFused, 1000, seen, 1001);
  EXPECT_GT(seen.legal, 900);
}

}  // namespace
}  // namespace tpu::model
