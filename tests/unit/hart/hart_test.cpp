// Traps, interrupts, WFI, device accesses, breakpoints and cycle counts of the control hart.
// What single instructions compute is checked against an oracle in hart_oracle_test.cpp.
#include "hart/hart.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <vector>

#include "hart/hart_csr.hpp"
#include "rv_encode.hpp"

namespace tpu::model {
namespace {

constexpr HartTiming kTiming{
    .taken_branch_cycles = 1, .load_cycles = 1, .mul_cycles = 2, .div_cycles = 16};
constexpr uint32_t kCode = 0x1000'0000;
constexpr uint32_t kData = 0x2000'0000;
constexpr uint32_t kDevice = 0x4000'0000;
constexpr uint32_t kHandler = kCode + 0x400;
constexpr uint32_t kSize = 0x1000;

class HartTest : public ::testing::Test {
 protected:
  HartTest() : code_(kSize), data_(kSize), hart_(5, kTiming) {
    hart_.add_memory({kCode, kSize, code_.data(), true, true});
    hart_.add_memory({kData, kSize, data_.data(), true, false});
    hart_.add_mmio_window(kDevice, 0x1000);
    hart_.reset(kCode);
  }

  void write(uint32_t addr, std::initializer_list<uint32_t> words) {
    uint32_t offset = addr - kCode;
    for (const uint32_t word : words) {
      std::memcpy(&code_[offset], &word, sizeof word);
      offset += 4;
    }
    hart_.memory_changed(addr, static_cast<uint32_t>(4 * words.size()));
  }

  // mtvec = kHandler | mode, then the words at kCode + 16.
  void load(std::initializer_list<uint32_t> words, uint32_t mode = 0) {
    write(kCode, {rv::auipc(31, 0), rv::addi(31, 31, static_cast<int32_t>(0x400 | mode)),
                  rv::csrrw(0, kCsrMtvec, 31), rv::kNop});
    write(kCode + 16, words);
    run_instructions(4);
  }

  void run_instructions(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      hart_.run(1);
    }
  }

  std::vector<uint8_t> code_;
  std::vector<uint8_t> data_;
  Hart hart_;
};

TEST_F(HartTest, CountsCyclesByKindOfInstruction) {
  write(kCode, {rv::addi(1, 0, 2), rv::auipc(2, 0x10000), rv::lw(3, 0, 2), rv::mul(4, 1, 1),
                rv::div(5, 4, 1), rv::addi(1, 1, -1), rv::bne(1, 0, -4), rv::kWfi});
  const HartRun run = hart_.run(1000);
  EXPECT_EQ(run.reason, HartStop::kWfi);
  // addi, auipc, load 2, mul 3, div 17, two addi, bne taken 2 and not taken 1, wfi.
  EXPECT_EQ(run.cycles, 1U + 1 + 2 + 3 + 17 + 2 + 2 + 1 + 1);
  EXPECT_EQ(hart_.cycles(), run.cycles);
  EXPECT_EQ(hart_.instret(), 10U);
}

TEST_F(HartTest, BudgetStopsAfterAtMostOneInstructionMore) {
  write(kCode, {rv::div(1, 1, 2), rv::jal(0, 0)});
  EXPECT_EQ(hart_.run(3).cycles, 17U);
  for (int i = 0; i < 10; ++i) {
    const HartRun run = hart_.run(7);
    EXPECT_EQ(run.reason, HartStop::kBudget);
    EXPECT_EQ(run.cycles, 8U);  // four jumps of two cycles
  }
  EXPECT_EQ(hart_.pc(), kCode + 4);
}

TEST_F(HartTest, ExceptionIsPreciseAndReportsItsCause) {
  struct Case {
    uint32_t insn;
    uint32_t cause;
    uint32_t value;
  };
  const Case cases[] = {
      {0xFFFFFFFF, kCauseIllegal, 0xFFFFFFFF},
      {rv::kEcall, kCauseMachineEcall, 0},
      {rv::kEbreak, kCauseBreakpoint, kCode + 16},
      {rv::lw(1, 2, 2), kCauseLoadMisaligned, kData + 2},
      {rv::lh(1, 1, 2), kCauseLoadMisaligned, kData + 1},
      {rv::sw(1, 1, 2), kCauseStoreMisaligned, kData + 1},
      {rv::lw(1, 0, 3), kCauseLoadAccess, 0x7000'0000},
      {rv::sw(1, 0, 3), kCauseStoreAccess, 0x7000'0000},
      {rv::sb(1, 0, 3), kCauseStoreAccess, 0x7000'0000},
      {rv::csrrw(0, kCsrMhartid, 1), kCauseIllegal, rv::csrrw(0, kCsrMhartid, 1)},
      {rv::csrrs(1, 0x123, 0), kCauseIllegal, rv::csrrs(1, 0x123, 0)},
      {0x0000, kCauseIllegal, 0x0000},
      {0x2002, kCauseIllegal, 0x2002},  // c.fldsp: no floating point
  };
  for (const Case& c : cases) {
    hart_.reset(kCode);
    hart_.set_reg(1, 0x1234);
    hart_.set_reg(2, kData);
    hart_.set_reg(3, 0x7000'0000);
    load({c.insn});
    const uint64_t retired = hart_.instret();
    hart_.run(1);
    EXPECT_EQ(hart_.pc(), kHandler);
    EXPECT_EQ(hart_.csr(kCsrMcause), c.cause) << std::hex << c.insn;
    EXPECT_EQ(hart_.csr(kCsrMtval), c.value) << std::hex << c.insn;
    EXPECT_EQ(hart_.csr(kCsrMepc), kCode + 16);
    EXPECT_EQ(hart_.reg(1), 0x1234U);
    EXPECT_EQ(hart_.instret(), retired);
  }
}

TEST_F(HartTest, FetchOutsideMemoryFaultsAtItsTarget) {
  load({rv::jalr(1, 3, 0)});
  hart_.set_reg(3, 0x7000'0000);
  hart_.run(1);  // the jump itself retires
  EXPECT_EQ(hart_.reg(1), kCode + 20);
  hart_.run(1);
  EXPECT_EQ(hart_.pc(), kHandler);
  EXPECT_EQ(hart_.csr(kCsrMcause), kCauseFetchAccess);
  EXPECT_EQ(hart_.csr(kCsrMepc), 0x7000'0000U);
  EXPECT_EQ(hart_.csr(kCsrMtval), 0x7000'0000U);
}

TEST_F(HartTest, RunningOffTheEndOfMemoryFaults) {
  load({rv::kNop});
  write(kCode + kSize - 4, {rv::kNop});
  hart_.set_pc(kCode + kSize - 4);
  hart_.run(2);
  EXPECT_EQ(hart_.csr(kCsrMcause), kCauseFetchAccess);
  EXPECT_EQ(hart_.csr(kCsrMepc), kCode + kSize);
}

TEST_F(HartTest, LongInstructionAcrossTheEndFaultsAtItsSecondHalf) {
  load({rv::kNop});
  write(kCode + kSize - 4, {0x00130001});  // c.nop, then the first half of an addi
  hart_.set_pc(kCode + kSize - 2);
  hart_.run(1);
  EXPECT_EQ(hart_.csr(kCsrMcause), kCauseFetchAccess);
  EXPECT_EQ(hart_.csr(kCsrMepc), kCode + kSize - 2);
  EXPECT_EQ(hart_.csr(kCsrMtval), kCode + kSize);
}

TEST_F(HartTest, ExceptionInsideAnExceptionHandlerKillsTheHart) {
  load({rv::kEcall});
  write(kHandler, {rv::kEbreak});
  EXPECT_EQ(hart_.run(100).reason, HartStop::kTrap);
  EXPECT_TRUE(hart_.dead());
  EXPECT_EQ(hart_.csr(kCsrMcause), kCauseMachineEcall);  // the first one is kept
  EXPECT_EQ(hart_.run(100).cycles, 0U);
  hart_.reset(kCode);
  EXPECT_FALSE(hart_.dead());
}

TEST_F(HartTest, InterruptVectorsByNumberAndRestoresOnReturn) {
  load({rv::csrrw(0, kCsrMie, 4), rv::csrrsi(0, kCsrMstatus, 8), rv::addi(1, 0, 1),
        rv::addi(2, 0, 2), rv::kWfi},
       1);
  write(kHandler + 4 * 7, {rv::kMret});
  write(kHandler + 4 * 11, {rv::kMret});
  hart_.set_reg(4,
                static_cast<uint32_t>(HartIrq::kTimer) | static_cast<uint32_t>(HartIrq::kExternal));
  run_instructions(3);
  hart_.set_irq(HartIrq::kTimer, true);
  hart_.set_irq(HartIrq::kExternal, true);
  hart_.run(0);
  EXPECT_EQ(hart_.pc(), kHandler + 4 * 11);  // external goes first
  EXPECT_EQ(hart_.csr(kCsrMcause), kCauseInterrupt | 11U);
  EXPECT_EQ(hart_.csr(kCsrMepc), kCode + 28);
  EXPECT_EQ(hart_.csr(kCsrMstatus) & (kMstatusMie | kMstatusMpie), kMstatusMpie);
  hart_.set_irq(HartIrq::kExternal, false);
  hart_.run(1);  // mret, and at once the timer
  EXPECT_EQ(hart_.pc(), kHandler + 4 * 7);
  EXPECT_EQ(hart_.csr(kCsrMepc), kCode + 28);
  hart_.set_irq(HartIrq::kTimer, false);
  EXPECT_EQ(hart_.run(100).reason, HartStop::kWfi);
  EXPECT_EQ(hart_.reg(2), 2U);
}

TEST_F(HartTest, EnablingInterruptsByCsrTakesAPendingOneBeforeTheNextInstruction) {
  load({rv::csrrw(0, kCsrMie, 4), rv::csrrsi(0, kCsrMstatus, 8), rv::addi(1, 0, 1)});
  hart_.set_reg(4, static_cast<uint32_t>(HartIrq::kExternal));
  hart_.set_irq(HartIrq::kExternal, true);
  hart_.run(2);
  EXPECT_EQ(hart_.pc(), kHandler);
  EXPECT_EQ(hart_.csr(kCsrMepc), kCode + 24);
  EXPECT_EQ(hart_.reg(1), 0U);
}

// The firmware's idle loop: test and WFI with interrupts disabled. Whenever the interrupt comes,
// the hart must get past WFI exactly once and see it.
TEST_F(HartTest, NoWakeUpIsLostWhateverTheCycleOfTheInterrupt) {
  for (unsigned at = 0; at < 24; ++at) {
    hart_.reset(kCode);
    hart_.set_irq(HartIrq::kExternal, false);
    load({rv::csrrw(0, kCsrMie, 4), rv::csrrci(0, kCsrMstatus, 8), rv::kNop, rv::kNop, rv::kWfi,
          rv::csrrsi(0, kCsrMstatus, 8), rv::kNop, rv::addi(5, 5, 1), rv::jal(0, 0)});
    write(kHandler, {rv::addi(6, 6, 1), rv::csrrw(0, kCsrMie, 0), rv::kMret});
    hart_.set_reg(4, static_cast<uint32_t>(HartIrq::kExternal));
    for (unsigned step = 0; step < 40; ++step) {
      if (step == at) {
        hart_.set_irq(HartIrq::kExternal, true);
      }
      hart_.run(1);
    }
    EXPECT_EQ(hart_.reg(6), 1U) << at;
    EXPECT_EQ(hart_.reg(5), 1U) << at;
  }
}

TEST_F(HartTest, SleepsWithoutCyclesUntilAnEnabledInterruptIsPending) {
  load({rv::csrrw(0, kCsrMie, 4), rv::kWfi, rv::addi(1, 0, 7), rv::kWfi});
  hart_.set_reg(4, static_cast<uint32_t>(HartIrq::kTimer));
  EXPECT_EQ(hart_.run(100).reason, HartStop::kWfi);
  EXPECT_TRUE(hart_.sleeping());
  hart_.set_irq(HartIrq::kExternal, true);  // not enabled in mie
  const HartRun asleep = hart_.run(100);
  EXPECT_EQ(asleep.cycles, 0U);
  EXPECT_EQ(asleep.reason, HartStop::kWfi);
  hart_.set_irq(HartIrq::kTimer, true);
  EXPECT_FALSE(hart_.sleeping());
  hart_.run(1);
  EXPECT_EQ(hart_.reg(1), 7U);  // mstatus.MIE is 0: it goes on behind the WFI
}

TEST_F(HartTest, DeviceAccessStopsBeforeTheInstruction) {
  write(kCode, {rv::lui(2, kDevice >> 12), rv::addi(3, 0, -2), rv::sb(3, 5, 2), rv::lb(4, 8, 2),
                rv::kWfi});
  HartRun run = hart_.run(100);
  EXPECT_EQ(run.reason, HartStop::kMmio);
  EXPECT_EQ(run.cycles, 2U);
  EXPECT_EQ(hart_.pc(), kCode + 8);
  EXPECT_TRUE(hart_.pending_mmio().write);
  EXPECT_EQ(hart_.pending_mmio().addr, kDevice + 5);
  EXPECT_EQ(hart_.pending_mmio().data, 0xFEU);
  EXPECT_EQ(hart_.pending_mmio().size_bytes, 1);
  EXPECT_EQ(hart_.run(100).cycles, 0U);  // still waits for its completion
  hart_.complete_mmio(0);
  run = hart_.run(100);
  EXPECT_EQ(run.reason, HartStop::kMmio);
  EXPECT_EQ(run.cycles, 1U);
  hart_.complete_mmio(0x80);
  EXPECT_EQ(hart_.reg(4), 0xFFFFFF80U);
  run = hart_.run(100);
  EXPECT_EQ(run.reason, HartStop::kWfi);
  EXPECT_EQ(run.cycles, 3U);  // the load's two and the WFI
  EXPECT_EQ(hart_.cycles(), 6U);
  EXPECT_EQ(hart_.instret(), 5U);
}

TEST_F(HartTest, FailedDeviceAccessTraps) {
  load({rv::lw(4, 8, 2)});
  hart_.set_reg(2, kDevice);
  EXPECT_EQ(hart_.run(100).reason, HartStop::kMmio);
  hart_.fail_mmio();
  EXPECT_EQ(hart_.pc(), kHandler);
  EXPECT_EQ(hart_.csr(kCsrMcause), kCauseLoadAccess);
  EXPECT_EQ(hart_.csr(kCsrMtval), kDevice + 8);
  EXPECT_THROW(hart_.complete_mmio(0), std::logic_error);
}

TEST_F(HartTest, StoreToCodeIsExecuted) {
  // Overwrites the addi behind it after that one has been decoded once.
  write(kCode, {rv::auipc(2, 0), rv::addi(1, 1, 1), rv::sw(3, 4, 2), rv::bne(1, 4, -8), rv::kWfi});
  hart_.set_reg(3, rv::addi(1, 1, 100));
  hart_.set_reg(4, 101);
  EXPECT_EQ(hart_.run(100).reason, HartStop::kWfi);
  EXPECT_EQ(hart_.reg(1), 101U);
}

TEST_F(HartTest, BreakpointStopsOnceBeforeItsInstruction) {
  write(kCode, {rv::addi(1, 1, 1), rv::addi(2, 2, 1), rv::jal(0, -8)});
  hart_.set_breakpoint(kCode + 4);
  EXPECT_EQ(hart_.run(100).reason, HartStop::kBreak);
  EXPECT_EQ(hart_.pc(), kCode + 4);
  EXPECT_EQ(hart_.reg(2), 0U);
  EXPECT_EQ(hart_.run(100).reason, HartStop::kBreak);
  EXPECT_EQ(hart_.reg(2), 1U);
  EXPECT_EQ(hart_.reg(1), 2U);
  hart_.clear_breakpoint(kCode + 4);
  EXPECT_EQ(hart_.run(100).reason, HartStop::kBudget);
}

TEST_F(HartTest, BreakpointThatIsSetAgainBehindAStepStopsAgain) {
  write(kCode, {rv::addi(1, 1, 1), rv::addi(2, 2, 1), rv::jal(0, -8)});
  hart_.set_breakpoint(kCode);
  EXPECT_EQ(hart_.run(100).reason, HartStop::kBreak);
  hart_.clear_breakpoint(kCode);  // as debuggers step over one
  EXPECT_EQ(hart_.run(1).reason, HartStop::kBudget);
  hart_.set_breakpoint(kCode);
  EXPECT_EQ(hart_.run(100).reason, HartStop::kBreak);
  EXPECT_EQ(hart_.reg(1), 1U);
  hart_.clear_breakpoint(kCode);
  hart_.set_breakpoint(kCode + 4);  // in place of a step
  EXPECT_EQ(hart_.run(100).reason, HartStop::kBreak);
  EXPECT_EQ(hart_.pc(), kCode + 4);
  EXPECT_EQ(hart_.reg(2), 1U);
}

TEST_F(HartTest, StopsChangeNoCycle) {
  // A device access, a load and a store in a loop, in slices as a wrapper runs them.
  const auto trace = [&](bool debugged) {
    hart_.reset(kCode);
    hart_.set_reg(2, kData);
    hart_.set_reg(3, kDevice);
    const HartWatch watch{kData + 4, 4, true, true};
    if (debugged) {
      hart_.set_breakpoint(kCode + 4);
      hart_.set_watch(watch);
    }
    std::vector<uint64_t> ends;
    for (int slice = 0; slice < 40; ++slice) {
      uint64_t cycles = 0;
      while (cycles < 17) {
        const HartRun part = hart_.run(17 - cycles);
        cycles += part.cycles;
        if (part.reason == HartStop::kMmio) {
          hart_.complete_mmio(7);
          break;
        }
      }
      ends.push_back(cycles << 32 | hart_.pc());
    }
    hart_.clear_breakpoint(kCode + 4);
    hart_.clear_watch(watch);
    return ends;
  };
  write(kCode, {rv::addi(1, 1, 1), rv::sw(1, 4, 2), rv::lw(4, 4, 2), rv::addi(5, 5, 1),
                rv::lw(6, 0, 3), rv::jal(0, -20)});
  EXPECT_EQ(trace(true), trace(false));
}

TEST_F(HartTest, WatchStopsBehindTheAccess) {
  write(kCode, {rv::sb(1, 6, 2), rv::lw(4, 4, 2), rv::lw(6, 8, 3), rv::sw(1, 8, 2), rv::kWfi});
  hart_.set_reg(1, 0x5A);
  hart_.set_reg(2, kData);
  hart_.set_reg(3, kDevice);
  const HartWatch writes{kData + 4, 4, false, true};
  const HartWatch reads{kData + 4, 4, true, false};
  const HartWatch device{kDevice + 8, 4, true, true};
  hart_.set_watch(writes);
  hart_.set_watch(reads);
  hart_.set_watch(device);
  EXPECT_EQ(hart_.run(100).reason, HartStop::kWatch);
  EXPECT_EQ(hart_.pc(), kCode + 4);
  EXPECT_EQ(hart_.watch_hit(), writes);
  EXPECT_EQ(hart_.run(100).reason, HartStop::kWatch);
  EXPECT_EQ(hart_.pc(), kCode + 8);
  EXPECT_EQ(hart_.reg(4), 0x5A0000U);
  EXPECT_EQ(hart_.watch_hit(), reads);
  EXPECT_EQ(hart_.run(100).reason, HartStop::kMmio);
  EXPECT_FALSE(hart_.watch_hit());
  hart_.complete_mmio(9);
  EXPECT_EQ(hart_.watch_hit(), device);
  EXPECT_EQ(hart_.run(100).reason, HartStop::kWfi);  // the store beside the watched word
  EXPECT_FALSE(hart_.watch_hit());
}

TEST_F(HartTest, DebuggerReadsAndWritesMemories) {
  write(kCode, {rv::addi(1, 1, 1), rv::kWfi});
  EXPECT_EQ(hart_.run(1).reason, HartStop::kBudget);  // decoded by now
  std::array<uint8_t, 4> word{};
  ASSERT_TRUE(hart_.read_memory(kCode, word));
  uint32_t insn = rv::addi(1, 1, 5);
  std::memcpy(word.data(), &insn, sizeof insn);
  ASSERT_TRUE(hart_.write_memory(kCode, word));
  hart_.set_pc(kCode);
  hart_.run(1);
  EXPECT_EQ(hart_.reg(1), 6U);
  EXPECT_FALSE(hart_.read_memory(kCode + kSize - 2, word));
  EXPECT_FALSE(hart_.write_memory(kDevice, word));
}

TEST_F(HartTest, DebuggerThatMovesThePcTakesTheDeviceAccessBack) {
  write(kCode, {rv::lw(6, 8, 3), rv::addi(1, 1, 1), rv::kWfi});
  hart_.set_reg(3, kDevice);
  EXPECT_EQ(hart_.run(100).reason, HartStop::kMmio);
  hart_.set_pc(kCode + 4);
  EXPECT_FALSE(hart_.mmio_pending());
  EXPECT_EQ(hart_.run(100).reason, HartStop::kWfi);
  EXPECT_EQ(hart_.reg(1), 1U);
}

TEST_F(HartTest, CountersAreReadableAndWritable) {
  write(kCode, {rv::kNop, rv::csrrs(1, kCsrMcycle, 0), rv::csrrs(2, kCsrMinstret, 0),
                rv::csrrw(0, kCsrMinstret, 3), rv::csrrs(4, kCsrMinstret, 0),
                rv::csrrs(5, kCsrMhartid, 0), rv::csrrs(6, kCsrMisa, 0), rv::kWfi});
  hart_.set_reg(3, 1000);
  hart_.advance_cycles(50);
  hart_.run(100);
  EXPECT_EQ(hart_.reg(1), 51U);
  EXPECT_EQ(hart_.reg(2), 2U);
  EXPECT_EQ(hart_.reg(4), 1000U);
  EXPECT_EQ(hart_.reg(5), 5U);
  EXPECT_EQ(hart_.reg(6), 0x40001104U);
}

TEST_F(HartTest, BranchesAndJumpsBetweenMemories) {
  std::vector<uint8_t> rom(64);
  hart_.add_memory({kCode + kSize, 64, rom.data(), false, true});
  const uint32_t back = rv::jal(6, -64);
  std::memcpy(rom.data(), &back, 4);
  write(kCode + kSize - 64, {rv::kWfi});
  write(kCode + kSize - 32, {rv::bne(1, 0, 32)});  // compressed and long far branches share a path
  hart_.set_reg(1, 1);
  hart_.set_pc(kCode + kSize - 32);
  EXPECT_EQ(hart_.run(100).reason, HartStop::kWfi);
  EXPECT_EQ(hart_.reg(6), kCode + kSize + 4);
  EXPECT_EQ(hart_.pc(), kCode + kSize - 60);
}

TEST(Hart, RefusesBadMemories) {
  std::vector<uint8_t> bytes(64);
  Hart hart(0, kTiming);
  EXPECT_THROW(hart.add_memory({0, 63, bytes.data(), true, true}), std::invalid_argument);
  EXPECT_THROW(hart.add_memory({2, 64, bytes.data(), true, true}), std::invalid_argument);
  EXPECT_THROW(hart.add_memory({0, 64, nullptr, true, true}), std::invalid_argument);
  hart.add_memory({64, 64, bytes.data(), true, true});
  EXPECT_THROW(hart.add_memory({32, 64, bytes.data(), true, true}), std::invalid_argument);
  EXPECT_THROW(hart.add_memory({100, 4, bytes.data(), true, true}), std::invalid_argument);
}

}  // namespace
}  // namespace tpu::model
