// Deferred transfers from HBM to VMEM: every reader and writer of VMEM finds what the
// transfer would have brought there; random programs against plain memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "core/deferred_copies.hpp"
#include "core_bench.hpp"
#include "kernel/host_profile.hpp"

namespace tpu::model::test {
namespace {

using spec::Queue;

constexpr uint64_t kPage = kHbmPageBytes;
constexpr uint64_t kSlotBase = 3 * kPage - 4096;
constexpr uint32_t kWindow = 512 << 10;  // bytes of HBM and of VMEM that programs use

uint64_t deferred_bytes() {
  return HostProfile::read()[static_cast<size_t>(HostWork::kDeferred)].amount;
}

// A program whose commands follow each other, and the memories that it must leave behind.
class Machine {
 public:
  explicit Machine(uint32_t seed) : hbm(kWindow / 4), vmem(kWindow / 4), random(seed) {
    std::iota(hbm.begin(), hbm.end(), static_cast<int32_t>(seed) << 20);
  }

  // Of words.
  struct Span {
    uint32_t at, count;
  };
  Span span(uint32_t least, uint32_t most) {
    constexpr uint32_t kStep = 256;  // so that ranges often begin or end together
    const auto count = static_cast<uint32_t>((least + random() % (most - least)) / kStep) * kStep;
    return {static_cast<uint32_t>(random() % ((kWindow / 4 - count) / kStep)) * kStep, count};
  }
  // A second one of as many words, apart from the first.
  uint32_t beside(const Span& span) {
    for (;;) {
      const auto at = static_cast<uint32_t>(random() % ((kWindow / 4 - span.count) / 256)) * 256;
      if (at + span.count <= span.at || span.at + span.count <= at) {
        return at;
      }
    }
  }
  static spec::Addr in_vmem(uint32_t at) { return test::vmem(4 * int64_t{at}); }
  static spec::Addr in_hbm(uint32_t at) { return test::hbm(0, 4 * int64_t{at}); }

  // What the queue itself orders, transfers from HBM, copies and fills, waits for nothing.
  void add(bool last) {
    const uint32_t kind = next_;
    next_ = random() % 8;
    const auto of_dma_in = [](uint32_t k) { return k < 3 || k == 5 || k == 7; };
    Sync sync;
    if (signalled_) {
      sync.wait(commands_);
    }
    ++commands_;
    signalled_ = last || !of_dma_in(kind) || !of_dma_in(next_);
    if (signalled_) {
      sync.signal(commands_);
    }
    switch (kind) {
      case 0:
      case 1:
      case 2:
        return bring(sync);
      case 3:
        return send(sync);
      case 4:
        return negate(sync);
      case 5:
        return move(sync);
      case 6:
        return transpose(sync);
      default:
        return fill(sync);
    }
  }
  void finish() {
    Sync sync;
    program.nop(Queue::kVpu, sync.wait(commands_));
    program.halt();
  }

  ProgramBuilder program;
  std::vector<int32_t> hbm, vmem;

 private:
  void bring(const Sync& sync) {
    const Span from = span(2048, 40'000);
    const uint32_t to = span(from.count, from.count + 1).at;
    program.copy(Queue::kDmaIn, in_hbm(from.at), in_vmem(to), 4 * from.count, sync);
    std::copy_n(hbm.begin() + from.at, from.count, vmem.begin() + to);
  }
  void send(const Sync& sync) {
    const Span from = span(256, 30'000);
    const uint32_t to = span(from.count, from.count + 1).at;
    program.copy(Queue::kDmaOut, in_vmem(from.at), in_hbm(to), 4 * from.count, sync);
    std::copy_n(vmem.begin() + from.at, from.count, hbm.begin() + to);
  }
  void negate(const Sync& sync) {
    const Span from = span(1024, 20'000);
    const uint32_t to = random() % 3 == 0 ? from.at : beside(from);  // in place, too
    program.unary_kernel(spec::VpuOp::kNegI, 4 * int64_t{from.at}, 4 * int64_t{to}, from.count,
                         sync);
    std::transform(vmem.begin() + from.at, vmem.begin() + from.at + from.count, vmem.begin() + to,
                   [](int32_t value) { return -value; });
  }
  void move(const Sync& sync) {
    const Span from = span(256, 20'000);
    const uint32_t to = beside(from);
    program.copy(Queue::kDmaIn, in_vmem(from.at), in_vmem(to), 4 * from.count, sync);
    std::copy_n(vmem.begin() + from.at, from.count, vmem.begin() + to);
  }
  void transpose(const Sync& sync) {
    const Span from = span(2048, 10'000);
    constexpr uint32_t kRows = 32;
    const uint32_t cols = from.count / kRows;
    const uint32_t to = beside(from);
    program.transpose(4 * int64_t{from.at}, 4 * int64_t{to}, kRows, cols, sync);
    for (uint32_t r = 0; r < kRows; ++r) {
      for (uint32_t c = 0; c < cols; ++c) {
        vmem[to + c * kRows + r] = vmem[from.at + r * cols + c];
      }
    }
  }
  // Every other run of 64 words.
  void fill(const Sync& sync) {
    const Span to = span(1024, 8192);
    spec::FillCommand c;
    c.dst = in_vmem(to.at);
    c.elem_bytes = 4;
    c.counts = {1, 1, 1, to.count / 128, 64};
    c.dst_strides = {0, 0, 0, 512, 4};
    c.pattern = 77;
    program.command(c, spec::Opcode::kFill, Queue::kDmaIn, sync);
    for (uint32_t i = 0; i < to.count / 128 * 128; ++i) {
      if (i % 128 < 64) {
        vmem[to.at + i] = 77;
      }
    }
  }

  std::mt19937 random;
  uint8_t commands_ = 0;    // some signal the semaphore of their number
  bool signalled_ = false;  // the last one does
  uint32_t next_ = 0;       // kind of the next one
};

class CoreDeferred : public ::testing::TestWithParam<uint32_t> {};

TEST_P(CoreDeferred, RandomProgramsSeeWhatTransfersBring) {
  HostProfile::enable();
  CoreBench bench("board",
                  {.overrides = {"board.chips=1", "board.torus_x=1", "board.cores_per_chip=1"},
                   .threads = 1 + static_cast<int>(GetParam() % 3),
                   .jobs = GetParam() % 2 == 0 ? JobTime::kLate : JobTime::kSoon});
  Machine machine(GetParam());
  bench.write(0, CoreBench::kHbm, kSlotBase, machine.hbm);
  bench.write(0, CoreBench::kVmem, 0, machine.vmem);
  for (int i = 0; i < 60; ++i) {
    machine.add(i == 59);
  }
  machine.finish();
  bench.bind_slot(0, 0, kSlotBase, kWindow);
  bench.load(0, machine.program.image(1), 1, 1);
  bench.write32(0, CoreBench::kSeq, spec::seq::kLaunch, 1);
  bench.start(0);
  bench.run();
  ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.fault_record(0).detail;
  EXPECT_EQ(bench.read<int32_t>(0, CoreBench::kHbm, kSlotBase, kWindow / 4), machine.hbm);
  EXPECT_EQ(bench.read<int32_t>(0, CoreBench::kVmem, 0, kWindow / 4), machine.vmem);
  EXPECT_GT(deferred_bytes(), DeferredCopies::kLeastBytes);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CoreDeferred, ::testing::Range(1U, 37U));

// Programs of one core that end well; 64 MiB of HBM from kSlotBase on begin with 1000, 1001 ...
class DeferredProgram : public ::testing::Test {
 protected:
  DeferredProgram() {
    std::iota(data.begin(), data.end(), 1000);
    bench.write(0, CoreBench::kHbm, kSlotBase, data);
    bench.bind_slot(0, 0, kSlotBase, 64 << 20);
  }
  void run() {
    program.halt();
    bench.load(0, program.image(1), 1, 1);
    bench.write32(0, CoreBench::kSeq, spec::seq::kLaunch, 1);
    bench.start(0);
    bench.run();
    ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.fault_record(0).detail;
  }
  std::vector<int32_t> vmem_words(uint64_t address, uint64_t count) {
    return bench.read<int32_t>(0, CoreBench::kVmem, address, count);
  }

  CoreBench bench{
      "board",
      {.overrides = {"board.chips=1", "board.torus_x=1", "board.cores_per_chip=1"}, .threads = 4}};
  ProgramBuilder program;
  std::vector<int32_t> data = std::vector<int32_t>(1 << 16);
};

// The queue alone orders them: bytes that are brought late must not come before a fill of before.
TEST_F(DeferredProgram, TransfersStayBehindEarlierOnesOfTheirQueue) {
  constexpr int64_t kAt = 11 << 20;
  spec::FillCommand fill;
  fill.dst = vmem(0), fill.elem_bytes = 1, fill.pattern = 0x55;
  fill.counts = {1, 1, 1, 1, 12 << 20};
  fill.dst_strides = {0, 0, 0, 0, 1};
  program.command(fill, spec::Opcode::kFill, Queue::kDmaIn, {});
  program.copy(Queue::kDmaIn, hbm(0, 0), vmem(kAt), 64 << 10, {});
  // Over the border of what was brought.
  program.copy(Queue::kDmaIn, vmem(kAt + (32 << 10)), vmem(13 << 20), 64 << 10, Sync().signal(1));
  program.nop(Queue::kVpu, Sync().wait(1));
  run();
  const std::vector<int32_t> wanted(data.begin(), data.begin() + (16 << 10));
  EXPECT_EQ(vmem_words(kAt, 16 << 10), wanted);
  std::vector<int32_t> copied(16 << 10, 0x55555555);
  std::copy_n(data.begin() + (8 << 10), 8 << 10, copied.begin());
  EXPECT_EQ(vmem_words(13 << 20, 16 << 10), copied);
}

// Lanes of the full block and of the last one are the same bytes: each of four turns sees the one
// before.
TEST_F(DeferredProgram, KernelsWhoseBlocksShareBytesSeeWhatTheyStored) {
  program.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), 64 << 10, Sync().signal(1));
  spec::VpuKernelCommand c;
  c.row_loop = 255, c.col_loop = 3;
  c.loops = {1, 1, 1, 2};
  c.rows = 8, c.cols = 192;
  spec::VpuAccess access;
  access.addr = vmem(0);
  access.sub = 512, access.lane = 4;
  access.type = static_cast<uint8_t>(spec::Elem::kI32);
  spec::VpuProgramHeader header;
  header.section[4] = 3;
  header.registers = 2;
  using spec::VpuOp;
  program.kernel(c, {access, access}, header,
                 {vpu_insn(VpuOp::kLoad, 0, 0, 0, 0), vpu_insn(VpuOp::kNegI, 1, 0, 0, 0),
                  vpu_insn(VpuOp::kStore, 0, 1, 0, 1)},
                 Sync().wait(1).signal(2));
  program.nop(Queue::kVpu, Sync().wait(2));
  run();
  const std::vector<int32_t> got = vmem_words(0, 128);
  EXPECT_EQ(got[0], 1000);    // twice
  EXPECT_EQ(got[64], -1064);  // once
}

TEST_F(DeferredProgram, AnAccessThatStoresBeforeItLoadsFindsAllBytes) {
  program.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), 128 << 10, Sync().signal(1));
  spec::VpuKernelCommand c;
  c.row_loop = 255, c.col_loop = 3;
  c.loops = {1, 1, 1, 32};
  c.rows = 1, c.cols = 32 << 10;
  spec::VpuAccess in;
  in.addr = vmem(0);
  in.loop = {0, 0, 0, 4096};
  in.lane = 4;
  in.type = static_cast<uint8_t>(spec::Elem::kI32);
  spec::VpuAccess out = in;
  out.addr = vmem(1 << 20);
  spec::VpuProgramHeader header;
  header.section[0] = 2;
  header.section[4] = 3;
  header.registers = 3;
  using spec::VpuOp;
  program.kernel(c, {in, out}, header,
                 {vpu_insn(VpuOp::kImm, 0, 0, 0, 7), vpu_insn(VpuOp::kStore, 0, 0, 0, 0),
                  vpu_insn(VpuOp::kLoad, 1, 0, 0, 0), vpu_insn(VpuOp::kNegI, 2, 1, 0, 0),
                  vpu_insn(VpuOp::kStore, 0, 2, 0, 1)},
                 Sync().wait(1).signal(2), 1);
  program.nop(Queue::kVpu, Sync().wait(2));
  run();
  std::vector<int32_t> wanted(32 << 10);
  std::transform(data.begin(), data.begin() + (32 << 10), wanted.begin(),
                 [](int32_t value) { return -value; });
  std::fill_n(wanted.begin(), 1024, -7);
  EXPECT_EQ(vmem_words(1 << 20, 32 << 10), wanted);
}

TEST_F(DeferredProgram, ATransferToItselfOverTheLinksLosesNothing) {
  program.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), 64 << 10, Sync().signal(1));
  program.li(5, 0);
  program.copy(Queue::kDmaRemote, vmem(0), vmem(0), 64 << 10, Sync().wait(1).signal(2), 5);
  program.copy(Queue::kDmaOut, vmem(0), hbm(0, 1 << 20), 64 << 10, Sync().wait(2).signal(3));
  program.nop(Queue::kVpu, Sync().wait(3));
  run();
  EXPECT_EQ(bench.read<int32_t>(0, CoreBench::kHbm, kSlotBase + (1 << 20), 16 << 10),
            std::vector<int32_t>(data.begin(), data.begin() + (16 << 10)));
}

struct Deferred : ::testing::Test {
  Deferred() {
    for (uint64_t page = 0; page < 16; ++page) {
      bank.fill(page * kPage, kPage, static_cast<uint32_t>(0x01010101 * (page + 1)));
    }
  }
  uint8_t at(uint64_t place, ptrdiff_t shift) const { return *(vmem.data() + place + shift); }

  PagePool pages;
  HbmBank bank{"bank", pages, 64 * kPage, -1};
  std::vector<uint8_t> vmem = std::vector<uint8_t>(16 * kPage, 0xee);
  JobPool pool{1};
  DataOrder order;
  DeferredCopies copies{vmem.data(), vmem.size(), order, pool};
  DeferredCopies::Uses uses;
  DataUses reader;
};

TEST_F(Deferred, ReadersFindTheBytesAndVmemStaysAsItWas) {
  ASSERT_TRUE(copies.defer(100, 2 * kPage, bank, 3 * kPage));
  const ptrdiff_t shift = copies.read(200, 300, uses, reader);
  EXPECT_EQ(at(200, shift), 4);
  EXPECT_EQ(at(100 + kPage, shift), 5);
  EXPECT_EQ(vmem[200], 0xee);
  EXPECT_EQ(copies.read(0, 100, uses, reader), 0);  // in front of it
  EXPECT_EQ(copies.read(100 + 2 * kPage, 100 + 3 * kPage, uses, reader), 0);
}

TEST_F(Deferred, WhatIsWrittenToHbmGoesElsewhere) {
  ASSERT_TRUE(copies.defer(0, kPage, bank, 3 * kPage));
  bank.fill(3 * kPage, 100, 0);
  bank.fill(3 * kPage, kPage, 0x77777777);
  EXPECT_EQ(at(5, copies.read(0, kPage, uses, reader)), 4);
  const size_t held = pages.pages_in_use();
  copies.write(0, kPage, true);
  EXPECT_EQ(pages.pages_in_use(), held);  // a command reads it still
  copies.release(uses);
  EXPECT_EQ(pages.pages_in_use(), held - 1);
  EXPECT_TRUE(copies.empty());
}

TEST_F(Deferred, AWholeWriteEndsItWithoutACopyAndAnotherBringsTheBytes) {
  ASSERT_TRUE(copies.defer(0, 3 * kPage, bank, 0));
  copies.write(kPage, 2 * kPage, true);
  EXPECT_EQ(vmem[kPage], 0xee);
  EXPECT_EQ(at(0, copies.read(0, kPage, uses, reader)), 1);  // the part in front
  EXPECT_EQ(at(2 * kPage, copies.read(2 * kPage, 3 * kPage, uses, reader)), 3);
  EXPECT_EQ(copies.read(kPage, 2 * kPage, uses, reader), 0);
  copies.write(10, 20, false);
  EXPECT_EQ(vmem[9], 0xee);
  EXPECT_EQ(vmem[10], 1);
  EXPECT_EQ(vmem[19], 1);
  EXPECT_EQ(vmem[20], 0xee);
}

TEST_F(Deferred, ReadersOverABorderBringTheBytesUnlessTheyFollowEachOtherInHbm) {
  ASSERT_TRUE(copies.defer(0, kPage, bank, 2 * kPage));
  ASSERT_TRUE(copies.defer(kPage, kPage, bank, 3 * kPage));
  ASSERT_TRUE(copies.defer(2 * kPage, kPage, bank, 8 * kPage));
  const ptrdiff_t joined = copies.read(0, 2 * kPage, uses, reader);
  EXPECT_NE(joined, 0);
  EXPECT_EQ(at(2 * kPage - 1, joined), 4);
  EXPECT_EQ(copies.read(kPage + 1, 2 * kPage + 10, uses, reader), 0);
  EXPECT_EQ(vmem[kPage], 0xee);
  EXPECT_EQ(vmem[kPage + 1], 4);
  EXPECT_EQ(vmem[2 * kPage + 9], 9);
  EXPECT_EQ(vmem[2 * kPage + 10], 0xee);
  EXPECT_EQ(at(2 * kPage + 10, copies.read(2 * kPage + 10, 3 * kPage, uses, reader)), 9);
}

// Each such write could leave two ranges where one was.
TEST_F(Deferred, ManySmallWritesBringTheRestOnce) {
  ASSERT_TRUE(copies.defer(0, 8 * kPage, bank, 0));
  for (uint64_t at = 8 * kPage - 64; at > 0; at -= 64) {
    copies.write(at, at + 4, true);
  }
  EXPECT_FALSE(copies.touches(0, 7 * kPage));  // brought when there were too many ranges
  EXPECT_EQ(vmem[0], 1);
  EXPECT_EQ(vmem[7 * kPage - 64], 7);
}

TEST_F(Deferred, PagesThatAreAbsentAreNotHeld) {
  EXPECT_FALSE(copies.defer(0, kPage, bank, 20 * kPage));
  EXPECT_TRUE(copies.defer(0, 2 * kPage, bank, 0));
}

// Writes a byte when it may.
class LateWriter : public Job {
 public:
  void run_part(int /*part*/) override {
    go.wait(false);
    *to = 0x55;
  }
  std::atomic<bool> go = false;
  uint8_t* to = nullptr;
};

class LateReader : public Job {
 public:
  void run_part(int /*part*/) override { seen = *from; }
  const uint8_t* from = nullptr;
  uint8_t seen = 0;
};

// Readers in VMEM, by a command or by a copy, wait for the job that still writes the page.
TEST_F(Deferred, ReadersFollowJobsThatWriteThePage) {
  JobPool threads{3};
  DeferredCopies late{vmem.data(), vmem.size(), order, threads};
  PageSet set;
  set.open(kPage, 2 * kPage - 1);
  bank.pin(set, kPage, kPage, true, false);
  LateWriter writer;
  writer.to = set.at(kPage + 7);
  DataUses writes;
  writes.add(bank.order(), {.low = kPage, .high = 2 * kPage}, true);
  writes.launch(threads, writer);
  ASSERT_TRUE(late.defer(0, 2 * kPage, bank, 0));
  LateReader read;
  read.from = vmem.data() + kPage + 7 + late.read(kPage, 2 * kPage, uses, reader);
  ASSERT_NE(read.from, vmem.data() + kPage + 7);
  reader.launch(threads, read);
  late.settle(kPage, kPage + 8);
  EXPECT_FALSE(read.done());
  writer.go = true;
  writer.go.notify_all();
  order.wait(kPage, kPage + 8, false);
  EXPECT_EQ(vmem[kPage + 7], 0x55);
  threads.join(read);
  EXPECT_EQ(read.seen, 0x55);
  late.finish();
  late.release(uses);
  bank.unpin(set);
}

// Of each transfer only the last page is left, but all seven are held.
TEST_F(Deferred, TheOldestIsBroughtWhenMoreThanTwiceVmemIsHeld) {
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(vmem[15 * kPage], 0xee) << i;
    const uint64_t low = (9 - i) * kPage;
    copies.write(low, low + 7 * kPage, true);
    ASSERT_TRUE(copies.defer(low, 7 * kPage, bank, i * kPage));
    copies.write(low, low + 6 * kPage, true);
  }
  EXPECT_EQ(vmem[15 * kPage], 7);
  EXPECT_EQ(vmem[16 * kPage - 1], 7);
  EXPECT_EQ(vmem[14 * kPage], 0xee);
  EXPECT_EQ(at(14 * kPage, copies.read(14 * kPage, 15 * kPage, uses, reader)), 8);
}

}  // namespace
}  // namespace tpu::model::test
