// The record of a step, told events by hand: commands, items of the sequencer, live bytes.
#include "timeline/record_sink.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "board/board_loader.hpp"
#include "exe/executable.hpp"
#include "timeline/live_bytes.hpp"

namespace tpu::model {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

MATCHER_P2(IsLive, cycle, bytes, "") {
  *result_listener << arg.cycle << ": " << arg.bytes;
  return arg.cycle == static_cast<uint64_t>(cycle) && arg.bytes == static_cast<uint64_t>(bytes);
}

class Record : public ::testing::Test {
 protected:
  static ProbeSource source(spec::Queue queue, uint64_t sequence, spec::Opcode opcode) {
    return {.core = 2,
            .unit = static_cast<uint32_t>(queue),
            .sequence = sequence,
            .step = 4,
            .op_id = 0,
            .opcode = static_cast<uint8_t>(opcode)};
  }
  static ProbeSource sequencer() { return {.core = 2, .unit = kSequencerUnit, .step = 4}; }
  void step(bool begin, uint64_t cycle, uint64_t number = 4, bool complete = true) {
    sink_.program({.cycle = cycle,
                   .core = 2,
                   .mask = 1U << 2,
                   .launch = 9,
                   .step = number,
                   .begin = begin,
                   .complete = complete});
  }
  void command(uint64_t at, const ProbeSource& who) {
    sink_.issue({.cycle = at, .source = who});
    sink_.start({.cycle = at + 1, .source = who, .issued = at, .free_at = at + 2, .flops = 64});
    sink_.signal({.cycle = at + 9, .source = who, .to_core = 2, .semaphore = 5, .amount = 1});
    sink_.done({.cycle = at + 9, .source = who, .issued = at, .start = at + 1});
  }
  spec::StepRecord take() {
    const std::string bytes = sink_.take();
    EXPECT_FALSE(bytes.empty());
    return spec::read_record(std::as_bytes(std::span(bytes)));
  }

  LaunchPrograms programs_;
  RecordSink sink_{spec::load_board("v3_8"), 4, programs_};
};

TEST_F(Record, HoldsTheCommandsOfItsStepAlone) {
  auto program = std::make_shared<exe::ExecutableT>();
  program->name = "mlp";
  program->notes = {"update not sharded"};
  program->ops.push_back(std::make_unique<exe::OpInfoT>());
  program->ops[0]->name = "dot";
  program->slots.push_back(std::make_unique<exe::SlotT>());
  program->slots[0]->kind = exe::SlotKind::scratch;
  program->slots[0]->bytes = 512;
  programs_.name(9, program);
  step(true, 10, 3);
  command(14, source(spec::Queue::kMxu0, 20, spec::Opcode::kMatmul));
  step(false, 90, 3);
  EXPECT_EQ(sink_.take(), "");
  step(true, 100);
  command(104, source(spec::Queue::kMxu0, 21, spec::Opcode::kMatmul));
  EXPECT_EQ(sink_.take(), "");
  step(false, 200);
  const spec::StepRecord record = take();
  EXPECT_EQ(record.program, "mlp");
  EXPECT_THAT(record.notes, testing::ElementsAre("update not sharded"));
  EXPECT_EQ(record.scratch_bytes, 512u);
  ASSERT_THAT(record.cores, SizeIs(1));
  const spec::RecordedCore& core = record.cores[0];
  EXPECT_EQ(core.core, 2u);
  EXPECT_EQ(core.begin, 100u);
  EXPECT_EQ(core.end, 200u);
  ASSERT_THAT(core.commands, SizeIs(1));
  EXPECT_EQ(core.commands[0].start, 105u);
  EXPECT_EQ(core.commands[0].done, 113u);
  EXPECT_EQ(core.commands[0].flops, 64u);
  EXPECT_EQ(core.commands[0].signal[0].semaphore, 5);
  EXPECT_EQ(core.commands[0].signal[1].amount, 0u);
  EXPECT_THAT(core.items, SizeIs(2));  // issue, halt
  EXPECT_EQ(sink_.take(), "");
}

TEST_F(Record, AStepThatDoesNotEndAsItShouldIsNone) {
  step(true, 100);
  command(104, source(spec::Queue::kVpu, 1, spec::Opcode::kVpuKernel));
  step(false, 200, 4, false);
  EXPECT_EQ(sink_.take(), "");
}

TEST_F(Record, SaysWhenTheSequencerArrivedWhereItWaited) {
  step(true, 100);
  const auto wait = [&](WaitEvent::For what, uint64_t since, uint64_t cycle, bool begin) {
    sink_.wait(
        {.cycle = cycle, .source = sequencer(), .what = what, .since = since, .begin = begin});
  };
  wait(WaitEvent::For::kSemaphore, 103, 103, true);
  wait(WaitEvent::For::kSemaphore, 103, 120, false);
  wait(WaitEvent::For::kSemaphore, 120, 120, true);
  wait(WaitEvent::For::kSemaphore, 120, 130, false);
  sink_.take({.cycle = 130, .source = sequencer(), .semaphore = 6, .threshold = 2, .takes = true});
  wait(WaitEvent::For::kHost, 131, 131, true);
  wait(WaitEvent::For::kHost, 131, 170, false);
  sink_.signal({.cycle = 180, .source = sequencer(), .to_core = 2, .semaphore = 7, .amount = 1});
  wait(WaitEvent::For::kEngines, 181, 181, true);
  wait(WaitEvent::For::kEngines, 181, 200, false);
  step(false, 200);
  const std::vector<spec::SequencerItem> items = take().cores.at(0).items;
  ASSERT_THAT(items, SizeIs(4));
  using Kind = spec::SequencerItem::Kind;
  const auto is = [](const spec::SequencerItem& item, Kind kind, uint64_t arrived, uint64_t went) {
    return item.kind == kind && item.arrived == arrived && item.went == went;
  };
  EXPECT_TRUE(is(items[0], Kind::kTake, 103, 130));
  EXPECT_EQ(items[0].index, 6u);
  EXPECT_TRUE(is(items[1], Kind::kHost, 131, 170));
  EXPECT_TRUE(is(items[2], Kind::kSignal, 180, 180));
  EXPECT_TRUE(is(items[3], Kind::kHalt, 181, 200));
}

TEST_F(Record, ATransferHasItsBytesAndItsLastOne) {
  step(true, 100);
  const ProbeSource who = source(spec::Queue::kDmaIn, 1, spec::Opcode::kDma);
  sink_.issue({.cycle = 104, .source = who});
  sink_.flow({.cycle = 105,
              .source = who,
              .phase = FlowEvent::Phase::kBegin,
              .bytes = 4096,
              .from = {.core = 2, .memory = ProbeMemory::kHbm},
              .to = {.core = 2, .memory = ProbeMemory::kVmem}});
  sink_.start({.cycle = 105, .source = who, .issued = 104, .free_at = 106});
  sink_.flow({.cycle = 120, .source = who, .phase = FlowEvent::Phase::kRate, .bytes = 4096});
  sink_.flow({.cycle = 140, .source = who, .phase = FlowEvent::Phase::kEnd, .bytes = 4096});
  sink_.done({.cycle = 190, .source = who, .issued = 104, .start = 105});
  step(false, 200);
  const spec::RecordedCommand command = take().cores.at(0).commands.at(0);
  EXPECT_EQ(command.bytes, 4096u);
  EXPECT_EQ(command.flow_end, 140u);
  EXPECT_EQ(command.from, spec::RecordedMemory::kHbm);
  EXPECT_EQ(command.to, spec::RecordedMemory::kVmem);
}

TEST(LivePages, FromTheWriteToTheLastRead) {
  LivePages pages(100);
  pages.begin(10);
  pages.touch(20, 0, 200, true);   // two pages
  pages.touch(30, 0, 50, false);   // the first is read
  pages.touch(40, 50, 10, false);  // until here
  pages.touch(60, 0, 100, true);   // other contents, which stay
  pages.touch(35, 300, 1, false);  // there before the step
  EXPECT_THAT(pages.finish(90), ElementsAre(IsLive(10, 100), IsLive(20, 300), IsLive(35, 200),
                                            IsLive(40, 100), IsLive(60, 200), IsLive(90, 0)));
}

TEST(LivePages, WritesThatFollowEachOtherAreOne) {
  LivePages pages(100);
  pages.begin(0);
  pages.touch(10, 0, 50, true);
  pages.touch(20, 50, 50, true);
  pages.touch(50, 0, 100, false);
  EXPECT_THAT(pages.finish(90), ElementsAre(IsLive(10, 100), IsLive(50, 0)));
}

}  // namespace
}  // namespace tpu::model
