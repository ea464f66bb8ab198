// Transfers by an index list: gather and scatter against plain loops, skipped records, faults with
// the record's number, time, and what the checker sees.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/indexed_box.hpp"
#include "core_bench.hpp"
#include "tpu/spec/fault_regs.hpp"

namespace tpu::model::test {
namespace {

using spec::Queue;
constexpr uint64_t kSlotBase = 0x10000 - 64;  // windows cross a page border
constexpr uint32_t kSlotBytes = 1 << 20;

class CoreIndexed : public ::testing::Test {
 protected:
  explicit CoreIndexed(bool check = true, bool no_data = false)
      : bench("board", {.overrides = {"board.chips=1", "board.torus_x=1", "board.cores_per_chip=1"},
                        .threads = 2,
                        .jobs = JobTime::kLate,
                        .no_data = no_data,
                        .check = check}) {}

  void run(ProgramBuilder& p) {
    p.halt();
    bench.bind_slot(0, 0, kSlotBase, kSlotBytes);
    bench.load(0, p.image(1), 1, 1);
    bench.write32(0, CoreBench::kSeq, spec::seq::kLaunch, ++launch);
    bench.start(0);
    bench.run();
  }
  // Slot offsets: the table at 0, the list at kList, data at kData.
  static constexpr int64_t kList = 0x80000, kData = 0xc0000;
  template <typename T>
  void put(int64_t offset, const std::vector<T>& data) {
    bench.write(0, CoreBench::kHbm, kSlotBase + static_cast<uint64_t>(offset), data);
  }
  template <typename T>
  std::vector<T> get(int64_t offset, size_t count) {
    return bench.read<T>(0, CoreBench::kHbm, kSlotBase + static_cast<uint64_t>(offset), count);
  }
  // Records of one row of `row` words.
  static spec::DmaIndexedCommand rows(spec::Addr src, spec::Addr dst, int64_t list,
                                      uint32_t records, uint32_t row, int64_t span) {
    spec::DmaIndexedCommand c;
    c.src = src, c.dst = dst, c.list = vmem(list);
    c.elem_bytes = 4, c.records = records, c.unit = 4 * row;
    c.counts = {1, 1, 1, row};
    c.src_strides = c.dst_strides = {0, 0, 0, 4};
    c.record_stride = 4 * static_cast<int64_t>(row);
    c.span = span;
    return c;
  }
  uint32_t launch = 0;
  CoreBench bench;
};

std::vector<int32_t> counting(size_t n, int32_t first = 0) {
  std::vector<int32_t> v(n);
  for (size_t i = 0; i < n; ++i) {
    v[i] = first + static_cast<int32_t>(i);
  }
  return v;
}

// The list arrives on the same queue just before: it is read when it is complete.
TEST_F(CoreIndexed, GathersRowsAndLeavesSkippedOnesAlone) {
  constexpr size_t kRow = 37, kRows = 400;
  const std::vector<int32_t> table = counting(kRow * kRows);
  const std::vector<int32_t> list = {399, 0, -1, 7, 7, 250};
  put(0, table);
  put(kList, list);
  put(kData, counting(kRow * list.size(), 1'000'000));
  ProgramBuilder p;
  const auto bytes = static_cast<uint32_t>(4 * kRow * list.size());
  p.copy(Queue::kDmaIn, hbm(0, kData), vmem(0x4000), bytes, Sync());
  p.copy(Queue::kDmaIn, hbm(0, kList), vmem(64), 24, Sync());
  p.command(rows(hbm(0, 0), vmem(0x4000), 64, 6, kRow, 4 * kRow * kRows), spec::Opcode::kDmaIndexed,
            Queue::kDmaIn, Sync().signal(1));
  p.copy(Queue::kDmaOut, vmem(0x4000), hbm(0, kData), bytes, Sync().wait(1));
  run(p);
  ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
  EXPECT_EQ(bench.checker.count(), 0u);
  const auto out = get<int32_t>(kData, kRow * list.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const int32_t row = list[i / kRow];
    const auto want = row < 0 ? 1'000'000 + static_cast<int32_t>(i)
                              : row * static_cast<int32_t>(kRow) + static_cast<int32_t>(i % kRow);
    ASSERT_EQ(out[i], want) << i;
  }
}

// A kernel computes the list, and what it computes comes late.
TEST_F(CoreIndexed, WaitsForALateList) {
  constexpr size_t kRow = 32;
  put(0, counting(kRow * 100));
  put(kList, std::vector<int32_t>{-3, -99, 0, -50});
  ProgramBuilder p;
  p.copy(Queue::kDmaIn, hbm(0, kList), vmem(0), 16, Sync().signal(1));
  p.unary_kernel(spec::VpuOp::kNegI, 0, 64, 4, Sync().wait(1).signal(2));
  p.command(rows(hbm(0, 0), vmem(0x4000), 64, 4, kRow, 4 * kRow * 100), spec::Opcode::kDmaIndexed,
            Queue::kDmaIn, Sync().wait(2).signal(3));
  p.unary_kernel(spec::VpuOp::kNegI, 64, 64, 4, Sync().wait(3).signal(4));
  p.copy(Queue::kDmaOut, vmem(0x4000), hbm(0, kData), 4 * 4 * kRow, Sync().wait(4).signal(5));
  p.nop(Queue::kVpu, Sync().wait(5));
  run(p);
  ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
  std::vector<int32_t> wanted;
  for (const int32_t row : {3, 99, 0, 50}) {
    const std::vector<int32_t> each = counting(kRow, row * static_cast<int32_t>(kRow));
    wanted.insert(wanted.end(), each.begin(), each.end());
  }
  EXPECT_EQ(get<int32_t>(kData, 4 * kRow), wanted);
}

TEST_F(CoreIndexed, ScatteredWindowsMeetAndTheLastOneStays) {
  constexpr size_t kRow = 33, kRows = 1000;
  const std::vector<int32_t> list = {5, 999, 5, -1, 0, 5};
  put(0, std::vector<int32_t>(kRow * kRows, -7));
  put(kList, list);
  put(kData, counting(kRow * list.size()));
  ProgramBuilder p;
  p.copy(Queue::kDmaIn, hbm(0, kList), vmem(64), 24, Sync().signal(1));
  auto c = rows(hbm(0, kData), hbm(0, 0), 64, 6, kRow, 4 * kRow * kRows);
  p.command(c, spec::Opcode::kDmaIndexed, Queue::kDmaOut, Sync().wait(1), c.kScatter);
  run(p);
  ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
  EXPECT_EQ(bench.checker.count(), 0u);
  const auto out = get<int32_t>(0, kRow * kRows);
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t row = i / kRow;
    const int source = row == 5 ? 5 : row == 999 ? 1 : row == 0 ? 4 : -1;
    ASSERT_EQ(out[i],
              source < 0 ? -7 : source * static_cast<int>(kRow) + static_cast<int>(i % kRow));
  }
}

TEST_F(CoreIndexed, AListValueOutsideOfTheSpanFaultsWithItsRecord) {
  struct Bad {
    int32_t value;
    bool scatter;
  };
  for (const Bad bad :
       {Bad{100, false}, {-2, false}, {INT32_MIN, true}, {INT32_MAX, false}, {100, true}}) {
    put(kList, std::vector<int32_t>{99, 0, -1, bad.value, 3});
    ProgramBuilder p;
    p.copy(Queue::kDmaIn, hbm(0, kList), vmem(64), 20, Sync().signal(1));
    auto c = bad.scatter ? rows(vmem(0x4000), hbm(0, 0), 64, 5, 8, 3200)
                         : rows(hbm(0, 0), vmem(0x4000), 64, 5, 8, 3200);
    p.command(c, spec::Opcode::kDmaIndexed, bad.scatter ? Queue::kDmaOut : Queue::kDmaIn,
              Sync().wait(1), bad.scatter ? 1 : 0);
    run(p);
    ASSERT_EQ(bench.state(0), spec::seq::kStateFaulted);
    const tpu_fault_record_t record = bench.fault_record(0);
    EXPECT_EQ(record.code, TPU_FAULT_SLOT_RANGE);
    EXPECT_EQ(record.detail, spec::fault::kDetailRecord + 3);
    EXPECT_EQ(record.value, bad.value);
    EXPECT_EQ(record.limit, 99);
    EXPECT_EQ(record.length, 32u);
    EXPECT_EQ(record.address, static_cast<uint64_t>(int64_t{bad.value} * 32));
    EXPECT_NE(bench.cores[0]->fault().text().find("record 3"), std::string::npos);
  }
}

TEST_F(CoreIndexed, MalformedCommandsFault) {
  const auto expect = [&](spec::DmaIndexedCommand c, uint16_t code, uint32_t detail,
                          uint8_t flags = 0, Queue queue = Queue::kDmaIn) {
    ProgramBuilder p;
    p.command(c, spec::Opcode::kDmaIndexed, queue, Sync(), flags);
    run(p);
    ASSERT_EQ(bench.state(0), spec::seq::kStateFaulted);
    EXPECT_EQ(bench.fault_record(0).code, code) << bench.cores[0]->fault().text();
    EXPECT_EQ(bench.fault_record(0).detail, detail);
  };
  const auto good = rows(hbm(0, 0), vmem(0x4000), 64, 5, 8, 3200);
  auto c = good;
  c.list = hbm(0, 0);
  expect(c, TPU_FAULT_DESCRIPTOR, spec::fault::kDetailSpace);
  c = good;
  c.dst = hbm(0, 0);
  expect(c, TPU_FAULT_DESCRIPTOR, spec::fault::kDetailSpace);
  c = good;
  c.elem_bytes = 3;
  expect(c, TPU_FAULT_DESCRIPTOR, spec::fault::kDetailType);
  c = good;
  c.span = -1;
  expect(c, TPU_FAULT_DESCRIPTOR, spec::fault::kDetailType);
  c = good;
  c.record_stride = 0;  // five records onto one
  expect(c, TPU_FAULT_DESCRIPTOR, spec::fault::kDetailType);
  c = good;
  c.span = kSlotBytes + 1;
  expect(c, TPU_FAULT_SLOT_RANGE, 0);
  c = good;
  c.list = vmem(bench.params.core.vmem_kib * 1024 - 16);
  expect(c, TPU_FAULT_VMEM_RANGE, 0);
  expect(good, TPU_FAULT_DESCRIPTOR, spec::fault::kDetailOpcodeQueue, 0, Queue::kDmaRemote);
}

TEST_F(CoreIndexed, CostsAGranuleForEveryShortWindow) {
  put(kList, std::vector<int32_t>(1000, 3));
  ProgramBuilder p;
  p.copy(Queue::kDmaIn, hbm(0, kList), vmem(0x8000), 4000, Sync().signal(1));
  p.command(rows(hbm(0, 0), vmem(0x10000), 0x8000, 1000, 1, 4096), spec::Opcode::kDmaIndexed,
            Queue::kDmaIn, Sync().wait(1).signal(1));
  // As many bytes in one run.
  p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0x20000), 512 * 1000, Sync().wait(1));
  run(p);
  ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
  const auto& gather = bench.traced(0, Queue::kDmaIn, 1);
  const auto& plain = bench.traced(0, Queue::kDmaIn, 2);
  EXPECT_EQ(gather.cycle - gather.start, plain.cycle - plain.start);
}

TEST_F(CoreIndexed, TheCheckerSeesListAndWindows) {
  put(kList, std::vector<int32_t>{1, 2});
  ProgramBuilder p;
  p.copy(Queue::kDmaIn, hbm(0, kList), vmem(64), 8, Sync().signal(1));
  p.nop(Queue::kDmaOut, Sync().wait(1));
  for (int i = 0; i < 8; ++i) {  // later in time, not in order
    p.copy(Queue::kDmaOut, hbm(0, 0x40000), hbm(0, 0x60000), 65536, Sync());
  }
  p.command(rows(hbm(0, kData), hbm(0, 0), 64, 2, 8, 3200), spec::Opcode::kDmaIndexed,
            Queue::kDmaOut, Sync(), spec::DmaIndexedCommand::kScatter);
  p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0x4000), 32, Sync());   // record 0 is not touched
  p.copy(Queue::kDmaIn, hbm(0, 64), vmem(0x4000), 32, Sync());  // row 2 is
  run(p);
  ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
  ASSERT_EQ(bench.checker.count(), 1u) << text_of(bench.checker.findings().front());
  EXPECT_NE(text_of(bench.checker.findings().front()).find("bytes 65536..65567 of HBM"),
            std::string::npos)
      << text_of(bench.checker.findings().front());
}

class CoreIndexedTimed : public CoreIndexed {
 protected:
  CoreIndexedTimed() : CoreIndexed(false, true) {}
};

// Timing-only runs have no list; the time does not depend on it.
TEST_F(CoreIndexedTimed, NeedsNoData) {
  ProgramBuilder p;
  p.command(rows(hbm(0, 0), vmem(0x10000), 0x8000, 1000, 1, 4096), spec::Opcode::kDmaIndexed,
            Queue::kDmaIn, Sync());
  run(p);
  EXPECT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
}

// The list is not known: whatever it may reach counts.
class CoreIndexedTimedCheck : public CoreIndexed {
 protected:
  CoreIndexedTimedCheck() : CoreIndexed(true, true) {}
};

TEST_F(CoreIndexedTimedCheck, RacesAreFoundWithoutData) {
  const auto program = [](const Sync& gather) {
    ProgramBuilder p;
    p.copy(Queue::kDmaIn, hbm(0, kList), vmem(0x8000), 16, Sync());
    p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0x10000), 4096, Sync().signal(1));
    p.command(rows(vmem(0x10000), hbm(0, kData), 0x8000, 4, 1, 4096), spec::Opcode::kDmaIndexed,
              Queue::kDmaOut, gather);
    return p;
  };
  ProgramBuilder ordered = program(Sync().wait(1));
  run(ordered);
  EXPECT_EQ(bench.checker.count(), 0u);
  ProgramBuilder racing = program(Sync());
  racing.nop(Queue::kDmaOut, Sync().wait(1));
  run(racing);
  ASSERT_EQ(bench.checker.count(), 2u);  // list and table
  EXPECT_NE(text_of(bench.checker.findings()[1]).find("bytes 65536..69631 of VMEM"),
            std::string::npos)
      << text_of(bench.checker.findings()[1]);
}

TEST(IndexedBox, CopiesAsPlainLoopsDo) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const uint32_t elem = 1u << random() % 4;
    std::array<uint32_t, 5> counts{1, 1, 1, 1, 1};
    std::array<int64_t, 5> table{}, dense{};
    int64_t a = elem, b = elem;
    for (size_t i = 5; i-- > 1;) {
      counts[i] = random() % 4 + 1;
      table[i] = a + static_cast<int64_t>(random() % 3) * elem;
      dense[i] = b;
      a = table[i] * counts[i];
      b = dense[i] * counts[i];
    }
    IndexedBox box;
    box.scatter = round % 2 == 0;
    box.unit = elem;
    box.record_stride = b + static_cast<int64_t>(random() % 2) * elem;
    for (size_t r = 0; r < 20; ++r) {
      box.list.push_back(static_cast<int32_t>(random() % 50) - 1);
    }
    box.window = box.scatter ? spec::normalise_box(elem, counts, &dense, table)
                             : spec::normalise_box(elem, counts, &table, dense);
    std::vector<uint8_t> from(1 << 16), to(1 << 16, 0xee);
    for (uint8_t& v : from) {
      v = static_cast<uint8_t>(random());
    }
    std::vector<uint8_t> expected = to;
    for (size_t r = 0; r < box.list.size(); ++r) {
      if (box.list[r] == -1) {
        continue;
      }
      for (uint32_t i = 0; i < counts[1] * counts[2] * counts[3] * counts[4]; ++i) {
        const std::array<uint32_t, 5> at = {0, i / (counts[2] * counts[3] * counts[4]),
                                            i / (counts[3] * counts[4]) % counts[2],
                                            i / counts[4] % counts[3], i % counts[4]};
        int64_t t = box.list[r] * box.unit, d = static_cast<int64_t>(r) * box.record_stride;
        for (size_t k = 1; k < 5; ++k) {
          t += at[k] * table[k];
          d += at[k] * dense[k];
        }
        std::memcpy(&expected[static_cast<size_t>(box.scatter ? t : d)],
                    &from[static_cast<size_t>(box.scatter ? d : t)], elem);
      }
    }
    const int parts = box.scatter ? 1 : 3;
    for (int part = 0; part < parts; ++part) {
      copy_records(box, {.flat = from.data()}, {.flat = to.data()}, part, parts);
    }
    ASSERT_EQ(to, expected) << "round " << round;
  }
}

}  // namespace
}  // namespace tpu::model::test
