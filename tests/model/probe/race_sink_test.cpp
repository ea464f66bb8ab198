// Happens-before checker, told commands by hand: what orders two accesses, what does not, and what
// a step, a stop and a second core change. Whole programs: tests/model/core/core_check_test.cpp.
#include "probe/race_sink.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "../finding_text.hpp"
#include "board/board_loader.hpp"
#include "exe/executable.hpp"

namespace tpu::model {
namespace {

using spec::Queue;
using test::text_of;
using test::texts_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RaceSinkTest : public ::testing::Test {
 protected:
  RaceSinkTest() { sink.listen(set); }

  ProbeSource command(Queue queue, uint32_t core = 0) {
    const ProbeSource source{.core = core,
                             .unit = static_cast<uint32_t>(queue),
                             .sequence = ++sequence,
                             .pc = static_cast<uint32_t>(10 * sequence),
                             .op_id = 3};
    set.tell<IssueEvent>(kAllCores, ProbeEvent::kIssue, &ProbeSink::issue,
                         [&] { return IssueEvent{.source = source}; });
    return source;
  }
  void take(const ProbeSource& source, uint32_t semaphore, bool takes = true) {
    set.tell<TakeEvent>(kAllCores, ProbeEvent::kTake, &ProbeSink::take, [&] {
      return TakeEvent{.source = source, .semaphore = semaphore, .threshold = 1, .takes = takes};
    });
  }
  void access(const ProbeSource& source, uint64_t low, uint64_t bytes, bool write,
              uint32_t owner = 0, ProbeMemory memory = ProbeMemory::kVmem) {
    const AccessRange range{
        .owner = owner, .memory = memory, .low = low, .bytes = bytes, .write = write};
    const std::function<void(const RangeVisitor&)> walk = [&](const RangeVisitor& visit) {
      visit(range);
    };
    const AccessEvent event{
        .cycle = 0, .source = source, .extents = std::span(&range, 1), .walk = walk};
    set.tell<AccessEvent>(kAllCores, ProbeEvent::kAccess, &ProbeSink::access,
                          [&]() -> const AccessEvent& { return event; });
  }
  void start(const ProbeSource& source) {
    set.tell<StartEvent>(kAllCores, ProbeEvent::kStart, &ProbeSink::start,
                         [&] { return StartEvent{.source = source}; });
  }
  void signal(const ProbeSource& source, uint32_t semaphore, uint32_t to_core = 0) {
    set.tell<SignalEvent>(kAllCores, ProbeEvent::kSignal, &ProbeSink::signal, [&] {
      return SignalEvent{.source = source, .to_core = to_core, .semaphore = semaphore, .amount = 1};
    });
  }
  void done(const ProbeSource& source) {
    set.tell<DoneEvent>(kAllCores, ProbeEvent::kDone, &ProbeSink::done,
                        [&] { return DoneEvent{.source = source}; });
  }
  // HBM bytes 0..63 of the core are undefined when a launch starts.
  void program(uint32_t core, uint32_t step, bool begin, uint32_t launch = 1) {
    const AccessRange fresh{.owner = core, .memory = ProbeMemory::kHbm, .bytes = 64};
    set.tell<ProgramEvent>(kAllCores, ProbeEvent::kProgram, &ProbeSink::program, [&] {
      return ProgramEvent{.core = core,
                          .gang = spec::CoreSet(3),
                          .launch = launch,
                          .launch_step = step,
                          .begin = begin,
                          .fresh = std::span(&fresh, 1)};
    });
  }
  // A command that only writes, all its life at once.
  ProbeSource write(Queue queue, uint64_t low, uint64_t bytes) {
    const ProbeSource source = command(queue);
    access(source, low, bytes, true);
    start(source);
    return source;
  }

  ProbeSet set;
  RaceSink sink{
      spec::load_board("v2_8", {"board.chips=2", "board.torus_x=2", "board.cores_per_chip=1"})};
  uint64_t sequence = 0;
};

TEST_F(RaceSinkTest, AQueueIsInOrder) {
  write(Queue::kDmaIn, 0, 64);
  write(Queue::kDmaIn, 32, 64);
  EXPECT_THAT(texts_of(sink.findings()), IsEmpty());
}

TEST_F(RaceSinkTest, TwoQueuesAreNot) {
  write(Queue::kDmaIn, 0, 64);
  write(Queue::kVpu, 60, 64);
  EXPECT_THAT(texts_of(sink.findings()),
              ElementsAre("core 0 vpu (word 20, op 3) overwrites, without waiting for it, what was "
                          "written by core 0 dma_in (word 10, op 3): bytes 60..63 of VMEM of core "
                          "0"));
}

TEST(RaceSink, KnowsEveryMatrixUnitOfTheBoard) {
  for (const int units : {1, 4}) {
    RaceSink sink(spec::load_board("v3_8", {"core.mxus=" + std::to_string(units)}));
    const Queue last = spec::kMxuQueues[static_cast<size_t>(units - 1)];
    const AccessRange range{.low = 0, .bytes = 64, .write = true};
    const std::function<void(const RangeVisitor&)> walk = [&](const RangeVisitor& visit) {
      visit(range);
    };
    uint64_t sequence = 0;
    for (const Queue queue : {last, Queue::kDmaRemote}) {
      const ProbeSource source{
          .core = 7, .unit = static_cast<uint32_t>(queue), .sequence = ++sequence};
      sink.issue({.source = source});
      sink.access({.cycle = 0, .source = source, .extents = std::span(&range, 1), .walk = walk});
      sink.start({.source = source});
    }
    ASSERT_EQ(sink.count(), 1u) << units;
    EXPECT_THAT(
        text_of(sink.findings()[0]),
        ::testing::HasSubstr("by core 7 " +
                             std::string(spec::kQueueNames[static_cast<size_t>(last)]) + " (word"));
  }
}

TEST_F(RaceSinkTest, ASemaphoreOrdersThemWhetherItIsTakenOrLookedAt) {
  const ProbeSource writer = write(Queue::kDmaIn, 0, 64);
  signal(writer, 2);
  done(writer);
  const ProbeSource looks = command(Queue::kVpu);
  take(looks, 2, false);
  access(looks, 0, 64, false);
  start(looks);
  const ProbeSource takes = command(Queue::kXlu);
  take(takes, 2);
  access(takes, 0, 64, false);
  start(takes);
  EXPECT_THAT(texts_of(sink.findings()), IsEmpty());
  const ProbeSource neither = command(Queue::kDmaOut);
  access(neither, 0, 64, false);
  EXPECT_EQ(sink.count(), 1u);
}

// The signal carries what its command had seen when it started, not what its queue saw since.
TEST_F(RaceSinkTest, ASignalOrdersNothingThatStartedAfterItsCommand) {
  const ProbeSource first = write(Queue::kDmaIn, 0, 64);
  write(Queue::kDmaIn, 64, 64);
  signal(first, 1);
  done(first);
  const ProbeSource reader = command(Queue::kVpu);
  take(reader, 1);
  access(reader, 0, 64, false);
  EXPECT_EQ(sink.count(), 0u);
  access(reader, 64, 64, false);
  EXPECT_EQ(sink.count(), 1u);
}

TEST_F(RaceSinkTest, ASignalOfTheSequencerOrdersNothingBehindIt) {
  const ProbeSource sequencer{.core = 0, .unit = static_cast<uint32_t>(kSequencerUnit)};
  const ProbeSource reader = command(Queue::kVpu);  // what is issued later knows all of it
  access(sequencer, 0, 8, true);
  signal(sequencer, 1);
  access(sequencer, 8, 8, true);
  take(reader, 1);
  access(reader, 0, 8, false);
  EXPECT_EQ(sink.count(), 0u);
  access(reader, 8, 8, false);
  EXPECT_EQ(sink.count(), 1u);
}

TEST_F(RaceSinkTest, SignalsReachOtherCores) {
  const ProbeSource sender = command(Queue::kDmaRemote, 0);
  access(sender, 0, 64, true, 1);
  start(sender);
  signal(sender, 0, 1);
  done(sender);
  const ProbeSource early = command(Queue::kVpu, 1);
  access(early, 0, 16, false, 1);
  start(early);
  EXPECT_EQ(sink.count(), 1u);
  const ProbeSource reader = command(Queue::kXlu, 1);
  take(reader, 0);
  access(reader, 0, 64, false, 1);
  EXPECT_EQ(sink.count(), 1u);
}

TEST_F(RaceSinkTest, WhatNothingWroteIsTold) {
  const ProbeSource reader = command(Queue::kVpu);
  access(reader, 100, 4, false);
  EXPECT_THAT(texts_of(sink.findings()),
              ElementsAre("core 0 vpu (word 10, op 3) reads bytes that nothing has written: bytes "
                          "100..103 of VMEM of core 0"));
}

// One finding an access: the first bytes that nothing has written, however often they were read.
TEST_F(RaceSinkTest, OfSeveralHolesTheFirstIsToldWhole) {
  write(Queue::kDmaIn, 8, 8);
  const ProbeSource reader = command(Queue::kDmaIn);
  access(reader, 4, 4, false);
  access(reader, 0, 64, false);
  ASSERT_EQ(sink.findings().size(), 2u);
  EXPECT_THAT(text_of(sink.findings().back()), ::testing::HasSubstr("bytes 0..7 of VMEM"));
}

// The sequencer's loads, and HBM that the launch got as undefined; else HBM has contents.
TEST_F(RaceSinkTest, WhatNothingWroteIsToldOfEveryMemory) {
  program(0, 0, true);
  const ProbeSource reader = command(Queue::kDmaIn);
  access(reader, 8, 4, false, 0, ProbeMemory::kSmem);
  access(reader, 60, 8, false, 0, ProbeMemory::kHbm);
  access(reader, 100, 8, false, 0, ProbeMemory::kHbm);
  EXPECT_THAT(texts_of(sink.findings()),
              ElementsAre(HasSubstr("written: bytes 8..11 of SMEM of core 0"),
                          HasSubstr("written: bytes 60..63 of HBM of core 0")));
  const ProbeSource writer = command(Queue::kDmaIn);
  access(writer, 0, 64, true, 0, ProbeMemory::kHbm);
  access(writer, 0, 100, false, 0, ProbeMemory::kHbm);
  EXPECT_EQ(sink.count(), 2u);
}

// An element of one byte is fetched to SMEM, the sequencer loads the word around it.
TEST_F(RaceSinkTest, AWordOfSmemIsWrittenWithTheFirstOfItsBytes) {
  const ProbeSource reader = command(Queue::kDmaIn);
  access(reader, 16, 4, false, 0, ProbeMemory::kSmem);  // before: a finding
  access(reader, 17, 1, true, 0, ProbeMemory::kSmem);
  access(reader, 16, 4, false, 0, ProbeMemory::kSmem);
  access(reader, 16, 8, false, 0, ProbeMemory::kSmem);  // the next word has nothing
  EXPECT_THAT(texts_of(sink.findings()), ElementsAre(HasSubstr("written: bytes 16..19 of SMEM"),
                                                     HasSubstr("written: bytes 20..23 of SMEM")));
}

TEST_F(RaceSinkTest, ALaunchDoesNotBuildOnWhatTheOneBeforeItWrote) {
  const auto read = [this] {
    const ProbeSource reader = command(Queue::kDmaIn);
    access(reader, 0, 64, false);
    access(reader, 0, 64, false, 0, ProbeMemory::kHbm);
  };
  program(0, 0, true);
  const ProbeSource writer = command(Queue::kDmaIn);
  access(writer, 0, 64, true);
  access(writer, 0, 64, true, 0, ProbeMemory::kHbm);
  program(0, 0, false);
  program(0, 1, true);  // the launch's own earlier step counts
  read();
  EXPECT_THAT(texts_of(sink.findings()), IsEmpty());
  program(0, 1, false);
  program(0, 0, true, 2);
  read();
  EXPECT_EQ(sink.count(), 2u);
}

// A peer may leave the barrier first and write before this core begins.
TEST_F(RaceSinkTest, WhatAPeerWroteBeforeTheBeginIsWritten) {
  program(1, 0, true);
  const ProbeSource peer = command(Queue::kDmaRemote, 1);
  access(peer, 0, 64, true, 0, ProbeMemory::kHbm);
  start(peer);
  signal(peer, 0, 0);
  program(0, 0, true);
  const ProbeSource reader = command(Queue::kDmaIn);
  take(reader, 0);
  access(reader, 0, 64, false, 0, ProbeMemory::kHbm);
  EXPECT_THAT(texts_of(sink.findings()), IsEmpty());
}

TEST_F(RaceSinkTest, ANewStepForgetsTheOrdersOfTheOneBefore) {
  program(0, 0, true);
  write(Queue::kDmaIn, 0, 64);
  program(0, 0, false);
  program(0, 1, true);
  write(Queue::kVpu, 0, 64);
  program(1, 1, true);  // the gang's second core: same step, nothing is forgotten
  write(Queue::kXlu, 0, 64);
  EXPECT_EQ(sink.count(), 1u);
}

// A command that was dropped must not lend its issue to the next one of its queue.
TEST_F(RaceSinkTest, TheEndOfAProgramDropsWhatIsQueued) {
  program(0, 0, true);
  const ProbeSource sequencer{.unit = static_cast<uint32_t>(kSequencerUnit)};
  command(Queue::kVpu);  // never starts
  program(0, 0, false);
  access(sequencer, 0, 4, true);
  write(Queue::kVpu, 0, 64);  // issued behind that store
  EXPECT_THAT(texts_of(sink.findings()), IsEmpty());
}

// Calls of the host: 0 sends, 1 receives, both beside the program on channel 7; 2 finishes them; 3
// receives while the core waits; 4 has no bytes; 5 finishes another channel.
class HostCalls : public RaceSinkTest {
 protected:
  HostCalls() {
    auto known = std::make_shared<exe::ExecutableT>();
    for (const auto stage :
         {exe::HostStage::start, exe::HostStage::start, exe::HostStage::finish,
          exe::HostStage::whole, exe::HostStage::start, exe::HostStage::finish}) {
      auto call = std::make_unique<exe::HostCallT>();
      call->stage = stage;
      call->channel = 7;
      call->dims = {16};
      known->host_calls.push_back(std::move(call));
    }
    known->host_calls[4]->dims = {0};
    known->host_calls[5]->channel = 8;
    programs.name(1, std::move(known));
    checker.listen(heard);
    begin_launch(1);
  }

  void begin_launch(uint32_t launch) {
    const AccessRange fresh{.memory = ProbeMemory::kHbm, .bytes = 64};
    checker.program(
        {.gang = spec::CoreSet(1), .launch = launch, .begin = true, .fresh = std::span(&fresh, 1)});
  }
  void call(uint32_t number, bool begin) {
    heard.tell<WaitEvent>(kAllCores, ProbeEvent::kWait, &ProbeSink::wait, [&] {
      return WaitEvent{.source = {.unit = static_cast<uint32_t>(kSequencerUnit), .pc = number},
                       .what = WaitEvent::For::kHost,
                       .index = number,
                       .begin = begin};
    });
  }
  // The core comes to a call that is answered immediately.
  void call(uint32_t number) {
    call(number, true);
    call(number, false);
  }
  void transfer(bool write) {
    heard.tell<TransferEvent>(kAllCores, ProbeEvent::kTransfer, &ProbeSink::transfer, [&] {
      return TransferEvent{.begin = true,
                           .range = {.memory = ProbeMemory::kHbm, .bytes = 64, .write = write}};
    });
  }
  void use(Queue queue, bool write) {
    const ProbeSource source{
        .unit = static_cast<uint32_t>(queue), .sequence = ++sequence, .pc = 90};
    const AccessRange range{.memory = ProbeMemory::kHbm, .bytes = 64, .write = write};
    const std::function<void(const RangeVisitor&)> walk = [&](const RangeVisitor& visit) {
      visit(range);
    };
    checker.issue({.source = source});
    checker.access({.cycle = 0, .source = source, .extents = std::span(&range, 1), .walk = walk});
    checker.start({.source = source});
  }

  LaunchPrograms programs;
  ProbeSet heard;
  RaceSink checker{spec::load_board("v2_8", {}), &programs};
};

TEST_F(HostCalls, WhatTheHostWritesIsWrittenOnceTheCallIsFinished) {
  call(1);
  transfer(true);
  call(2);
  use(Queue::kDmaIn, false);
  EXPECT_THAT(texts_of(checker.findings()), IsEmpty());
}

TEST_F(HostCalls, AReaderThatDoesNotWaitForTheFinishIsToldWhoeverCameFirst) {
  call(1);
  transfer(true);
  call(5);  // of another channel
  use(Queue::kDmaIn, false);
  EXPECT_THAT(texts_of(checker.findings()),
              ElementsAre("core 0 dma_in (word 90, op 0) reads, without waiting for it, what is "
                          "written by core 0 host (word 1, op 0): bytes 0..63 of HBM of core 0"));
}

TEST_F(HostCalls, ATransferKnowsWhatTheCallThatStartsItKnowsAndNoMore) {
  call(0);
  use(Queue::kVpu, true);  // the transfer waits for another one meanwhile
  call(4);
  transfer(false);
  EXPECT_THAT(texts_of(checker.findings()),
              ElementsAre("core 0 host (word 0, op 0) reads, without waiting for it, what is "
                          "written by core 0 vpu (word 90, op 0): bytes 0..63 of HBM of core 0"));
}

TEST_F(HostCalls, WhatAnEarlierTransferBringsALaterOneMayTake) {
  call(1);
  call(0);
  transfer(true);
  transfer(false);
  EXPECT_THAT(texts_of(checker.findings()), IsEmpty());
}

TEST_F(HostCalls, ACallThatTheCoreWaitsForIsBehindWhatItKnowsAndBeforeTheRest) {
  call(3, true);
  transfer(true);
  call(3, false);
  use(Queue::kDmaIn, false);
  call(3);  // another partition's bytes go to the host: none of this core
  call(0);
  transfer(false);
  EXPECT_THAT(texts_of(checker.findings()), IsEmpty());
}

TEST_F(HostCalls, NothingWasWrittenThatTheHostReads) {
  call(0);
  transfer(false);
  EXPECT_THAT(texts_of(checker.findings()),
              ElementsAre(HasSubstr("core 0 host (word 0, op 0) reads bytes that nothing has "
                                    "written: bytes 0..63 of HBM of core 0")));
}

TEST_F(HostCalls, OfUnknownLaunchesEveryAnswerIsBehindWhatHasBegun) {
  begin_launch(2);
  call(0);
  transfer(true);
  call(1);
  use(Queue::kDmaIn, false);
  EXPECT_THAT(texts_of(checker.findings()), IsEmpty());
}

TEST_F(HostCalls, CopiesBetweenLaunchesAreNone) {
  checker.program({.gang = spec::CoreSet(1), .launch = 1, .begin = false});
  transfer(true);
  begin_launch(3);
  use(Queue::kDmaIn, false);
  EXPECT_EQ(checker.count(), 1u);
}

}  // namespace
}  // namespace tpu::model
