// Host code of the control hart against its interpreter: the same programs in the same slices, all
// of the state compared after each slice. Seed and number of programs as in hart_oracle_test.cpp.
#include "hart/hart_code.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "hart/hart.hpp"
#include "hart/hart_csr.hpp"
#include "random_program.hpp"
#include "rv_encode.hpp"

namespace tpu::model {
namespace {

constexpr HartTiming kTiming{
    .taken_branch_cycles = 1, .load_cycles = 1, .mul_cycles = 2, .div_cycles = 16};
constexpr uint32_t kCode = 0x1000'0000;
constexpr uint32_t kCodeSize = 0x1000;
constexpr uint32_t kData = 0x2000'0000;
constexpr uint32_t kDataSize = 0x1000;
constexpr uint32_t kDevice = 0x4000'0000;
constexpr uint32_t kHandler = kCode + 0x800;
// A handler that looks at the counters and steps over the instruction.
constexpr std::initializer_list<uint32_t> kStepOver = {
    rv::csrrs(5, kCsrMepc, 0),     rv::addi(5, 5, 4),
    rv::csrrw(0, kCsrMepc, 5),     rv::csrrs(6, kCsrMcycle, 0),
    rv::csrrs(6, kCsrMinstret, 0), rv::kMret};

uint64_t environment_number(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 0);
}

// A hart with memories of its own and a device that answers with the number of the access.
struct Machine {
  explicit Machine(HartCode* host_code, uint32_t code_bytes = kCodeSize)
      : code(code_bytes), data(kDataSize), hart(3, kTiming) {
    hart.add_memory({kData, kDataSize, data.data(), true, false});
    hart.add_memory({kCode, code_bytes, code.data(), true, true});
    hart.add_mmio_window(kDevice, 0x100);
    if (host_code != nullptr) {
      hart.use_code(*host_code);
    }
  }
  void place(uint32_t addr, const void* bytes, size_t size) {
    std::memcpy(&code[addr - kCode], bytes, size);
    hart.memory_changed(addr, static_cast<uint32_t>(size));
  }
  HartRun run(uint64_t budget) {
    const HartRun run = hart.run(budget);
    if (run.reason == HartStop::kMmio) {
      accesses.push_back(hart.pending_mmio().addr + hart.pending_mmio().data);
      hart.complete_mmio(static_cast<uint32_t>(accesses.size()) * 0x8181);
    }
    return run;
  }

  std::vector<uint8_t> code;
  std::vector<uint8_t> data;
  std::vector<uint32_t> accesses;
  Hart hart;
};

class HartCodeTest : public ::testing::Test {
 protected:
  explicit HartCodeTest(uint32_t code_bytes = kCodeSize) : code_bytes_(code_bytes) {}
  void SetUp() override {
    if (code_ == nullptr) {
      GTEST_SKIP() << "this build makes no host code";
    }
  }

  void place(uint32_t addr, const void* bytes, size_t size) {
    plain_.place(addr, bytes, size);
    coded_.place(addr, bytes, size);
  }
  // A program from kCode on; traps go to the handler.
  void load(std::initializer_list<uint32_t> program, std::initializer_list<uint32_t> handler = {}) {
    place(kCode, std::data(program), program.size() * sizeof(uint32_t));
    place(kHandler, std::data(handler), handler.size() * sizeof(uint32_t));
    for (Machine* machine : {&plain_, &coded_}) {
      machine->hart.reset(kCode);
      machine->hart.set_csr(kCsrMtvec, kHandler);
      machine->hart.set_reg(kBaseRegister, kData + kDataSize / 2);
    }
  }
  HartStop run(uint64_t budget) {
    const HartRun plain = plain_.run(budget);
    const HartRun coded = coded_.run(budget);
    EXPECT_EQ(plain.reason, coded.reason);
    EXPECT_EQ(plain.cycles, coded.cycles);
    return coded.reason;
  }
  void run_slices(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      run(1 + random_() % 100);
      ASSERT_EQ(difference(), "") << "slice " << i;
    }
  }
  std::string difference() {
    for (unsigned i = 0; i < kRegisterCount; ++i) {
      if (plain_.hart.reg(i) != coded_.hart.reg(i)) {
        return "x" + std::to_string(i);
      }
    }
    for (const uint32_t csr : {kCsrMepc, kCsrMcause, kCsrMtval, kCsrMstatus}) {
      if (plain_.hart.csr(csr) != coded_.hart.csr(csr)) {
        return "csr " + std::to_string(csr);
      }
    }
    return plain_.hart.pc() != coded_.hart.pc()             ? "pc"
           : plain_.hart.cycles() != coded_.hart.cycles()   ? "cycles"
           : plain_.hart.instret() != coded_.hart.instret() ? "instret"
           : plain_.accesses != coded_.accesses             ? "device accesses"
           : plain_.data != coded_.data                     ? "data"
           : plain_.code != coded_.code                     ? "code"
                                                            : "";
  }

  const std::unique_ptr<HartCode> code_ = HartCode::make(1);
  const uint32_t code_bytes_;
  Machine plain_{nullptr, code_bytes_};
  Machine coded_{code_.get(), code_bytes_};
  std::mt19937_64 random_{environment_number("TPU_SEED", 1)};
};

// Few enough programs for each that all have room for their code.
constexpr uint64_t kProgramsAtOnce = 500;

class HartCodeRandom : public HartCodeTest, public ::testing::WithParamInterface<uint64_t> {};

TEST_P(HartCodeRandom, ProgramsTakeTheSameCycles) {
  random_.seed(random_() + GetParam());
  ProgramMaker maker(random_, kCode + kCodeSize);
  for (uint64_t n = 0; n < kProgramsAtOnce; ++n) {
    const std::vector<uint16_t> program = maker.make();
    const auto end = kCode + static_cast<uint32_t>(2 * program.size());
    ASSERT_LT(end, kHandler);
    load({}, kStepOver);
    place(kCode, program.data(), 2 * program.size());
    const uint32_t beyond = n % 4 == 0 ? 64 : 0;  // of the data's end, by the largest offsets
    for (Machine* machine : {&plain_, &coded_}) {
      machine->hart.set_reg(kBaseRegister, kData + kDataSize / 2 + beyond);
    }
    for (unsigned i = 1; i < kRegisterCount; ++i) {
      const auto value = static_cast<uint32_t>(random_() >> (random_() % 64));
      if (i != kBaseRegister) {
        plain_.hart.set_reg(i, value);
        coded_.hart.set_reg(i, value);
      }
    }
    plain_.hart.set_breakpoint(end);
    coded_.hart.set_breakpoint(end);
    while (run(1 + random_() % 200) != HartStop::kBreak) {
      ASSERT_FALSE(HasFailure()) << "program " << n;
      ASSERT_EQ(difference(), "") << "program " << n;
    }
    ASSERT_EQ(difference(), "") << "program " << n;
    plain_.hart.clear_breakpoint(end);
    coded_.hart.clear_breakpoint(end);
  }
  EXPECT_GT(code_->runs(), kProgramsAtOnce);
}

INSTANTIATE_TEST_SUITE_P(
    Seeds, HartCodeRandom,
    ::testing::Range(uint64_t{0}, environment_number("TPU_HART_PROGRAMS", 3000) / kProgramsAtOnce));

TEST_F(HartCodeTest, ConstantsBesideTheInstructionsAndDevices) {
  load({rv::lui(5, kCode >> 12), rv::lui(6, kDevice >> 12), rv::lbu(10, 1, 5), rv::lh(11, 2, 5),
        rv::sw(11, 4, 6), rv::lb(12, 8, 6), rv::sw(12, 0, kBaseRegister),
        rv::lw(13, 0, kBaseRegister), rv::add(14, 14, 13), rv::jal(0, -28)});
  run_slices(500);
  EXPECT_GT(coded_.accesses.size(), 50U);
}

TEST_F(HartCodeTest, TrapsComeFromTheMiddleOfARun) {
  // Two that are misaligned and one where nothing is.
  load({rv::addi(9, kBaseRegister, 1), rv::addi(10, 10, 1), rv::lw(11, 0, 9), rv::addi(12, 12, 1),
        rv::sw(10, 0, 9), rv::lw(13, 16, 0), rv::div(14, 10, 12), rv::jal(0, -28)},
       kStepOver);
  run_slices(300);
  EXPECT_GT(coded_.hart.reg(12), 10U);
}

TEST_F(HartCodeTest, InstructionsThatAreWrittenAnewRunAnew) {
  // Each round the store turns the addition of 1 into one of 2, or back; soon behind the start of
  // its run, and as far as one goes.
  const uint32_t one = rv::addi(10, 10, 1);
  for (const int32_t nops : {1, 24}) {
    const int32_t at = 4 * (6 + nops);  // of the addition
    std::vector<uint32_t> program = {rv::lui(5, kCode >> 12), rv::lw(6, at, 5),
                                     rv::lw(7, at + 8, 5),    rv::r_type(0, 4, 6, 6, 7),
                                     rv::sw(6, at, 5),        rv::addi(11, 11, 1)};
    program.resize(program.size() + static_cast<size_t>(nops), rv::kNop);
    program.insert(program.end(), {one, rv::jal(0, -at), one ^ rv::addi(10, 10, 2)});
    load({});
    place(kCode, program.data(), program.size() * sizeof(uint32_t));
    for (Machine* machine : {&plain_, &coded_}) {
      machine->hart.set_reg(10, 0);
      machine->hart.set_reg(11, 0);
    }
    run_slices(200);
    const double rounds = coded_.hart.reg(11);
    EXPECT_GT(rounds, 20);
    EXPECT_NEAR(coded_.hart.reg(10), 1.5 * rounds, 3);
  }
}

class HartCodeLarge : public HartCodeTest {
 protected:
  static constexpr uint32_t kBytes = 0x20000;

  HartCodeLarge() : HartCodeTest(kBytes) {}
};

// In a memory that has no entries for its upper part at first. Each round calls two functions
// there, branches over the border, and runs over it.
TEST_F(HartCodeLarge, RunsLieBehindTheFirstEntries) {
  constexpr uint32_t kBorder = 0x4000;  // see hart_run_code.cpp
  const auto put = [&](uint32_t offset, std::initializer_list<uint32_t> program) {
    place(kCode + offset, std::data(program), program.size() * sizeof(uint32_t));
  };
  load({rv::addi(10, 10, 1), rv::jal(1, kBytes - 8 - 4), rv::lui(5, (kCode + 0x8000) >> 12),
        rv::jalr(1, 5, 0), rv::jal(0, kBorder - 16 - 16)});
  put(kBytes - 8, {rv::addi(11, 11, 1), rv::jalr(0, 1, 0)});
  put(0x8000, {rv::addi(12, 12, 1), rv::jalr(0, 1, 0)});
  put(kBorder - 16,
      {rv::addi(13, 13, 1), rv::addi(6, 10, 0), rv::r_type(0, 7, 6, 6, 7), rv::bne(6, 0, 8),
       rv::addi(14, 14, 1), rv::addi(15, 15, 1), rv::jal(0, -static_cast<int32_t>(kBorder + 8))});
  for (Machine* machine : {&plain_, &coded_}) {
    machine->hart.set_reg(7, 1);
  }
  run_slices(300);
  EXPECT_GT(code_->runs(), 5U);
  EXPECT_GT(coded_.hart.reg(10), 100U);
  EXPECT_NEAR(coded_.hart.reg(12), coded_.hart.reg(11), 1);
  EXPECT_NEAR(2.0 * coded_.hart.reg(14), coded_.hart.reg(15), 2);
}

TEST_F(HartCodeTest, WatchesSeeAccessesOfCode) {
  load({rv::addi(10, 10, 1), rv::sw(10, 0, kBaseRegister), rv::jal(0, -8)});
  run_slices(20);
  for (Machine* machine : {&plain_, &coded_}) {
    machine->hart.set_watch({kData + kDataSize / 2, 4, false, true});
  }
  EXPECT_EQ(run(100), HartStop::kWatch);
  EXPECT_EQ(difference(), "");
}

}  // namespace
}  // namespace tpu::model
