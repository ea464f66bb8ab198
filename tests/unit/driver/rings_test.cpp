// The rings of one core, without a board: commands in, completions out, room, tracks, doorbells.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "file/crc32c.hpp"
#include "src/rings/command_ring.hpp"
#include "src/rings/core_registers.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

namespace core_page = spec::core_page;

class Rings : public testing::Test {
 protected:
  Rings() { ring_.clear(); }

  static std::shared_ptr<Command> command(uint16_t opcode = TPU_OP_FILL,
                                          uint8_t track = TPU_TRACK_UP) {
    auto made = std::make_shared<Command>();
    made->opcode = opcode;
    made->track = track;
    return made;
  }
  std::shared_ptr<Command> send(const std::shared_ptr<Command>& what) {
    ring_.make_place();
    ring_.enter(what);
    return what;
  }
  tpu_command_head_t head(uint32_t seq) const {
    tpu_command_head_t head;
    const size_t slot = seq & ((1u << TPU_CMD_RING_LOG2) - 1);
    std::memcpy(&head, commands_.data() + slot * TPU_CMD_ENTRY_BYTES, sizeof(head));
    return head;
  }
  static void seal(tpu_completion_t& record) {
    const auto bytes = std::as_bytes(std::span<const tpu_completion_t, 1>(&record, 1));
    record.crc = spec::crc32c(bytes.first(sizeof(record) - sizeof(record.crc)));
  }
  // As the firmware does.
  void complete(uint32_t seq, uint16_t flags = 0) {
    tpu_completion_t record{};
    record.seq = seq;
    record.status = TPU_STATUS_OK;
    const bool lap_even = ((written_ >> TPU_CPL_RING_LOG2) & 1) == 0;
    record.flags = static_cast<uint16_t>(flags | (lap_even ? TPU_CPL_FLAG_PHASE : 0));
    seal(record);
    const size_t slot = written_++ & ((1u << TPU_CPL_RING_LOG2) - 1);
    std::memcpy(completions_.data() + slot * TPU_CPL_ENTRY_BYTES, &record, sizeof(record));
  }
  // What is wrong with a record, or nothing.
  std::string trouble(const tpu_completion_t& record) const {
    std::string wrong;
    const Command* command = ring_.command_of(record, wrong);
    EXPECT_EQ(command == nullptr, !wrong.empty());
    return wrong;
  }
  tpu_completion_t next() const {
    tpu_completion_t record{};
    EXPECT_TRUE(ring_.next(record));
    return record;
  }

  std::vector<std::byte> commands_ = std::vector<std::byte>(CommandRing::kCommandBytes);
  std::vector<std::byte> completions_ = std::vector<std::byte>(CommandRing::kCompletionBytes);
  CommandRing ring_{{0x10000, commands_}, {0x20000, completions_}};
  uint32_t written_ = 0;
};

TEST_F(Rings, CommandsGoOverManyLapsAndComeBackInAnyOrder) {
  constexpr uint32_t kPairs = 3 << TPU_CPL_RING_LOG2;
  for (uint32_t pair = 0; pair < kPairs; ++pair) {
    const auto first = send(command());
    const auto second = send(command());
    ASSERT_EQ(head(second->seq).seq, 2 * pair + 1);
    complete(second->seq);
    complete(first->seq);
    ASSERT_EQ(trouble(next()), "");
    ASSERT_EQ(ring_.accept(next()), second);
    ASSERT_EQ(ring_.open(), 1u);
    ASSERT_EQ(ring_.in_flight(second->seq), nullptr);
    ASSERT_EQ(ring_.in_flight(first->seq), first.get());
    ASSERT_EQ(ring_.accept(next()), first);
    ASSERT_EQ(ring_.open(), 0u);
    tpu_completion_t none;
    ASSERT_FALSE(ring_.next(none));
  }
  EXPECT_EQ(ring_.tail(), 2 * kPairs);
  EXPECT_EQ(ring_.taken(), 2 * kPairs);
}

TEST_F(Rings, ARecordThatSaysMoreLeavesItsCommandInFlight) {
  const auto launch = send(command(TPU_OP_LAUNCH, TPU_TRACK_LAUNCH));
  complete(0, TPU_CPL_FLAG_MORE);
  complete(0);
  EXPECT_EQ(ring_.accept(next()), launch);
  EXPECT_EQ(ring_.open(), 1u);
  EXPECT_EQ(ring_.accept(next()), launch);
  EXPECT_EQ(ring_.open(), 0u);
}

TEST_F(Rings, RoomIsThatOfTheWindowAndOfLaunches) {
  EXPECT_TRUE(ring_.has_room(false, 224));
  EXPECT_FALSE(ring_.has_room(false, 225));
  for (int i = 0; i < 32; ++i) {
    EXPECT_TRUE(ring_.has_room(true));
    send(command(TPU_OP_LAUNCH, TPU_TRACK_LAUNCH));
  }
  EXPECT_FALSE(ring_.has_room(true));
  EXPECT_TRUE(ring_.has_room(false, 192));
  EXPECT_FALSE(ring_.has_room(false, 193));
  ring_.make_place();
  EXPECT_FALSE(ring_.has_room(false, 192));
  ring_.drop_place();
  complete(0);
  ring_.accept(next());
  EXPECT_TRUE(ring_.has_room(true));
}

TEST_F(Rings, WhatIsWrongWithARecordIsSaid) {
  send(command());
  tpu_completion_t record{};
  record.seq = 1;
  seal(record);
  EXPECT_EQ(trouble(record), "it is of command 1, which is not in flight");
  record.seq = 0;
  EXPECT_NE(trouble(record).find("its CRC is"), std::string::npos);
  seal(record);
  EXPECT_EQ(trouble(record), "");
}

TEST_F(Rings, ACommandWaitsForWhatItsMemoryNeeds) {
  const auto hbm = std::make_shared<DeviceMemory>(0, uint64_t{1} << 20);
  const auto memory = Allocation::make(hbm, 512, "array");
  const auto write = command();
  write->writes = {memory};
  const auto read = command(TPU_OP_COPY, TPU_TRACK_DOWN);
  read->reads = {memory};
  const auto write_again = command(TPU_OP_LAUNCH, TPU_TRACK_LAUNCH);
  write_again->writes = {memory};
  send(write);
  send(read);
  send(write_again);
  EXPECT_EQ(head(0).wait_up, 0u);
  EXPECT_EQ(head(1).wait_up, 1u);
  EXPECT_EQ(head(1).wait_down, 0u);
  EXPECT_EQ(head(2).wait_up, 1u) << "behind the writer";
  EXPECT_EQ(head(2).wait_down, 1u) << "and behind the reader";
  // The core counts afresh: what was sent before is over.
  ring_.take_all();
  ring_.begin_epoch(6);
  ring_.resume();
  const auto later = command(TPU_OP_COPY, TPU_TRACK_DOWN);
  later->reads = {memory};
  send(later);
  EXPECT_EQ(head(3).wait_launch, 0u);
  EXPECT_EQ(head(3).wait_up, 0u);
  EXPECT_EQ(head(3).epoch, 7u);
}

TEST_F(Rings, AllThatIsInFlightIsTakenInItsOrder) {
  const auto first = send(command());
  const auto second = send(command());
  const auto third = send(command(TPU_OP_LAUNCH, TPU_TRACK_LAUNCH));
  complete(second->seq);
  ring_.accept(next());
  EXPECT_EQ(ring_.first([](const Command& each) { return each.opcode == TPU_OP_LAUNCH; }),
            third.get());
  EXPECT_EQ(ring_.take_all(), (std::vector{first, third}));
  EXPECT_EQ(ring_.open(), 0u);
  EXPECT_EQ(ring_.open(), 0u);
  EXPECT_TRUE(ring_.has_room(false, 224));
}

// Counts how often it is asked, and may fail.
class Wire : public Transport {
 public:
  uint32_t read32(int, int, uint64_t) override {
    log.push_back("read");
    return 7;
  }
  void write32(int chip, int, uint64_t offset, uint32_t value) override {
    if (fails) {
      throw std::runtime_error("the wire is cut");
    }
    log.push_back(std::to_string(chip) + ":" + std::to_string(offset) + "=" +
                  std::to_string(value));
  }
  void write_block(int, int, uint64_t, std::span<const std::byte>) override {}
  RunOutcome run() override { return {}; }
  uint64_t now() override { return 0; }
  TransportStats stats() override { return {}; }

  std::vector<std::string> log;
  bool fails = false;
};

TEST_F(Rings, DoorbellsReachTheBoardBeforeAnythingElseIsAskedOfIt) {
  std::string failure;
  CoreRegisters registers([&](const std::exception& error) { failure = error.what(); });
  Wire wire;
  registers.connect(&wire);
  const CorePlace core{.id = 3, .chip = 1, .core = 1};
  send(command());
  send(command());
  registers.make_room(1);
  registers.ring(core, ring_);
  registers.ring(core, ring_);  // nothing new
  EXPECT_TRUE(wire.log.empty());
  EXPECT_EQ(registers.read(core, core_page::kEpoch), 7u);
  const uint64_t page = core_page::kBase + core_page::kStride;
  EXPECT_EQ(wire.log, (std::vector<std::string>{
                          "1:" + std::to_string(page + core_page::kCmdTail) + "=2", "read"}));
  registers.write(core, core_page::kAbort, 9);
  EXPECT_EQ(wire.log.back(), "1:" + std::to_string(page + core_page::kAbort) + "=9");
  wire.fails = true;
  send(command());
  registers.ring(core, ring_);
  registers.send();
  EXPECT_EQ(failure, "the wire is cut");
  failure.clear();
  registers.send();
  EXPECT_EQ(failure, "") << "what failed is not tried again";
}

}  // namespace
}  // namespace tpu::driver
