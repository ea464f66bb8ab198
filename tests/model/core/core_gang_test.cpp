// Several cores: remote transfers and signals over the interconnect, gang tags, paths, equal
// results on any number of host threads.
#include <gtest/gtest.h>

#include <vector>

#include "core_bench.hpp"
#include "tpu/spec/fault_regs.hpp"

namespace tpu::model::test {
namespace {

using spec::Queue;

std::vector<uint32_t> numbers(size_t count, uint32_t seed) {
  std::vector<uint32_t> data(count);
  for (uint32_t& v : data) {
    seed = seed * 1664525u + 1013904223u;
    v = seed;
  }
  return data;
}

// Every core sends its VMEM block to core (id + shift) mod cores, waits for its own arrival, stores
// it to HBM.
ProgramBuilder shift_program(uint32_t cores, int32_t shift, uint32_t bytes) {
  ProgramBuilder p;
  p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), bytes, Sync().signal(1));
  p.scalar(spec::ScalarOp::kRid, 1);
  p.scalar(spec::ScalarOp::kAddi, 1, 1, 0, shift);
  p.scalar(spec::ScalarOp::kAndi, 1, 1, 0, static_cast<int32_t>(cores - 1));
  p.copy(Queue::kDmaRemote, vmem(0), vmem(0x100000), bytes, Sync().wait(1).remote(2, 1), 1);
  p.copy(Queue::kDmaOut, vmem(0x100000), hbm(1, 0), bytes, Sync().wait(2));
  p.halt();
  return p;
}

TEST(CoreGang, TwoCoresOfAChipExchange) {
  constexpr uint32_t kBytes = 1 << 16;
  CoreBench bench("board", {.overrides = {"board.chips=1", "board.torus_x=1"}});
  const auto image = shift_program(2, 1, kBytes).image(2);
  for (uint32_t core = 0; core < 2; ++core) {
    bench.write(core, CoreBench::kHbm, 0, numbers(kBytes / 4, core));
    bench.bind_slot(core, 0, 0, kBytes);
    bench.bind_slot(core, 1, 0x100000, kBytes);
    bench.load(core, image, 2, 3);
  }
  bench.start(0);
  bench.start(1);
  bench.run();
  for (uint32_t core = 0; core < 2; ++core) {
    ASSERT_EQ(bench.state(core), spec::seq::kStateDone) << bench.cores[core]->fault().text();
    EXPECT_EQ(bench.read<uint32_t>(core, CoreBench::kHbm, 0x100000, kBytes / 4),
              numbers(kBytes / 4, 1 - core));
    // 64 KiB over a core port of 160 GB/s, then the latency inside a chip.
    const DoneEvent& sent = bench.traced(core, Queue::kDmaRemote);
    const double stream = kBytes / (160.0 * 1000 / 940);
    EXPECT_NEAR(static_cast<double>(sent.cycle - sent.start),
                stream + static_cast<double>(bench.cycles(bench.params.ici.local_ns)), 2);
    EXPECT_EQ(bench.traced(core, Queue::kDmaOut).start,
              bench.traced(1 - core, Queue::kDmaRemote).cycle + 1);
    const auto counters = bench.cores[core]->counters();
    EXPECT_EQ(counters[spec::perf::kIciSentBytes], kBytes);
    EXPECT_EQ(counters[spec::perf::kIciReceivedBytes], kBytes);
  }
}

// A core that waits is not stuck while another one works; when all wait, one faults.
TEST(CoreGang, WatchdogWaitsForCoresThatWork) {
  constexpr uint64_t kWatchdog = 20'000;
  CoreBench bench("board", {.overrides = {"board.chips=1", "board.torus_x=1"}});
  ProgramBuilder p;  // core 0 copies 64 times 64 KiB, then signals; core 1 waits for it
  p.scalar(spec::ScalarOp::kRid, 1);
  p.li(2, 1);
  p.li(3, 64);
  const uint32_t branch = p.here();
  p.scalar(spec::ScalarOp::kBeq, 0, 1, 2, 0);
  const uint32_t top = p.here();
  p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), 1 << 16, Sync().signal(1));
  p.scalar(spec::ScalarOp::kSwait, 0, 1, 0, 1);
  p.scalar(spec::ScalarOp::kAddi, 3, 3, 0, -1);
  p.scalar(spec::ScalarOp::kBne, 0, 3, 0, static_cast<int32_t>(top));
  p.nop(Queue::kDmaRemote, Sync().remote(2, 2));
  p.halt();
  p.set_target(branch, p.here());
  p.scalar(spec::ScalarOp::kSwait, 0, 2, 0, 1);
  p.halt();
  const auto image = p.image(1);
  const auto run = [&](uint32_t cores) {
    for (uint32_t core = 0; core < 2; ++core) {
      bench.bind_slot(core, 0, 0, 1 << 16);
      bench.load(core, image, 1, 3);
      bench.write32(core, CoreBench::kSeq, spec::seq::kWatchdogLo, kWatchdog);
    }
    for (uint32_t core = 0; core < 2; ++core) {
      if ((cores >> core & 1) != 0) {
        bench.start(core);
      }
    }
    bench.run();
  };
  const uint64_t before = now_cycles();
  run(0b11);
  EXPECT_GT(now_cycles() - before, 2 * kWatchdog);
  for (uint32_t core = 0; core < 2; ++core) {
    EXPECT_EQ(bench.state(core), spec::seq::kStateDone) << bench.cores[core]->fault().text();
  }
  run(0b10);
  EXPECT_EQ(bench.fault_record(1).code, TPU_FAULT_WATCHDOG);
}

class CoreGangShift : public ::testing::TestWithParam<int> {};

// Bits and cycles are the same whatever the number of host threads; 0: all data come late.
TEST_P(CoreGangShift, EightCoresOverTheTorus) {
  constexpr uint32_t kBytes = 1 << 16;
  const int threads = GetParam();
  CoreBench bench("board",
                  {.threads = threads, .jobs = threads == 0 ? JobTime::kLate : JobTime::kSoon});
  const auto image = shift_program(8, 7, kBytes).image(2);
  for (uint32_t core = 0; core < 8; ++core) {
    bench.write(core, CoreBench::kHbm, 0, numbers(kBytes / 4, core));
    bench.bind_slot(core, 0, 0, kBytes);
    bench.bind_slot(core, 1, 0x100000, kBytes);
    bench.load(core, image, 2, 0xff);
  }
  for (uint32_t core = 0; core < 8; ++core) {
    bench.start(core);
  }
  bench.run();
  for (uint32_t core = 0; core < 8; ++core) {
    ASSERT_EQ(bench.state(core), spec::seq::kStateDone) << bench.cores[core]->fault().text();
    EXPECT_EQ(bench.read<uint32_t>(core, CoreBench::kHbm, 0x100000, kBytes / 4),
              numbers(kBytes / 4, (core + 1) % 8));
    const DoneEvent& sent = bench.traced(core, Queue::kDmaRemote);
    const uint32_t to = (core + 7) % 8;
    const uint32_t hops = bench.ici->hops(core, to);
    // Odd cores send inside their chip. Chips 0 -> 3 and 2 -> 1 are diagonal; the others neighbours
    // in x.
    EXPECT_EQ(hops, core % 2 == 1 ? 0u : (core == 0 || core == 4 ? 2u : 1u));
    const double rate = hops == 0 ? 160.0 * 1000 / 940 : 82.0 * 0.85 * 1000 / 940;
    EXPECT_NEAR(static_cast<double>(sent.cycle - sent.start),
                kBytes / rate + static_cast<double>(bench.ici->data_latency(core, to)), 2);
  }
}
INSTANTIATE_TEST_SUITE_P(Threads, CoreGangShift, ::testing::Values(0, 1, 2, 4));

TEST(CoreGang, RemoteWriteToHbmUsesTheSlotsOfThePeer) {
  constexpr uint32_t kBytes = 4096;
  CoreBench bench("board", {.overrides = {"board.chips=1", "board.torus_x=1"}});
  ProgramBuilder sender;
  sender.li(1, 1);
  sender.copy(Queue::kDmaRemote, hbm(0, 0), hbm(1, 64), kBytes, Sync().remote(5, 1), 1);
  sender.halt();
  ProgramBuilder receiver;
  receiver.nop(Queue::kVpu, Sync().wait(5));
  receiver.halt();
  for (uint32_t core = 0; core < 2; ++core) {
    bench.bind_slot(core, 0, 0x10000, kBytes);
    bench.bind_slot(core, 1, core == 0 ? 0x20000 : 0x777780, kBytes + 64);
  }
  bench.write(0, CoreBench::kHbm, 0x10000, numbers(kBytes / 4, 9));
  bench.load(0, sender.image(2), 2, 3);
  bench.load(1, receiver.image(2), 2, 3);
  bench.start(0);
  bench.start(1);
  bench.run();
  ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
  ASSERT_EQ(bench.state(1), spec::seq::kStateDone) << bench.cores[1]->fault().text();
  EXPECT_EQ(bench.read<uint32_t>(1, CoreBench::kHbm, 0x777780 + 64, kBytes / 4),
            numbers(kBytes / 4, 9));
}

TEST(CoreGang, SignalArrivesBeforeThePeerStarts) {
  CoreBench bench("board", {.overrides = {"board.chips=1", "board.torus_x=1"}});
  ProgramBuilder sender;
  sender.li(1, 1);
  sender.nop(Queue::kDmaRemote, Sync().remote(5, 1));
  sender.halt();
  ProgramBuilder receiver;
  receiver.nop(Queue::kVpu, Sync().wait(5));
  receiver.halt();
  bench.load(0, sender.image(), 0, 3);
  bench.load(1, receiver.image(), 0, 3);
  bench.start(0);
  bench.run();
  EXPECT_EQ(bench.read32(1, CoreBench::kSem, 5 * 4), 1u);
  bench.start(1);
  bench.run();
  EXPECT_EQ(bench.state(1), spec::seq::kStateDone);
  const DoneEvent& sent = bench.traced(0, Queue::kDmaRemote);
  EXPECT_EQ(sent.cycle - sent.start, bench.cycles(bench.params.ici.control_hop_ns));
}

// Core 0 sends a block to core 1, which looks at nothing and is about to halt: its program ends
// when the block has landed, so that it cannot land in the next one.
TEST(CoreGang, ProgramEndsWhenTheWritesOfItsPeersHaveLanded) {
  constexpr uint32_t kBytes = 1 << 16;
  CoreBench bench("board", {.overrides = {"board.chips=1", "board.torus_x=1"}});
  ProgramBuilder sender;
  sender.li(1, 1);
  sender.copy(Queue::kDmaRemote, vmem(0), vmem(0x1000), kBytes, Sync(), 1);
  sender.halt();
  ProgramBuilder receiver;
  for (int i = 0; i < 100; ++i) {
    receiver.li(1, 1);
  }
  receiver.halt();
  bench.write(0, CoreBench::kVmem, 0, numbers(kBytes / 4, 3));
  bench.load(0, sender.image(), 0, 3);
  bench.load(1, receiver.image(), 0, 3);
  bench.start(0);
  bench.start(1);
  bench.run();
  ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
  ASSERT_EQ(bench.state(1), spec::seq::kStateDone) << bench.cores[1]->fault().text();
  const DoneEvent& sent = bench.traced(0, Queue::kDmaRemote);
  EXPECT_GT(sent.cycle - sent.start, 300U);
  EXPECT_GE(bench.cores[1]->counters()[spec::perf::kRunCycles], sent.cycle);
  EXPECT_EQ(bench.read<uint32_t>(1, CoreBench::kVmem, 0x1000, kBytes / 4), numbers(kBytes / 4, 3));
}

// The same when the receiver is aborted: it is not drained before.
TEST(CoreGang, AbortWaitsForTheWritesOfThePeers) {
  constexpr uint32_t kBytes = 1 << 16;
  CoreBench bench("board", {.overrides = {"board.chips=1", "board.torus_x=1"}});
  ProgramBuilder sender;
  sender.li(1, 1);
  sender.copy(Queue::kDmaRemote, vmem(0), vmem(0x1000), kBytes, Sync(), 1);
  sender.halt();
  ProgramBuilder receiver;
  receiver.nop(Queue::kVpu, Sync().wait(9));
  receiver.halt();
  bench.load(0, sender.image(), 0, 3);
  bench.load(1, receiver.image(), 0, 3);
  bench.start(0);
  bench.start(1);
  sc_core::sc_start(from_cycles(100));
  bench.write32(1, CoreBench::kSeq, spec::seq::kAbort, 1);
  sc_core::sc_start(from_cycles(10));
  const auto drained = [&] {
    return (bench.read32(1, CoreBench::kSeq, spec::seq::kIrqStatus) &
            spec::seq::kIrqStatusDrainedMask) != 0;
  };
  EXPECT_FALSE(drained());
  bench.run();
  EXPECT_TRUE(drained());
  EXPECT_EQ(bench.state(0), spec::seq::kStateDone);
}

// What comes after the receiver's end is refused, whether it has bound its next launch or not, and
// the sender is told. Nothing is left for the next program.
TEST(CoreGang, PacketForAnEndedStepFaultsItsSender) {
  CoreBench bench("board", {.overrides = {"board.chips=1", "board.torus_x=1"}});
  ProgramBuilder signal;
  ProgramBuilder write;
  for (ProgramBuilder* sender : {&signal, &write}) {
    for (int i = 0; i < 200; ++i) {
      sender->li(1, 1);
    }
  }
  signal.nop(Queue::kDmaRemote, Sync().remote(5, 1));
  signal.halt();
  write.copy(Queue::kDmaRemote, vmem(0), vmem(64), 64, Sync(), 1);
  write.halt();
  ProgramBuilder receiver;
  receiver.halt();
  bench.write(0, CoreBench::kVmem, 0, numbers(16, 1));
  uint32_t tag = 20;
  uint32_t stale = 0;
  for (ProgramBuilder* sender : {&signal, &write}) {
    for (const bool bound_next : {false, true}) {
      bench.load(0, sender->image(), 0, 3, tag);
      bench.load(1, receiver.image(), 0, 3, tag);
      bench.start(0);
      bench.start(1);
      sc_core::sc_start(from_cycles(100));
      ASSERT_EQ(bench.state(1), spec::seq::kStateDone) << bench.cores[1]->fault().text();
      tag += 2;
      if (bound_next) {
        bench.write32(1, CoreBench::kSeq, spec::seq::kTag, tag - 1);
      }
      bench.run();
      EXPECT_EQ(bench.state(0), spec::seq::kStateFaulted);
      EXPECT_EQ(bench.fault_record(0).code, TPU_FAULT_REMOTE_STRAY);
      EXPECT_EQ(bench.fault_record(0).detail, spec::fault::kDetailPeerEnded);
      EXPECT_EQ(bench.read32(1, CoreBench::kSem, 5 * 4), 0u);
      EXPECT_EQ(bench.read32(1, CoreBench::kSem, spec::sem::kStale), ++stale);
      EXPECT_EQ(bench.read<uint32_t>(1, CoreBench::kVmem, 64, 16), std::vector<uint32_t>(16, 0));
    }
  }
}

// A reset of the receiver (it has drained an aborted gang) keeps what the gang still sends apart
// from packets of unknown gangs.
TEST(CoreGang, PacketsOfAnAbortedGangAreDropped) {
  CoreBench bench("board", {.overrides = {"board.chips=1", "board.torus_x=1"}});
  ProgramBuilder sender;
  sender.li(1, 1);
  sender.copy(Queue::kDmaRemote, vmem(0), vmem(64), 64, Sync().remote(5, 1), 1);
  sender.halt();
  bench.write(0, CoreBench::kVmem, 0, numbers(16, 1));
  bench.load(0, sender.image(), 0, 3, 20);
  bench.write32(1, CoreBench::kSeq, spec::seq::kTag, 20);
  bench.write32(1, CoreBench::kSeq, spec::seq::kReset, 1);
  bench.start(0);
  bench.run();
  EXPECT_EQ(bench.state(0), spec::seq::kStateDone);
  EXPECT_EQ(bench.state(1), spec::seq::kStateIdle);
  EXPECT_EQ(bench.read32(1, CoreBench::kSem, 5 * 4), 0u);
  EXPECT_EQ(bench.read32(1, CoreBench::kSem, spec::sem::kStale), 2u);
  EXPECT_EQ(bench.read<uint32_t>(1, CoreBench::kVmem, 64, 16), std::vector<uint32_t>(16, 0));
}

TEST(CoreGang, PacketOfAnUnknownGangFaultsItsReceiver) {
  CoreBench bench("board", {.overrides = {"board.chips=1", "board.torus_x=1"}});
  ProgramBuilder sender;
  sender.li(1, 1);
  sender.copy(Queue::kDmaRemote, vmem(0), vmem(64), 64, Sync().remote(5, 1), 1);
  sender.halt();
  bench.write(0, CoreBench::kVmem, 0, numbers(16, 1));
  bench.load(0, sender.image(), 0, 3, 20);
  bench.write32(1, CoreBench::kSeq, spec::seq::kTag,
                19);  // behind: the packets are of no gang it knows
  bench.start(0);
  bench.run();
  EXPECT_EQ(bench.state(1), spec::seq::kStateFaulted);
  EXPECT_EQ(bench.fault_record(1).code, TPU_FAULT_REMOTE_STRAY);
}

// In a pod the report of a fault comes later: the program that starts until then would hide it.
TEST(CoreGang, NoProgramStartsBeforeTheReportOfAFault) {
  CoreBench bench("board", {.overrides = {"board.chips=1", "board.torus_x=1", "pod.boards_x=2"}});
  ProgramBuilder sender;
  sender.li(1, 1);
  sender.nop(Queue::kDmaRemote, Sync().remote(5, 1));
  sender.halt();
  ProgramBuilder receiver;
  receiver.halt();
  bench.load(0, sender.image(), 0, 3, 20);
  bench.load(1, receiver.image(), 0, 3, 20);
  bench.write32(1, CoreBench::kSeq, spec::seq::kTag, 19);
  bench.start(0);
  sc_core::sc_start(from_cycles(1000));
  ASSERT_EQ(bench.fault_record(1).code, TPU_FAULT_REMOTE_STRAY);
  bench.write32(1, CoreBench::kSeq, spec::seq::kTag, 20);
  bench.start(1);
  const auto is = [&](uint32_t mask) {
    return (bench.read32(1, CoreBench::kSeq, spec::seq::kState) & mask) != 0;
  };
  EXPECT_TRUE(is(spec::seq::kStateBusyMask));
  EXPECT_TRUE(is(spec::seq::kStateRefusedMask));
  bench.run();
  EXPECT_EQ(bench.state(1), spec::seq::kStateFaulted);
  EXPECT_EQ(bench.fault_record(1).code, TPU_FAULT_REMOTE_STRAY);
  EXPECT_FALSE(is(spec::seq::kStateBusyMask));
}

// What a peer would have sent is as unknown as what the core's own transfers bring.
TEST(CoreGang, ControlFlowFromAPeersDataIsRefusedWithoutData) {
  const BenchOptions options{.overrides = {"board.chips=1", "board.torus_x=1"}, .no_data = true};
  BenchOptions by_messages = options;
  by_messages.messages = true;
  CoreBench direct("direct", options);
  CoreBench messages("messages", by_messages);
  for (CoreBench* bench : {&direct, &messages}) {
    ProgramBuilder sender;
    sender.li(1, 1);
    sender.copy(Queue::kDmaRemote, vmem(0), smem(8), 8, Sync().remote(2, 1), 1);
    sender.halt();
    ProgramBuilder receiver;
    receiver.scalar(spec::ScalarOp::kSwait, 0, 2, 0, 1);
    receiver.scalar(spec::ScalarOp::kLds32, 3, 0, 0, 16);  // beside what came
    receiver.scalar(spec::ScalarOp::kLds32, 4, 0, 0, 12);
    receiver.scalar(spec::ScalarOp::kBeq, 0, 3, 0, static_cast<int32_t>(receiver.here() + 1));
    const uint32_t pc = receiver.here();
    receiver.scalar(spec::ScalarOp::kBeq, 0, 4, 0, static_cast<int32_t>(pc + 1));
    receiver.halt();
    bench->load(0, sender.image(0), 0, 3);
    bench->load(1, receiver.image(0), 0, 3);
    bench->start(0);
    bench->start(1);
    bench->run();
    const tpu_fault_record_t record = bench->fault_record(1);
    EXPECT_EQ(record.code, TPU_FAULT_NO_DATA) << bench->cores[1]->fault().text();
    EXPECT_EQ(record.detail, spec::fault::kDetailBranch);
    EXPECT_EQ(record.pc, pc);
  }
}

}  // namespace
}  // namespace tpu::model::test
