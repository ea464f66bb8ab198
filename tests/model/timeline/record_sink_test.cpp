// The record of a step, told events by hand: commands, items of the sequencer, live bytes.
#include "timeline/record_sink.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "board/board_loader.hpp"
#include "exe/executable.hpp"
#include "timeline/live_bytes.hpp"

namespace tpu::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::SizeIs;
using ::testing::Throws;

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
                   .gang = spec::CoreSet(1U << 2),
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
  RecordSink sink_{spec::load_board("v3_8"), {.first_step = 4}, programs_};
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

TEST_F(Record, HoldsTheFaultsOfItsStepAlone) {
  const auto upset = [&](uint64_t cycle, bool fires) {
    sink_.upset({.cycle = cycle,
                 .core = 6,
                 .fires = fires,
                 .kind = "hbm",
                 .place = "core 6",
                 .text = "a bit flips"});
  };
  upset(90, true);
  step(true, 100);
  command(104, source(spec::Queue::kMxu0, 21, spec::Opcode::kMatmul));
  upset(110, true);
  upset(120, false);
  step(false, 200);
  upset(201, false);
  const spec::StepRecord record = take();
  ASSERT_THAT(record.faults, SizeIs(2));
  EXPECT_EQ(record.faults[0].cycle, 110u);
  EXPECT_EQ(record.faults[0].core, 6u);
  EXPECT_EQ(record.faults[0].damage, 0);
  EXPECT_EQ(record.faults[0].kind, "hbm");
  EXPECT_EQ(record.faults[0].place, "core 6");
  EXPECT_EQ(record.faults[0].text, "a bit flips");
  EXPECT_EQ(record.faults[1].damage, 1);
}

TEST_F(Record, HoldsNoMoreFaultsThanTheMost) {
  step(true, 100);
  command(104, source(spec::Queue::kMxu0, 21, spec::Opcode::kMatmul));
  for (size_t i = 0; i <= spec::kMostRecordedFaults; ++i) {
    sink_.upset({.cycle = 110, .core = 2, .fires = true});
  }
  step(false, 200);
  EXPECT_THAT(take().faults, SizeIs(spec::kMostRecordedFaults));
}

TEST_F(Record, HoldsTransfersWithTheHost) {
  const auto transfer = [&](uint64_t cycle, bool begin, bool write, uint32_t core = 2) {
    sink_.transfer(
        {.cycle = cycle,
         .core = core,
         .begin = begin,
         .range = {.owner = core, .memory = ProbeMemory::kHbm, .bytes = 640, .write = write}});
  };
  transfer(90, true, true);  // before the step
  transfer(95, false, true);
  step(true, 100);
  transfer(110, true, false);
  transfer(115, true, true, 3);  // of a core that is not in it
  transfer(130, false, false);
  transfer(140, true, true);
  transfer(170, false, true);
  step(false, 200);
  const spec::StepRecord record = take();
  ASSERT_THAT(record.cores, SizeIs(1));
  const std::vector<spec::HostTransfer>& host = record.cores[0].host;
  ASSERT_THAT(host, SizeIs(2));
  EXPECT_EQ(host[0].begin, 110u);
  EXPECT_EQ(host[0].end, 130u);
  EXPECT_EQ(host[0].bytes, 640u);
  EXPECT_EQ(host[0].to_host, 1u);
  EXPECT_EQ(host[1].begin, 140u);
  EXPECT_EQ(host[1].end, 170u);
  EXPECT_EQ(host[1].to_host, 0u);
}

TEST_F(Record, HoldsTheArraysOfThePeak) {
  auto program = std::make_shared<exe::ExecutableT>();
  const auto add = [&](uint32_t from, uint32_t to, uint64_t bytes, std::vector<int64_t> dims) {
    auto t = std::make_unique<exe::TemporaryT>();
    t->from = from;
    t->to = to;
    t->bytes = bytes;
    t->elem = exe::Elem::f32;
    t->dims = std::move(dims);
    t->op = static_cast<uint32_t>(program->temporaries.size());
    program->temporaries.push_back(std::move(t));
  };
  add(0, 3, 400, {100});
  add(1, UINT32_MAX, 600, {3, 50});
  add(2, 5, 800, {200});
  add(4, 6, 300, {75});  // the first one is gone
  programs_.name(9, program);
  step(true, 100);
  step(false, 200);
  const spec::StepRecord record = take();
  ASSERT_THAT(record.peak, SizeIs(3));
  EXPECT_EQ(record.peak_op, 2u);
  EXPECT_EQ(record.peak[1].type, "f32[3,50]");
  EXPECT_EQ(record.peak[1].bytes, 600u);
  EXPECT_EQ(record.peak[2].op, 2u);
}

TEST_F(Record, AStepThatDoesNotEndAsItShouldIsNone) {
  step(true, 100);
  command(104, source(spec::Queue::kVpu, 1, spec::Opcode::kVpuKernel));
  step(false, 200, 4, false);
  EXPECT_EQ(sink_.take(), "");
}

TEST_F(Record, TheLongestOfAllSteps) {
  RecordSink longest(spec::load_board("v3_8"), {.steps = UINT64_MAX}, programs_);
  const auto step = [&](uint64_t number, uint64_t begin, uint64_t end, uint32_t core, uint32_t mask,
                        bool complete = true) {
    longest.program({.cycle = begin,
                     .core = core,
                     .gang = spec::CoreSet(mask),
                     .launch = 9,
                     .step = number,
                     .begin = true});
    longest.program({.cycle = end,
                     .core = core,
                     .gang = spec::CoreSet(mask),
                     .step = number,
                     .complete = complete});
  };
  EXPECT_EQ(longest.take(), "");
  step(0, 100, 200, 2, 4);
  step(1, 300, 600, 2, 4);
  step(2, 700, 800, 2, 4);
  step(3, 900, 9000, 2, 4, false);  // has failed
  const std::string bytes = longest.take();
  const spec::StepRecord record = spec::read_record(std::as_bytes(std::span(bytes)));
  EXPECT_EQ(record.step, 1u);
  EXPECT_EQ(record.end() - record.begin(), 300u);
  EXPECT_EQ(longest.take(), "");
}

// Its first core begins while another step is recorded: the others alone would be no step.
TEST_F(Record, AStepBesideTheRecordedOneIsLeftOut) {
  RecordSink longest(spec::load_board("v3_8"), {.steps = UINT64_MAX}, programs_);
  const auto program = [&](uint64_t step, uint64_t cycle, uint32_t core, uint32_t mask,
                           bool begin) {
    longest.program({.cycle = cycle,
                     .core = core,
                     .gang = spec::CoreSet(mask),
                     .launch = 9,
                     .step = step,
                     .begin = begin,
                     .complete = !begin});
  };
  program(0, 100, 0, 1, true);
  program(1, 150, 2, 12, true);
  program(0, 200, 0, 1, false);
  program(1, 210, 3, 12, true);
  program(1, 9000, 2, 12, false);
  program(1, 9000, 3, 12, false);
  const std::string bytes = longest.take();
  EXPECT_EQ(spec::read_record(std::as_bytes(std::span(bytes))).step, 0u);
}

TEST_F(Record, AFileGetsItsStepAtTheEndOfIt) {
  const std::string path = testing::TempDir() + "record_sink_step.tpurec";
  std::filesystem::remove(path);
  RecordSink sink(spec::load_board("v3_8"), {.first_step = 4, .path = path}, programs_);
  EXPECT_FALSE(std::filesystem::exists(path));
  sink.program(
      {.cycle = 1, .core = 2, .gang = spec::CoreSet(4), .launch = 9, .step = 4, .begin = true});
  sink.program({.cycle = 7, .core = 2, .gang = spec::CoreSet(4), .step = 4, .complete = true});
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(spec::read_record(std::as_bytes(std::span(bytes))).step, 4u);
  EXPECT_EQ(sink.finish(), "");
}

TEST_F(Record, AWindowEndsWithItsLastStep) {
  const std::string path = testing::TempDir() + "record_sink_window.tpurec";
  std::filesystem::remove(path);
  RecordSink sink(spec::load_board("v3_8"), {.first_step = 1, .steps = 2, .path = path}, programs_);
  for (uint64_t step = 0; step < 4; ++step) {
    EXPECT_EQ(std::filesystem::exists(path), step > 2);
    sink.program({.cycle = 1000 * step,
                  .core = 2,
                  .gang = spec::CoreSet(4),
                  .launch = 9,
                  .step = step,
                  .begin = true});
    sink.program({.cycle = 1000 * step + 100 * (4 - step),
                  .core = 2,
                  .gang = spec::CoreSet(4),
                  .step = step,
                  .complete = true});
  }
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(spec::read_record(std::as_bytes(std::span(bytes))).step, 1u);
  EXPECT_EQ(sink.finish(), "");
}

TEST_F(Record, AFileOfTheLongestStepIsWrittenAtTheEnd) {
  const std::string path = testing::TempDir() + "record_sink_longest.tpurec";
  std::filesystem::remove(path);
  RecordSink sink(spec::load_board("v3_8"), {.steps = UINT64_MAX, .path = path}, programs_);
  sink.program({.cycle = 1, .core = 2, .gang = spec::CoreSet(4), .launch = 9, .begin = true});
  sink.program({.cycle = 7, .core = 2, .gang = spec::CoreSet(4), .complete = true});
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(sink.finish(), "");
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(Record, SaysThatTheStepNeverCame) {
  const std::string path = testing::TempDir() + "record_sink_none.tpurec";
  std::ofstream(path) << "other";
  RecordSink sink(spec::load_board("v3_8"), {.first_step = 4, .path = path}, programs_);
  EXPECT_THAT(sink.finish(), HasSubstr("no step 4 ran to its end"));
  EXPECT_EQ(std::filesystem::file_size(path), 5u);
  RecordSink longest(spec::load_board("v3_8"), {.steps = UINT64_MAX, .path = path}, programs_);
  EXPECT_THAT(longest.finish(), HasSubstr("no step ran to its end"));
}

TEST_F(Record, RefusesAFileThatCannotBeWritten) {
  EXPECT_THAT(
      [&] { RecordSink(spec::load_board("v3_8"), {.path = "/nowhere/step.tpurec"}, programs_); },
      Throws<std::runtime_error>(Property(&std::runtime_error::what,
                                          HasSubstr("cannot write record /nowhere/step.tpurec"))));
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
