// Cores that reach each other by serialized messages, as over a wire between processes, against
// cores that share their memories: equal bits, equal times of every command, equal faults.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "core_bench.hpp"
#include "exchange_run.hpp"
#include "tpu/spec/fault_regs.hpp"

namespace tpu::model::test {
namespace {

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

// Its own slots and those of the receiver: equal bits, and no cycle more.
TEST_F(CoreRemote, SlotsFromRegistersAreThoseThatAreMeant) {
  const Seen wanted = direct(exchange_program(1));
  EXPECT_TRUE(by_messages(exchange_program(1, true)) == wanted);
  EXPECT_EQ(direct(exchange_program(1, true)).results, wanted.results);
}

// The receiver's tables decide; the sender faults. What goes to a core that has faulted is dropped:
// of a pair that sends in one cycle, the second.
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
    EXPECT_EQ(wanted.faults, (std::vector<uint32_t>{code, 0, code, 0}));
    EXPECT_EQ(seen.faults, wanted.faults);
    EXPECT_EQ(messages_.fault_record(1).length, direct_.fault_record(1).length);
  }
}

// The slot is the number of the partner; of slots 0 to 2, core 2 means 3.
TEST_F(CoreRemote, ASlotRegisterThatLeavesTheTableFaultsAtTheSender) {
  ProgramBuilder p;
  p.scalar(spec::ScalarOp::kRid, 1);
  p.scalar(spec::ScalarOp::kXori, 1, 1, 0, 1);
  p.copy(Queue::kDmaRemote, vmem(0), hbm(0, 0, 0, 1), 16, Sync(), 1);
  p.halt();
  EXPECT_EQ(direct(p).faults, (std::vector<uint32_t>{0, 0, TPU_FAULT_SLOT_RANGE, 0}));
  EXPECT_EQ(direct_.fault_record(2).detail, spec::fault::kDetailSlot);
  EXPECT_EQ(direct_.fault_record(2).slot, 3u);
  EXPECT_EQ(by_messages(p).faults, (std::vector<uint32_t>{0, 0, TPU_FAULT_SLOT_RANGE, 0}));
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
