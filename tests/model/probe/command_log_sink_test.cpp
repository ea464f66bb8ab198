// The log of commands: order, numbers, operands, and a look into memory at the end of one.
#include "probe/command_log_sink.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tpu::model {
namespace {

using ::testing::ElementsAre;

class CommandLogged : public ::testing::Test {
 protected:
  static ProbeSource source(uint32_t core, spec::Queue queue, uint64_t sequence) {
    return {.core = core,
            .unit = static_cast<uint32_t>(queue),
            .sequence = sequence,
            .pc = 7,
            .op_id = 3,
            .opcode = static_cast<uint8_t>(spec::Opcode::kDma)};
  }
  void start(CommandLogSink& sink, uint64_t cycle, const ProbeSource& who,
             const std::vector<AccessRange>& ranges = {}) {
    sink.issue({.cycle = cycle, .source = who});
    const std::function<void(const RangeVisitor&)> walk = [](const RangeVisitor&) {};
    sink.access({.cycle = cycle, .source = who, .extents = ranges, .walk = walk});
    sink.start({.cycle = cycle, .source = who});
  }

  CommandLogSink::ReadMemory zeros_ = [this](const spec::MemoryRange& range, std::span<uint8_t>) {
    looks_.push_back(range);
    return true;
  };
  std::vector<spec::MemoryRange> looks_;
};

TEST_F(CommandLogged, KeepsTimesAndOperandsInTheOrderOfStarts) {
  CommandLogSink sink(2, std::nullopt, zeros_);
  start(sink, 50, source(1, spec::Queue::kVpu, 900),
        {{.owner = 0, .memory = ProbeMemory::kHbm, .low = 64, .bytes = 8, .write = true}});
  start(sink, 40, source(0, spec::Queue::kDmaIn, 11));
  start(sink, 60, source(1, spec::Queue::kVpu, 901));
  sink.done({.cycle = 70, .source = source(1, spec::Queue::kVpu, 900)});
  sink.done({.cycle = 80, .source = source(0, spec::Queue::kDmaIn, 11)});
  const spec::CommandLog log = sink.take_log();
  ASSERT_EQ(log.commands.size(), 3U);
  const auto& [first, second, third] = std::tie(log.commands[0], log.commands[1], log.commands[2]);
  EXPECT_EQ(first.core, 0U);
  EXPECT_EQ(first.number, 1U);
  EXPECT_EQ(first.start, 40U);
  EXPECT_EQ(first.done, 80U);
  EXPECT_EQ(second.number, 1U) << "counted by each core, from where the log begins";
  EXPECT_EQ(second.pc, 7U);
  EXPECT_EQ(second.op_id, 3U);
  ASSERT_EQ(second.operands.size(), 1U);
  EXPECT_EQ(second.operands[0].range, (spec::MemoryRange{0, spec::CoreMemory::kHbm, 64, 8}));
  EXPECT_TRUE(second.operands[0].write);
  EXPECT_EQ(third.number, 2U);
  EXPECT_EQ(third.done, 0U) << "it never ended";
  EXPECT_FALSE(log.looked);
  EXPECT_TRUE(looks_.empty());
}

TEST_F(CommandLogged, LooksWhenTheCommandIsDone) {
  const spec::MemoryRange range{0, spec::CoreMemory::kVmem, 16, 4};
  CommandLogSink sink(2, spec::MemoryLook{1, 2, range}, zeros_);
  start(sink, 10, source(1, spec::Queue::kVpu, 5));
  start(sink, 20, source(1, spec::Queue::kDmaIn, 6));
  sink.done({.cycle = 30, .source = source(1, spec::Queue::kVpu, 5)});
  EXPECT_TRUE(looks_.empty());
  sink.done({.cycle = 40, .source = source(1, spec::Queue::kDmaIn, 6)});
  EXPECT_THAT(looks_, ElementsAre(range));
  EXPECT_EQ(sink.take_log().looked.value().size(), 4U);
}

}  // namespace
}  // namespace tpu::model
