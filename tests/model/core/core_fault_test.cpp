// What goes wrong in a core: every fault with its record, deadlock reports, abort, watchdog,
// restart afterwards.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core_bench.hpp"
#include "tpu/spec/fault_regs.hpp"

namespace tpu::model::test {
namespace {

using spec::Queue;
const std::vector<std::string> kOneCore = {"board.chips=1", "board.torus_x=1",
                                           "board.cores_per_chip=1"};

class CoreFault : public ::testing::Test {
 protected:
  // Runs the program; slot 0 has 4 KiB.
  void run(ProgramBuilder& p, uint32_t slots = 1) {
    bench.bind_slot(0, 0, 0x10000, 4096);
    bench.load(0, p.image(1), slots, 1);
    bench.write32(0, CoreBench::kSeq, spec::seq::kLaunch, 55);
    bench.write32(0, CoreBench::kSeq, spec::seq::kStep, 3);
    bench.start(0);
    bench.run();
  }
  void expect_fault(uint16_t code, Queue queue) { expect_fault(code, static_cast<uint8_t>(queue)); }
  void expect_fault(uint16_t code, uint8_t engine = spec::fault::kEngineSequencer) {
    EXPECT_EQ(bench.state(0), spec::seq::kStateFaulted);
    EXPECT_TRUE(bench.irqs[1].read());
    EXPECT_TRUE(bench.irqs[2].read());
    const tpu_fault_record_t record = bench.fault_record(0);
    EXPECT_EQ(record.code, code) << bench.cores[0]->fault().text();
    EXPECT_EQ(record.engine, engine);
    EXPECT_EQ(record.launch_id, 55u);
    EXPECT_EQ(record.step, 3u);
    EXPECT_NE(bench.cores[0]->fault().text(), "");
  }
  CoreBench bench{"board", {.overrides = kOneCore}};
};

TEST_F(CoreFault, VmemRange) {
  ProgramBuilder p;
  const int64_t end = bench.params.core.vmem_kib * 1024;
  p.nop(Queue::kDmaIn, Sync());
  const uint32_t word = p.here();
  p.copy(Queue::kDmaIn, hbm(0, 0), vmem(end - 256), 512, Sync());
  p.halt();
  run(p);
  expect_fault(TPU_FAULT_VMEM_RANGE, Queue::kDmaIn);
  const tpu_fault_record_t record = bench.fault_record(0);
  EXPECT_EQ(record.pc, word);
  EXPECT_EQ(record.address, static_cast<uint64_t>(end - 256));
  EXPECT_EQ(record.length, 512u);
}

TEST_F(CoreFault, SlotRangeAndUnboundSlot) {
  ProgramBuilder p;
  p.copy(Queue::kDmaOut, vmem(0), hbm(0, 4000), 97, Sync());
  p.halt();
  run(p);
  expect_fault(TPU_FAULT_SLOT_RANGE, Queue::kDmaOut);
  EXPECT_EQ(bench.fault_record(0).address, 4000u);
  ProgramBuilder q;
  q.copy(Queue::kDmaOut, vmem(0), hbm(9, 0), 4, Sync());
  q.halt();
  run(q);
  expect_fault(TPU_FAULT_SLOT_RANGE, Queue::kDmaOut);
  EXPECT_EQ(bench.fault_record(0).slot, 9u);
}

TEST_F(CoreFault, NegativeStridesAreChecked) {
  ProgramBuilder p;
  spec::DmaCommand c;
  c.src = hbm(0, 0), c.dst = vmem(60), c.elem_bytes = 4;
  c.counts = {1, 1, 1, 1, 17};
  c.src_strides = {0, 0, 0, 0, 4};
  c.dst_strides = {0, 0, 0, 0, -4};
  p.command(c, spec::Opcode::kDma, Queue::kDmaIn, Sync());
  p.halt();
  run(p);
  expect_fault(TPU_FAULT_VMEM_RANGE, Queue::kDmaIn);
  EXPECT_EQ(bench.fault_record(0).address, static_cast<uint64_t>(-4));
  EXPECT_EQ(bench.fault_record(0).length, 68u);
}

TEST_F(CoreFault, SmemRangeOfLoad) {
  ProgramBuilder p;
  p.scalar(spec::ScalarOp::kLds64, 1, 0, 0,
           static_cast<int32_t>(bench.params.core.smem_kib * 1024 - 4));
  p.halt();
  run(p);
  expect_fault(TPU_FAULT_SMEM_RANGE);
}

TEST_F(CoreFault, IllegalInstructionAndRunningOffTheCode) {
  ProgramBuilder p;
  p.scalar(static_cast<spec::ScalarOp>(200));
  run(p);
  expect_fault(TPU_FAULT_ILLEGAL_INSN);
  ProgramBuilder q;
  q.scalar(spec::ScalarOp::kJmp, 0, 0, 0, 1000);
  run(q);
  expect_fault(TPU_FAULT_ILLEGAL_INSN);
  EXPECT_EQ(bench.fault_record(0).pc, 1000u);
}

TEST_F(CoreFault, DescriptorRules) {
  struct Case {
    uint32_t detail;
    std::function<void(ProgramBuilder&)> make;
  };
  const std::vector<Case> cases = {
      {spec::fault::kDetailOpcodeQueue,
       [](ProgramBuilder& p) {
         p.command(spec::FillCommand{}, spec::Opcode::kFill, Queue::kXlu, Sync());
       }},
      {spec::fault::kDetailSemaphore,
       [](ProgramBuilder& p) { p.nop(Queue::kXlu, Sync().signal(200)); }},
      {spec::fault::kDetailSemaphore,
       [](ProgramBuilder& p) { p.nop(Queue::kXlu, Sync().remote(1, 0)); }},
      {spec::fault::kDetailRegister,
       [](ProgramBuilder& p) { p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0, 40), 4, Sync()); }},
      {spec::fault::kDetailRegister,
       [](ProgramBuilder& p) { p.copy(Queue::kDmaIn, hbm(0, 0, 0, 40), vmem(0), 4, Sync()); }},
      {spec::fault::kDetailSpace,
       [](ProgramBuilder& p) { p.copy(Queue::kDmaIn, vmem(0), hbm(0, 0), 4, Sync()); }},
      {spec::fault::kDetailSpace,  // VMEM has no slots
       [](ProgramBuilder& p) {
         spec::Addr dst = vmem(0);
         dst.slot_reg = 5;
         p.copy(Queue::kDmaIn, hbm(0, 0), dst, 4, Sync());
       }},
      {spec::fault::kDetailSpace,
       [](ProgramBuilder& p) {
         spec::MatmulCommand c{};
         c.out = vmem(0), c.lhs = vmem(4096), c.rhs = vmem(8192);
         c.rhs.slot_reg = 5;
         c.m = {1, 1, 1, 8}, c.t = {1, 1, 1}, c.k = {1, 1, 128}, c.n = {1, 128};
         p.command(c, spec::Opcode::kMatmul, Queue::kMxu0, Sync());
       }},
      {spec::fault::kDetailType,
       [](ProgramBuilder& p) {
         spec::FillCommand c;
         c.dst = vmem(0), c.elem_bytes = 3, c.counts = {1, 1, 1, 1, 1};
         p.command(c, spec::Opcode::kFill, Queue::kDmaIn, Sync());
       }},
      {spec::fault::kDetailType,  // as large as a billion commands, all of it on one byte
       [](ProgramBuilder& p) {
         spec::FillCommand c;
         c.dst = vmem(0), c.elem_bytes = 4, c.counts = {1u << 30, 1, 1, 1, 1};
         p.command(c, spec::Opcode::kFill, Queue::kDmaIn, Sync());
       }},
      {spec::fault::kDetailType,  // rows without a stride: fits VMEM, but never ends
       [](ProgramBuilder& p) {
         spec::MatmulCommand c{};
         c.out = vmem(0), c.lhs = vmem(4096), c.rhs = vmem(8192);
         c.m = {1, 1, 1, 1u << 31}, c.t = {1, 1, 1}, c.k = {1, 1, 128}, c.n = {1, 128};
         p.command(c, spec::Opcode::kMatmul, Queue::kMxu0, Sync());
       }},
      {spec::fault::kDetailOpcodeQueue,  // this board has two
       [](ProgramBuilder& p) { p.nop(Queue::kMxu2, Sync()); }},
      {spec::fault::kDetailVpuProgram,
       [](ProgramBuilder& p) {
         p.unary_kernel(static_cast<spec::VpuOp>(250), 0, 4096, 64, Sync());
       }},
  };
  for (const Case& c : cases) {
    ProgramBuilder p;
    c.make(p);
    p.halt();
    run(p);
    EXPECT_EQ(bench.fault_record(0).code, TPU_FAULT_DESCRIPTOR);
    EXPECT_EQ(bench.fault_record(0).detail, c.detail) << bench.cores[0]->fault().text();
    EXPECT_EQ(bench.fault_record(0).pc, 0u);
  }
}

// The value does not fall below zero: nothing is taken.
TEST_F(CoreFault, TwoWaitsThatTakeFromOneSemaphore) {
  ProgramBuilder p;
  p.nop(Queue::kVpu, Sync().signal(6, 1));
  p.nop(Queue::kXlu, Sync().wait(6).wait(6));
  p.halt();
  run(p);
  expect_fault(TPU_FAULT_DESCRIPTOR, Queue::kXlu);
  EXPECT_EQ(bench.fault_record(0).detail, spec::fault::kDetailSemaphore);
  EXPECT_LE(bench.cores[0]->sem().value(6), 1u);
}

TEST_F(CoreFault, SemaphoreRules) {
  ProgramBuilder nonzero;
  nonzero.nop(Queue::kVpu, Sync().signal(6, 2));
  nonzero.halt();
  run(nonzero);
  expect_fault(TPU_FAULT_SEM_NONZERO_AT_END);
  EXPECT_EQ(bench.fault_record(0).sem_id, 6u);
  EXPECT_EQ(bench.fault_record(0).sem_value, 2u);

  bench.write32(0, CoreBench::kSem, spec::sem::kClear, 1);
  ProgramBuilder two;
  two.nop(Queue::kVpu, Sync().wait(6));
  two.nop(Queue::kXlu, Sync().wait(6));
  two.halt();
  run(two);
  expect_fault(TPU_FAULT_SEM_TWO_WAITERS, Queue::kXlu);
  EXPECT_NE(bench.cores[0]->fault().text().find(
                "xlu waits for semaphore 6, for which vpu waits or has waited: a semaphore has one "
                "waiting queue for the whole program; signal another semaphore for xlu"),
            std::string::npos)
      << bench.cores[0]->fault().text();

  ProgramBuilder later;  // the wait of the first is over
  later.nop(Queue::kDmaIn, Sync().signal(6, 1));
  later.nop(Queue::kVpu, Sync().wait(6).signal(7, 1));
  later.scalar(spec::ScalarOp::kSwait, 0, 7, 0, 1);
  later.scalar(spec::ScalarOp::kSsignal, 0, 6, 0, 1);
  later.scalar(spec::ScalarOp::kSwait, 0, 6, 0, 1);
  later.halt();
  run(later);
  expect_fault(TPU_FAULT_SEM_TWO_WAITERS);
  EXPECT_NE(bench.cores[0]->fault().text().find(
                "sequencer waits for semaphore 6, for which vpu waits or has waited"),
            std::string::npos)
      << bench.cores[0]->fault().text();
  bench.write32(0, CoreBench::kSem, spec::sem::kClear, 1);

  ProgramBuilder overflow;  // up to the limit, and one beyond
  overflow.scalar(spec::ScalarOp::kSsignal, 0, 7, 0, spec::sem::kLimit);
  overflow.scalar(spec::ScalarOp::kSsignal, 0, 7, 0, 1);
  overflow.scalar(spec::ScalarOp::kSwait, 0, 8, 0, 1);
  run(overflow);
  expect_fault(TPU_FAULT_SEM_OVERFLOW);
  EXPECT_EQ(bench.read32(0, CoreBench::kSem, spec::sem::kValue + 7 * spec::sem::kValueStride),
            spec::sem::kLimit);
}

TEST_F(CoreFault, BadImageAndBadSlotTable) {
  ProgramBuilder p;
  p.halt();
  auto image = p.image(1);
  image[0] ^= 1;
  bench.load(0, image, 0, 1);
  bench.start(0);
  bench.run();
  EXPECT_EQ(bench.fault_record(0).detail, spec::fault::kDetailImage);
  bench.load(0, p.image(1), 1, 1);
  bench.bind_slot(0, 0, 0x10001, 4096);
  bench.write32(0, CoreBench::kSeq, spec::seq::kSlotCheck, 1);
  EXPECT_EQ(bench.read32(0, CoreBench::kSeq, spec::seq::kSlotResult),
            spec::seq::kSlotResultBadMask);
  bench.start(0);
  bench.run();
  EXPECT_EQ(bench.fault_record(0).detail, spec::fault::kDetailSlotTable);
  const auto slot_good = [this](uint8_t mode, uint8_t flags) {
    bench.bind_slot(0, 0, 0x10000, 4096, mode, flags);
    bench.write32(0, CoreBench::kSeq, spec::seq::kSlotCheck, 1);
    return (bench.read32(0, CoreBench::kSeq, spec::seq::kSlotResult) &
            spec::seq::kSlotResultBadMask) == 0;
  };
  EXPECT_TRUE(slot_good(TPU_SLOT_FIXED, TPU_SLOT_FLAG_FRESH));
  EXPECT_FALSE(slot_good(TPU_SLOT_FIXED, 2));
  EXPECT_FALSE(slot_good(TPU_SLOT_NULL, TPU_SLOT_FLAG_FRESH));
}

TEST_F(CoreFault, ABankHoldsAsManySlotsAsALaunchMayHave) {
  constexpr uint32_t kLast = spec::seq::kSlotEntries - 1;
  static_assert(spec::seq::kSlotEntries == TPU_MAX_SLOTS);
  for (uint32_t slot = 0; slot <= kLast; ++slot) {
    bench.bind_slot(0, slot, 0x10000 + 64 * uint64_t{slot}, 64);
  }
  const auto checked = [this] {
    bench.write32(0, CoreBench::kSeq, spec::seq::kSlotCheck, spec::seq::kSlotEntries);
    return bench.read32(0, CoreBench::kSeq, spec::seq::kSlotResult);
  };
  EXPECT_EQ(checked(), 0U);
  ProgramBuilder p;
  p.copy(Queue::kDmaIn, hbm(kLast, 0), vmem(0), 64, Sync());
  p.halt();
  bench.load(0, p.image(1), spec::seq::kSlotEntries, 1);
  bench.start(0);
  bench.run();
  EXPECT_EQ(bench.state(0), spec::seq::kStateDone);
  bench.bind_slot(0, kLast, 0x10001, 64);
  EXPECT_EQ(checked(), spec::seq::kSlotResultBadMask | kLast);
}

// The core is usable after a fault; commands in flight ended without signals.
TEST_F(CoreFault, RunsAgainAfterAFault) {
  ProgramBuilder bad;
  bad.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), 4096, Sync().signal(1));
  bad.copy(Queue::kDmaIn, hbm(0, 4096), vmem(0), 4096, Sync());
  bad.halt();
  run(bad);
  expect_fault(TPU_FAULT_SLOT_RANGE, Queue::kDmaIn);
  EXPECT_EQ(bench.read32(0, CoreBench::kSem, spec::sem::kNonzero), 0u);
  ProgramBuilder good;
  good.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), 4096, Sync());
  good.halt();
  run(good);
  EXPECT_EQ(bench.state(0), spec::seq::kStateDone);
  EXPECT_EQ(bench.fault_record(0).code, 0u);
  EXPECT_TRUE(bench.irqs[0].read());
  EXPECT_FALSE(bench.irqs[1].read());
}

TEST_F(CoreFault, DeadlockIsQuietAndToldInWords) {
  ProgramBuilder p;
  p.nop(Queue::kVpu, Sync().wait(3).signal(4));
  p.nop(Queue::kXlu, Sync().wait(4).signal(3));
  p.halt();
  run(p);
  EXPECT_TRUE(bench.activity.quiet());
  EXPECT_EQ(bench.state(0), spec::seq::kStateRunning);
  EXPECT_FALSE(bench.cores[0]->quiet());
  using For = spec::UnitWait::For;
  const std::vector<spec::UnitWait> waits = bench.cores[0]->waits();
  ASSERT_EQ(waits.size(), 3u);
  EXPECT_EQ(waits[0].at.unit, "sequencer");
  EXPECT_EQ(waits[0].what, For::kEngines);
  EXPECT_EQ(waits[1].at.unit, "vpu");
  EXPECT_EQ(waits[1].at.pc, 0u);
  EXPECT_EQ(waits[1].what, For::kSemaphore);
  EXPECT_EQ(waits[1].index, 3u);
  EXPECT_EQ(waits[1].wanted, 1u);
  EXPECT_EQ(waits[1].value, 0u);
  const auto ender = bench.cores[0]->signaller(0, 3, true);
  ASSERT_TRUE(ender);
  EXPECT_EQ(ender->at, waits[2].at);
  EXPECT_EQ(ender->at.unit, "xlu");
  EXPECT_EQ(ender->behind, 0u);
  EXPECT_FALSE(bench.cores[0]->signaller(0, 3, false)) << "nothing is left to issue";

  bench.write32(0, CoreBench::kSeq, spec::seq::kAbort, 1);
  bench.run();
  EXPECT_EQ(bench.state(0), spec::seq::kStateAborted);
  EXPECT_TRUE(bench.irqs[2].read());
  EXPECT_FALSE(bench.irqs[1].read());
  EXPECT_TRUE(bench.cores[0]->quiet());
}

TEST_F(CoreFault, WatchdogSeesNoProgressButToleratesLongCommands) {
  ProgramBuilder p;
  p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), 4096, Sync());
  p.nop(Queue::kVpu, Sync().wait(3));
  p.halt();
  bench.write32(0, CoreBench::kSeq, spec::seq::kWatchdogLo, 100);  // shorter than the transfer
  bench.bind_slot(0, 0, 0x10000, 4096);
  bench.load(0, p.image(1), 1, 1);
  bench.start(0);
  bench.run();
  sc_core::sc_start(from_cycles(10000));
  EXPECT_EQ(bench.state(0), spec::seq::kStateFaulted);
  const tpu_fault_record_t record = bench.fault_record(0);
  EXPECT_EQ(record.code, TPU_FAULT_WATCHDOG);
  EXPECT_GT(record.cycle, bench.cycles(bench.params.dma.in_fixed_ns));
  EXPECT_EQ(record.heads[2].state, spec::fault::kQueueWaiting);
  EXPECT_EQ(record.heads[2].sem, 3u);
}

// Scalar instructions, nops and signals to itself are no progress.
TEST_F(CoreFault, WatchdogEndsLoopsThatDoNothing) {
  ProgramBuilder p;
  p.nop(Queue::kXlu, Sync());
  p.scalar(spec::ScalarOp::kSsignal, 0, 5, 0, 1);
  p.scalar(spec::ScalarOp::kSwait, 0, 5, 0, 1);
  p.scalar(spec::ScalarOp::kJmp, 0, 0, 0, 0);
  bench.write32(0, CoreBench::kSeq, spec::seq::kWatchdogLo, 5000);
  bench.load(0, p.image(1), 1, 1);
  bench.start(0);
  sc_core::sc_start(from_cycles(20000));
  EXPECT_EQ(bench.state(0), spec::seq::kStateFaulted);
  EXPECT_EQ(bench.fault_record(0).code, TPU_FAULT_WATCHDOG);
}

TEST_F(CoreFault, AbortLetsStartedCommandsEndWithoutSignals) {
  ProgramBuilder p;
  p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), 4096, Sync().signal(1));
  p.nop(Queue::kVpu, Sync().wait(1));
  p.halt();
  bench.bind_slot(0, 0, 0x10000, 4096);
  bench.load(0, p.image(1), 1, 1);
  bench.start(0);
  sc_core::sc_start(from_cycles(50));
  bench.write32(0, CoreBench::kSeq, spec::seq::kAbort, 1);
  sc_core::sc_start(from_cycles(1));
  EXPECT_NE(bench.read32(0, CoreBench::kSeq, spec::seq::kState) & spec::seq::kStateBusyMask, 0u);
  EXPECT_FALSE(bench.irqs[2].read());
  bench.start(0);  // refused while busy
  EXPECT_NE(bench.read32(0, CoreBench::kSeq, spec::seq::kState) & spec::seq::kStateRefusedMask, 0u);
  bench.run();
  EXPECT_EQ(bench.state(0), spec::seq::kStateAborted);
  EXPECT_TRUE(bench.irqs[2].read());
  EXPECT_EQ(bench.read32(0, CoreBench::kSem, spec::sem::kNonzero), 0u);
  EXPECT_EQ(bench.cores[0]->counters()[spec::perf::kCommands], 1u);
}

// Scalar instructions carry no op: the record names that of the command or mark in front.
TEST_F(CoreFault, FaultsOfTheSequencerNameTheOpAtThePc) {
  const auto op_of_fault = [this](uint16_t code, const std::function<void(ProgramBuilder&)>& end) {
    ProgramBuilder p;
    p.scalar(spec::ScalarOp::kLi, 3, 0, 0, 1 << 20);
    p.nop(Queue::kVpu, Sync());
    p.scalar(spec::ScalarOp::kMarkb, 0, 0, 0, 77);
    p.nop(Queue::kXlu, Sync());
    p.scalar(spec::ScalarOp::kMarke, 0, 0, 0, 77);
    p.scalar(spec::ScalarOp::kAddi, 4, 3, 0, 1);
    end(p);
    p.halt();
    p.nop(Queue::kVpu, Sync());
    run(p);
    expect_fault(code);
    return bench.fault_record(0).op_id;
  };
  const uint32_t smem = static_cast<uint32_t>(bench.params.core.smem_kib * 1024);
  EXPECT_EQ(op_of_fault(TPU_FAULT_SMEM_RANGE,
                        [](ProgramBuilder& p) { p.scalar(spec::ScalarOp::kLds32, 1, 3, 0, 8); }),
            77u);
  const tpu_fault_record_t record = bench.fault_record(0);
  EXPECT_EQ(record.address, (1u << 20) + 8);
  EXPECT_EQ(record.detail, spec::fault::kDetailAddress);
  EXPECT_EQ(record.value, 1 << 20);
  EXPECT_EQ(record.limit, int64_t{smem} - 4 - 8);
  EXPECT_EQ(op_of_fault(TPU_FAULT_ILLEGAL_INSN,
                        [](ProgramBuilder& p) { p.scalar(static_cast<spec::ScalarOp>(200)); }),
            77u);
  EXPECT_EQ(op_of_fault(TPU_FAULT_SEM_NONZERO_AT_END,
                        [](ProgramBuilder& p) { p.scalar(spec::ScalarOp::kSsignal, 0, 3, 0, 1); }),
            77u);
  // Nothing of the program is at fault, or nothing is known of the place.
  ProgramBuilder q;
  q.nop(Queue::kVpu, Sync());
  q.scalar(spec::ScalarOp::kJmp, 0, 0, 0, 1000);
  run(q);
  EXPECT_EQ(bench.fault_record(0).op_id, TPU_OP_NONE);
  bench.bind_slot(0, 0, 0x10001, 4096);
  bench.start(0);
  bench.run();
  EXPECT_EQ(bench.fault_record(0).detail, spec::fault::kDetailSlotTable);
  EXPECT_EQ(bench.fault_record(0).op_id, TPU_OP_NONE);
}

// An address that a register brings: the record says which value, and how far it may go.
TEST_F(CoreFault, AddressesFromRegistersNameValueAndLimit) {
  const auto expect = [this](uint16_t code, int64_t value, int64_t limit) {
    const tpu_fault_record_t record = bench.fault_record(0);
    EXPECT_EQ(record.code, code) << bench.cores[0]->fault().text();
    EXPECT_EQ(record.detail, spec::fault::kDetailAddress);
    EXPECT_EQ(record.value, value);
    EXPECT_EQ(record.limit, limit);
  };
  ProgramBuilder p;
  p.li(5, 4000);
  p.copy(Queue::kDmaOut, vmem(0), hbm(0, 96, 5), 100, Sync());
  p.halt();
  run(p);
  expect(TPU_FAULT_SLOT_RANGE, 4000, 4096 - 100 - 96);
  EXPECT_EQ(bench.fault_record(0).address, 4096u);
  ProgramBuilder q;
  q.li(5, -8);
  q.unary_kernel(spec::VpuOp::kAbsF, 0, 4096, 64, Sync(), 5);
  q.halt();
  run(q);
  expect(TPU_FAULT_VMEM_RANGE, -8, bench.params.core.vmem_kib * 1024 - 256);
}

// A slot that a register brings: not in the table, or too small for the access. The record names
// the slot that is meant.
TEST_F(CoreFault, SlotsFromRegistersNameTheSlotThatIsMeant) {
  const auto expect = [this](uint32_t detail, uint32_t slot, int64_t value, int64_t limit) {
    const tpu_fault_record_t record = bench.fault_record(0);
    EXPECT_EQ(record.code, TPU_FAULT_SLOT_RANGE) << bench.cores[0]->fault().text();
    EXPECT_EQ(record.detail, detail);
    EXPECT_EQ(record.slot, slot);
    EXPECT_EQ(record.value, value);
    EXPECT_EQ(record.limit, limit);
  };
  bench.bind_slot(0, 1, 0x20000, 64);
  bench.bind_slot(0, 2, 0, 0, TPU_SLOT_NULL);
  const auto run_with = [this](int32_t reg, spec::Addr src) {
    ProgramBuilder p;
    p.li(5, reg);
    p.copy(Queue::kDmaIn, src, vmem(0), 100, Sync());
    p.halt();
    run(p, 3);
  };
  run_with(4, hbm(1, 0, 0, 5));
  expect(spec::fault::kDetailSlot, 5, 4, 1);
  run_with(-3, hbm(1, 0, 0, 5));  // below slot 0
  expect(spec::fault::kDetailSlot, 0, -3, 1);
  run_with(2, hbm(0, 0, 0, 5));  // in the table, without memory
  expect(spec::fault::kDetailSlot, 2, 2, 2);
  run_with(1, hbm(0, 0, 0, 5));  // 100 bytes fit slot 0, not slot 1
  expect(0, 1, 0, 64 - 100);
  run_with(-1, hbm(1, 0, 0, 5));
  EXPECT_EQ(bench.state(0), spec::seq::kStateDone);
}

// A constant of the program has no detail. The record has its value and the largest valid one.
TEST_F(CoreFault, AddressesOfTheProgramNameValueAndLimit) {
  const auto expect = [this](uint16_t code, int64_t value, int64_t limit) {
    const tpu_fault_record_t record = bench.fault_record(0);
    EXPECT_EQ(record.code, code) << bench.cores[0]->fault().text();
    EXPECT_EQ(record.detail, 0u);
    EXPECT_EQ(record.value, value);
    EXPECT_EQ(record.limit, limit);
  };
  const int64_t vmem_bytes = bench.params.core.vmem_kib * 1024;
  const int64_t smem_bytes = bench.params.core.smem_kib * 1024;
  ProgramBuilder slot;
  slot.copy(Queue::kDmaOut, vmem(0), hbm(0, 4000), 100, Sync());
  slot.halt();
  run(slot);
  expect(TPU_FAULT_SLOT_RANGE, 4000, 4096 - 100);
  ProgramBuilder copy;
  copy.copy(Queue::kDmaIn, hbm(0, 0), vmem(static_cast<int32_t>(vmem_bytes) - 8), 100, Sync());
  copy.halt();
  run(copy);
  expect(TPU_FAULT_VMEM_RANGE, vmem_bytes - 8, vmem_bytes - 100);
  ProgramBuilder kernel;
  kernel.unary_kernel(spec::VpuOp::kAbsF, vmem_bytes - 128, 0, 64, Sync());
  kernel.halt();
  run(kernel);
  expect(TPU_FAULT_VMEM_RANGE, vmem_bytes - 128, vmem_bytes - 256);
  ProgramBuilder one;  // the other address comes from a register
  one.li(5, 0);
  one.unary_kernel(spec::VpuOp::kAbsF, 0, vmem_bytes - 64, 64, Sync(), 5);
  one.halt();
  run(one);
  expect(TPU_FAULT_VMEM_RANGE, vmem_bytes - 64, vmem_bytes - 256);
  ProgramBuilder scalar;
  scalar.scalar(spec::ScalarOp::kLds32, 1, 0, 0, static_cast<int32_t>(smem_bytes));
  scalar.halt();
  run(scalar);
  expect(TPU_FAULT_SMEM_RANGE, smem_bytes, smem_bytes - 4);
}

// What runs is progress, however long. Granules make this copy of 16 MiB take 11 ms.
TEST_F(CoreFault, ALongTransferIsNoFault) {
  ProgramBuilder p;
  spec::DmaCommand c;
  c.src = hbm(0, 0), c.dst = vmem(0), c.elem_bytes = 1;
  c.counts = {1, 1, 1, 1 << 14, 1 << 10};
  c.src_strides = {0, 0, 0, 0, 4096};
  c.dst_strides = {0, 0, 0, 1 << 10, 1};
  p.command(c, spec::Opcode::kDma, Queue::kDmaIn, Sync());
  p.halt();
  bench.bind_slot(0, 0, 0x10000, 4 << 20);
  bench.load(0, p.image(1), 1, 1);
  bench.write32(0, CoreBench::kSeq, spec::seq::kWatchdogLo, 100'000);
  bench.start(0);
  bench.run();
  EXPECT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
  EXPECT_GT(now_cycles(),
            static_cast<uint64_t>(bench.params.mgmt.watchdog_us * bench.params.core.clock_mhz));
}

class CoreNoData : public ::testing::Test {
 protected:
  void load_word(ProgramBuilder& p, uint8_t reg) {  // from HBM by way of SMEM
    p.copy(Queue::kDmaIn, hbm(0, 0), smem(0), 8, Sync().signal(1));
    p.scalar(spec::ScalarOp::kSwait, 0, 1, 0, 1);
    p.scalar(spec::ScalarOp::kLds32, reg, 0, 0, 4);
  }
  tpu_fault_record_t run(ProgramBuilder& p) {
    p.halt();
    bench.bind_slot(0, 0, 0x10000, 4096);
    bench.load(0, p.image(1), 1, ++version);
    bench.start(0);
    bench.run();
    return bench.fault_record(0);
  }
  CoreBench bench{"board", {.overrides = kOneCore, .no_data = true}};
  uint32_t version = 0;
};

// Where something lies changes no time.
TEST_F(CoreNoData, AddressesFromDataDoNotMatter) {
  ProgramBuilder p;
  load_word(p, 1);
  p.scalar(spec::ScalarOp::kAddi, 2, 1, 0, 64);
  p.copy(Queue::kDmaIn, hbm(0, 0, 2), vmem(0), 4, Sync());
  const uint32_t skip = p.here() + 2;
  p.scalar(spec::ScalarOp::kBneg, 0, 2, 0, static_cast<int32_t>(skip));
  p.scalar(spec::ScalarOp::kSsignal, 0, 9, 0, 1);  // the entry is there
  p.scalar(spec::ScalarOp::kSwait, 0, 9, 0, 1);
  EXPECT_EQ(run(p).code, 0u) << bench.cores[0]->fault().text();
  EXPECT_EQ(bench.state(0), spec::seq::kStateDone);
}

TEST_F(CoreNoData, ControlFlowFromDataIsRefused) {
  ProgramBuilder p;
  load_word(p, 1);
  p.scalar(spec::ScalarOp::kSts32, 0, 0, 1, 64);
  p.scalar(spec::ScalarOp::kLds32, 5, 0, 0, 64);  // by way of memory
  p.scalar(spec::ScalarOp::kXori, 6, 5, 0, 1);    // and of a computation
  const uint32_t pc = p.here();
  p.scalar(spec::ScalarOp::kBeq, 0, 6, 0, static_cast<int32_t>(pc + 1));
  const tpu_fault_record_t record = run(p);
  EXPECT_EQ(record.code, TPU_FAULT_NO_DATA);
  EXPECT_EQ(record.detail, spec::fault::kDetailBranch);
  EXPECT_EQ(record.value, 6);
  EXPECT_EQ(record.pc, pc);
  ProgramBuilder q;  // what the program writes itself is known again
  load_word(q, 1);
  q.scalar(spec::ScalarOp::kSts32, 0, 0, 0, 4);
  q.scalar(spec::ScalarOp::kLds32, 1, 0, 0, 4);
  q.scalar(spec::ScalarOp::kBeq, 0, 1, 0, static_cast<int32_t>(q.here() + 1));
  EXPECT_EQ(run(q).code, 0u) << bench.cores[0]->fault().text();
}

TEST_F(CoreNoData, PeersFromDataAreRefused) {
  ProgramBuilder p;
  load_word(p, 1);
  p.nop(Queue::kDmaRemote, Sync().remote(1, 1));
  const tpu_fault_record_t record = run(p);
  EXPECT_EQ(record.code, TPU_FAULT_NO_DATA);
  EXPECT_EQ(record.detail, spec::fault::kDetailPeerChoice);
}

}  // namespace
}  // namespace tpu::model::test
