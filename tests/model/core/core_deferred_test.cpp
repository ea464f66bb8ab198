// Transfers from HBM to VMEM that are put off: every reader and writer of VMEM finds what the
// transfer would have brought there; random programs against plain memory.
#include <gtest/gtest.h>

#include <algorithm>
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

  void add() {
    Sync sync;
    if (commands_ > 0) {
      sync.wait(commands_);
    }
    sync.signal(++commands_);
    switch (random() % 8) {
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
  uint8_t commands_ = 0;  // each waits for the semaphore of its number
};

class CoreDeferred : public ::testing::TestWithParam<uint32_t> {};

TEST_P(CoreDeferred, RandomProgramsSeeWhatTransfersBring) {
  HostProfile::enable();
  CoreBench bench("board",
                  {.overrides = {"board.chips=1", "board.torus_x=1", "board.cores_per_chip=1"},
                   .threads = 1 + static_cast<int>(GetParam() % 3)});
  Machine machine(GetParam());
  bench.write(0, CoreBench::kHbm, kSlotBase, machine.hbm);
  bench.write(0, CoreBench::kVmem, 0, machine.vmem);
  for (int i = 0; i < 60; ++i) {
    machine.add();
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

INSTANTIATE_TEST_SUITE_P(Seeds, CoreDeferred, ::testing::Range(1U, 25U));

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
  DeferredCopies copies{vmem.data(), vmem.size(), pool};
  DeferredCopies::Uses uses;
};

TEST_F(Deferred, ReadersFindTheBytesAndVmemStaysAsItWas) {
  ASSERT_TRUE(copies.defer(100, 2 * kPage, bank, 3 * kPage));
  const ptrdiff_t shift = copies.read(200, 300, uses);
  EXPECT_EQ(at(200, shift), 4);
  EXPECT_EQ(at(100 + kPage, shift), 5);
  EXPECT_EQ(vmem[200], 0xee);
  EXPECT_EQ(copies.read(0, 100, uses), 0);  // in front of it
  EXPECT_EQ(copies.read(100 + 2 * kPage, 100 + 3 * kPage, uses), 0);
}

TEST_F(Deferred, WhatIsWrittenToHbmGoesElsewhere) {
  ASSERT_TRUE(copies.defer(0, kPage, bank, 3 * kPage));
  bank.fill(3 * kPage, 100, 0);
  bank.fill(3 * kPage, kPage, 0x77777777);
  EXPECT_EQ(at(5, copies.read(0, kPage, uses)), 4);
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
  EXPECT_EQ(at(0, copies.read(0, kPage, uses)), 1);  // the part in front
  EXPECT_EQ(at(2 * kPage, copies.read(2 * kPage, 3 * kPage, uses)), 3);
  EXPECT_EQ(copies.read(kPage, 2 * kPage, uses), 0);
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
  const ptrdiff_t joined = copies.read(0, 2 * kPage, uses);
  EXPECT_NE(joined, 0);
  EXPECT_EQ(at(2 * kPage - 1, joined), 4);
  EXPECT_EQ(copies.read(kPage + 1, 2 * kPage + 10, uses), 0);
  EXPECT_EQ(vmem[kPage], 0xee);
  EXPECT_EQ(vmem[kPage + 1], 4);
  EXPECT_EQ(vmem[2 * kPage + 9], 9);
  EXPECT_EQ(vmem[2 * kPage + 10], 0xee);
  EXPECT_EQ(at(2 * kPage + 10, copies.read(2 * kPage + 10, 3 * kPage, uses)), 9);
}

TEST_F(Deferred, PagesThatAreAbsentOrWrittenByAJobAreNotHeld) {
  EXPECT_FALSE(copies.defer(0, kPage, bank, 20 * kPage));
  PageSet set;
  set.open(kPage, 2 * kPage - 1);
  bank.pin(set, kPage, kPage, true, true);
  EXPECT_FALSE(copies.defer(0, 2 * kPage, bank, 0));
  bank.unpin(set);
  EXPECT_TRUE(copies.defer(0, 2 * kPage, bank, 0));
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
  EXPECT_EQ(at(14 * kPage, copies.read(14 * kPage, 15 * kPage, uses)), 8);
}

}  // namespace
}  // namespace tpu::model::test
