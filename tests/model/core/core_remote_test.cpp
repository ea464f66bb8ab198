// Cores that reach each other by serialized messages, as over a wire between processes, against
// cores that share their memories: equal bits, equal times of every command, equal faults.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "core_bench.hpp"
#include "tpu/spec/fault_regs.hpp"

namespace tpu::model::test {
namespace {

using spec::Queue;

constexpr uint32_t kCores = 4;
constexpr uint32_t kBytes = 192 * 1024;

// Sends rows with gaps into the partner's HBM and dense bytes into its VMEM, both ways at once,
// then a signal alone; brings home what came.
ProgramBuilder exchange_program(uint32_t partner_mask) {
  ProgramBuilder p;
  p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), kBytes, Sync().signal(1));
  p.scalar(spec::ScalarOp::kRid, 1);
  p.scalar(spec::ScalarOp::kXori, 1, 1, 0, static_cast<int32_t>(partner_mask));
  spec::DmaCommand rows;
  rows.src = vmem(64), rows.dst = hbm(1, 100), rows.elem_bytes = 4, rows.peer_reg = 1;
  rows.counts = {1, 3, 5, 7, 300};
  rows.src_strides = {0, 40'000, 8'000, 1'200, 4};
  rows.dst_strides = {0, 60'000, 9'000, -1'204, 4};
  rows.dst.offset += 6 * 1'204;
  p.command(rows, spec::Opcode::kDma, Queue::kDmaRemote, Sync().wait(1).remote(2, 1));
  p.copy(Queue::kDmaRemote, vmem(0), vmem(0x100000), kBytes, Sync().remote(3, 1), 1);
  p.nop(Queue::kDmaRemote, Sync().remote(4, 1));
  p.nop(Queue::kDmaIn, Sync().wait(2));
  p.copy(Queue::kDmaIn, hbm(1, 0), vmem(0x200000), kBytes, Sync().wait(4).signal(5));
  p.copy(Queue::kDmaOut, vmem(0x100000), hbm(2, 0), kBytes, Sync().wait(3));
  p.copy(Queue::kDmaOut, vmem(0x200000), hbm(2, kBytes), kBytes, Sync().wait(5));
  p.halt();
  return p;
}

struct Seen {
  std::vector<std::vector<uint32_t>> results;  // by core
  std::vector<std::vector<uint64_t>> times;    // of its commands, from the first start
  std::vector<uint32_t> faults;
  std::vector<uint64_t> received;
  bool operator==(const Seen&) const = default;
};

Seen run(CoreBench& bench, const ProgramBuilder& program) {
  ProgramBuilder builder = program;
  const auto image = builder.image(3);
  for (uint32_t core = 0; core < kCores; ++core) {
    std::vector<uint32_t> data(kBytes / 4);
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = static_cast<uint32_t>(i * 2654435761u + core);
    }
    bench.write(core, CoreBench::kHbm, 0, data);
    bench.bind_slot(core, 0, 0, kBytes);
    bench.bind_slot(core, 1, 0x100000, kBytes);
    bench.bind_slot(core, 2, 0x200000, 2 * kBytes);
    bench.load(core, image, 3, (1u << kCores) - 1);
  }
  const uint64_t begin = now_cycles();
  for (uint32_t core = 0; core < kCores; ++core) {
    bench.start(core);
  }
  bench.run();
  Seen seen;
  for (uint32_t core = 0; core < kCores; ++core) {
    seen.results.push_back(bench.read<uint32_t>(core, CoreBench::kHbm, 0x200000, 2 * kBytes / 4));
    seen.faults.push_back(bench.fault_record(core).code);
    seen.received.push_back(bench.cores[core]->counters()[spec::perf::kIciReceivedBytes]);
    seen.times.emplace_back();
    for (const DoneEvent& c : bench.sink.commands) {
      if (c.source.core == core) {
        seen.times.back().insert(seen.times.back().end(), {c.start - begin, c.cycle - begin});
      }
    }
  }
  return seen;
}

class CoreRemote : public ::testing::Test {
 protected:
  static constexpr const char* kChips = "board.chips=2";
  Seen direct(const ProgramBuilder& p) { return run(direct_, p); }
  Seen by_messages(const ProgramBuilder& p) { return run(messages_, p); }

  CoreBench direct_{"direct", {.overrides = {kChips}, .threads = 2}};
  CoreBench messages_{"messages", {.overrides = {kChips}, .threads = 2, .messages = true}};
};

TEST_F(CoreRemote, MessagesGiveEqualBitsAndTimes) {
  for (const uint32_t mask : {1u, 2u, 3u}) {
    const ProgramBuilder program = exchange_program(mask);
    direct_.sink.commands.clear();
    messages_.sink.commands.clear();
    const Seen wanted = direct(program);
    const Seen seen = by_messages(program);
    EXPECT_EQ(wanted.faults, std::vector<uint32_t>(kCores, 0)) << direct_.cores[0]->fault().text();
    EXPECT_TRUE(seen == wanted) << "partner " << mask;
    // What came lies where it was sent.
    for (uint32_t core = 0; core < kCores; ++core) {
      EXPECT_EQ(wanted.results[core][1000], 1000 * 2654435761u + (core ^ mask));
    }
  }
  for (const auto& wire : messages_.wires) {
    EXPECT_EQ(wire->payload(), 3u * (kBytes + 3 * 5 * 7 * 300 * 4));
  }
}

// The receiver's tables decide; the sender faults. What goes to a core that has faulted is dropped.
TEST_F(CoreRemote, WritesOutsideTheReceiversMemoryFaultAlike) {
  for (const bool in_hbm : {true, false}) {
    ProgramBuilder p;
    p.scalar(spec::ScalarOp::kRid, 1);
    p.scalar(spec::ScalarOp::kXori, 1, 1, 0, 1);
    p.copy(Queue::kDmaRemote, vmem(0), in_hbm ? hbm(1, kBytes - 8) : vmem(1 << 30), 16, Sync(), 1);
    p.halt();
    const Seen wanted = direct(p);
    const Seen seen = by_messages(p);
    const uint32_t code = in_hbm ? TPU_FAULT_SLOT_RANGE : TPU_FAULT_VMEM_RANGE;
    EXPECT_EQ(wanted.faults, (std::vector<uint32_t>{0, code, code, 0}));
    EXPECT_EQ(seen.faults, wanted.faults);
    EXPECT_EQ(messages_.fault_record(1).length, direct_.fault_record(1).length);
  }
}

// A message is looked at when it comes, too: what no longer fits then is dropped and counted.
TEST_F(CoreRemote, AMessageThatNoLongerFitsIsDropped) {
  ProgramBuilder p;
  p.scalar(spec::ScalarOp::kSwait, 0, 1, 0, 1);
  p.halt();
  messages_.load(0, p.image(0), 0, 1);
  messages_.start(0);
  sc_core::sc_start(from_cycles(100));
  RemoteIf& core = *messages_.wires[0];
  RemoteWrite write{.from = {7, 0}, .address = vmem(0), .high = 4, .run_bytes = 4, .bytes = 4};
  RemotePlace place;
  ASSERT_EQ(core.remote_open(write, &place).status, RemoteAnswer::Status::kOk);
  write.address = hbm(3, 0);  // not bound
  core.remote_landed(write, std::vector<uint8_t>(4, 1));
  EXPECT_EQ(messages_.read32(0, CoreBench::kSem, spec::sem::kStale), 1u);
  EXPECT_EQ(messages_.state(0), spec::seq::kStateRunning);
}

}  // namespace
}  // namespace tpu::model::test
