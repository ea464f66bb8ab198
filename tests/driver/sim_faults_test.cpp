// Faults on purpose on the simulated board (docs/faults.md), one board a test: what hardware shows,
// what the user is told, and that all else lives on.
#include <gtest/gtest.h>

#include <bit>
#include <csignal>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "exe/executable.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/faulty_board.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::fault;
using test::kFaultyDevice;
using test::SimFaults;

TEST_F(SimFaults, OneBitOfHbmIsCorrectedAndCounted) {
  open(fault("hbm", "core 3", "at = \"launch 2\"\naddress = \"slot 0 + 256\""));
  const Executable copy = load();
  const Array argument = copy.put(0, sent_);
  for (int launch = 0; launch < 3; ++launch) {
    expect_copies(copy, argument);
  }
  EXPECT_EQ(tally("hbm", &spec::FaultTally::fired), 1U);
  EXPECT_EQ(tally("hbm", &spec::FaultTally::seen), 1U);
  EXPECT_EQ(board_.counters().retired_hbm_bytes, 0U);
  EXPECT_NE(close().find("damage hbm core 3: the word at "), std::string::npos);
}

TEST_F(SimFaults, TwoBitsOfHbmFailWhoReadsThemAndAWriteHeals) {
  open(fault("hbm", "core 3", "at = \"launch 2\"\nbits = 2\naddress = \"slot 0 + 256\""));
  const Executable copy = load();
  const Array argument = copy.put(0, sent_);
  const Array other = copy.put(0, sent_);
  expect_copies(copy, argument);
  const auto error = expect_error(copy, argument, ErrorCode::kDataLoss, "argument 0 'x'");
  ASSERT_NE(error, nullptr);
  EXPECT_NE(error->message().find("HBM_ECC"), std::string::npos) << error->what();
  EXPECT_EQ(error->place().device, kFaultyDevice);
  expect_copies(copy, other);  // others go on
  expect_error(copy, argument, ErrorCode::kDataLoss, "HBM_ECC");
  EXPECT_THROW(argument.to_host(), Error);  // the copy to the host reads it as well
  EXPECT_GE(board_.counters().retired_hbm_bytes, 65536U);
  expect_copies(copy, copy.put(0, sent_));
}

TEST_F(SimFaults, WithoutEccABitOfHbmIsSilent) {
  open("ecc = false\n" + fault("hbm", "core 3", "at = \"launch 2\"\naddress = \"slot 0 + 256\""));
  const Executable copy = load();
  const Array argument = copy.put(0, sent_);
  expect_copies(copy, argument);
  const HostArray got = copy.run({argument}).outputs[0].to_host();
  size_t bits = 0;
  for (size_t i = 0; i < got.bytes.size(); ++i) {
    bits +=
        static_cast<size_t>(std::popcount(static_cast<unsigned>(got.bytes[i] ^ sent_.bytes[i])));
  }
  EXPECT_EQ(bits, 1U);
  EXPECT_EQ(tally("hbm", &spec::FaultTally::seen), 0U);
}

// Such as a slot that the launch does not have: neither a fault nor damage.
TEST_F(SimFaults, WhatFindsNothingToDamageIsNoFault) {
  open(fault("hbm", "core 3", "at = \"launch 1\"\naddress = \"slot 77\""));
  const Executable copy = load();
  expect_copies(copy, copy.put(0, sent_));
  EXPECT_TRUE(board_.peek().faults.empty());
  const std::string log = close();
  EXPECT_NE(log.find("] nothing hbm core 3: the launch has no byte 0 in slot 77\n"),
            std::string::npos)
      << log;
  EXPECT_EQ(log.find("never came"), std::string::npos) << log;
}

TEST_F(SimFaults, AQueueThatStopsEndsItsLaunchOnly) {
  expect_only_second_launch_fails("core_hang", "dma_out", "unit = \"dma_out\"");
}

TEST_F(SimFaults, ALaunchWhoseQueueStopsRunsAgain) {
  expect_second_launch_runs_again("core_hang", "DEADLOCK", "unit = \"dma_out\"");
}

TEST_F(SimFaults, ASequencerThatStopsEndsItsLaunchOnly) {
  expect_only_second_launch_fails("core_hang", "donating");
}

TEST_F(SimFaults, ALaunchWhoseSequencerStopsRunsAgain) {
  expect_second_launch_runs_again("core_hang", "HOST_ABORT");
}

// It may hang by itself.
TEST_F(SimFaults, AProgramThatHasNeverEndedDoesNotRunAgainBehindAHang) {
  open(fault("core_hang", "core 3", "at = \"launch 1\""));
  const Executable copy = load();
  const Array argument = copy.put(0, sent_);
  expect_error(copy, argument, ErrorCode::kDeviceFault, "HOST_ABORT");
  expect_copies(copy, argument);
}

TEST_F(SimFaults, AHartThatTrapsIsStartedAgain) {
  expect_only_second_launch_fails("hart_trap", "instruction access fault");
}

TEST_F(SimFaults, ALaunchWhoseHartTrapsRunsAgain) {
  expect_second_launch_runs_again("hart_trap", "instruction access fault");
}

TEST_F(SimFaults, AHartThatStopsIsStartedAgain) {
  expect_only_second_launch_fails("hart_hang", "hart");
}

TEST_F(SimFaults, ALaunchWhoseHartStopsRunsAgain) {
  expect_second_launch_runs_again("hart_hang", "hart");
}

TEST_F(SimFaults, AReadThatTimesOutAtOpenIsMadeAgain) {
  open(fault("pcie_timeout", "chip 1", "at = \"cycle 1\""));
  const Executable copy = load();
  expect_copies(copy, copy.put(0, sent_));
  EXPECT_EQ(tally("pcie_timeout", &spec::FaultTally::seen), 1U);
}

TEST_F(SimFaults, ALostInterruptIsFoundByTheDoorbell) {
  open(fault("pcie_lost_msi", "chip 1", "at = \"launch 2\""));
  const Executable copy = load();
  const Array argument = copy.put(0, sent_);
  expect_copies(copy, argument);
  expect_copies(copy, argument);
  EXPECT_EQ(tally("pcie_lost_msi", &spec::FaultTally::seen), 1U);
  expect_copies(copy, argument);
}

TEST_F(SimFaults, PoisonedTransfersAreSentAgain) {
  open(fault("pcie_poison", "chip 1", "at = \"launch 1\""));
  const Executable copy = load();
  expect_copies(copy, copy.put(0, sent_));
  expect_copies(copy, copy.put(0, sent_));
  EXPECT_EQ(tally("pcie_poison", &spec::FaultTally::seen), 1U);
}

TEST_F(SimFaults, AChipThatLeavesTheBusIsNamed) {
  open(fault("pcie_down", "chip 1", "at = \"launch 2\""));
  const Executable copy = load();
  const Array argument = copy.put(0, sent_);
  expect_copies(copy, argument);
  expect_error(copy, argument, ErrorCode::kUnavailable, "chip 1 has gone");
}

TEST_F(SimFaults, ADamagedCommandIsSentAgain) {
  open(fault("ring_command", "core 3", "at = \"launch 1\""));
  const Executable copy = load();
  const Array argument = copy.put(0, sent_);
  for (int launch = 0; launch < 3; ++launch) {
    expect_copies(copy, argument);
  }
  EXPECT_EQ(tally("ring_command", &spec::FaultTally::seen), 1U);
}

TEST_F(SimFaults, ADamagedCompletionIsNeverBelieved) {
  open(fault("ring_completion", "core 3", "at = \"launch 2\""));
  const Executable copy = load();
  const Array argument = copy.put(0, sent_);
  expect_copies(copy, argument);
  expect_error(copy, argument, ErrorCode::kInternal, "completion ring is corrupt");
}

// Two replicas, on chips 0 and 1, send each other their argument, which becomes the result.
constexpr const char* kExchange = R"(
  rid r1
  li r2, 0
  bne r1, r0, go
  li r2, 2
go:
  dma_in.dma signal=0:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  dma_remote.dma wait=0:1:take signal=1:1:r2 src=vmem+0 dst=vmem+4096 peer_reg=2 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  dma_out.dma wait=1:1:take signal=3:1 src=vmem+4096 dst=hbm[1]+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  swait r3, r0, 1
  halt
)";

class SimLinkFaults : public SimFaults {
 protected:
  void open_link(const std::string& kind, const std::string& rest) {
    open_links(fault(kind, "link chip0 +x", "at = \"launch 2\"\n" + rest));
  }
  void open_links(const std::string& faults, const char* commands = kExchange) {
    open(faults);
    const auto exe =
        compiler::assemble(std::string(".program \"exchange\"\n.partitions 2 cores=[0,2]\n") +
                               test::kCopySlots + commands,
                           "test.s", spec::load_board("v3_8"));
    exchange_ = board_.load(exe::write_executable(exe));
    argument_ = exchange_.put(0, sent_);
  }
  // Nothing leaves chip 0.
  static std::string no_way() {
    return fault("link_down", "link chip0 +x", "at = \"launch 2\"") +
           fault("link_down", "link chip0 +y", "at = \"launch 2\"");
  }
  // A link that comes back delays `commands`, and no byte is wrong.
  void expect_waits(const char* commands) {
    open_links(fault("link_down", "link chip0 +x", "at = \"launch 2\"\nfor = \"20 us\""), commands);
    for (int launch = 0; launch < 3; ++launch) {
      expect_copies(exchange_, argument_);
    }
    EXPECT_NE(close().find("damage link_down link chip0 +x: a transfer waits"), std::string::npos);
  }
  void expect_no_way(const char* commands) {
    open_links(no_way(), commands);
    expect_copies(exchange_, argument_);
    expect_error(exchange_, argument_, ErrorCode::kDeviceFault, "LINK_DOWN");
  }

  Executable exchange_;
  Array argument_;
};

// One core of a gang of two: both run the launch again.
TEST_F(SimLinkFaults, AGangRunsAgainAsAWhole) {
  open_links(fault("hart_hang", "core 2", "at = \"launch 2\""));
  for (int launch = 0; launch < 3; ++launch) {
    expect_copies(exchange_, argument_);
  }
  EXPECT_NE(console_.find("it is sent again\n"), std::string::npos) << console_;
}

// A hart that wakes up to a barrier that is open has begun what the rest of its gang runs: they end
// it together, and wait for the hart that does not come. At each moment of a start, on the root of
// the gang and on another core.
TEST_F(SimLinkFaults, AHartThatIsLostWhileItsGangStartsLosesNoBoard) {
  constexpr int kFaults = 42;
  std::string faults;
  for (int i = 0; i < kFaults; ++i) {
    faults += fault(
        i % 4 < 2 ? "hart_trap" : "hart_hang", i % 2 == 0 ? "core 0" : "core 2",
        "at = \"launch " + std::to_string(3 * i + 2) + " + " + std::to_string(i / 2 * 5) + "\"");
  }
  open_links(faults);
  const auto fired = [&] {
    uint64_t all = 0;
    for (const spec::FaultTally& place : board_.peek().faults) {
      all += place.fired;
    }
    return all;
  };
  uint64_t failed = 0;
  for (int launch = 0; launch < 3 * kFaults + 2; ++launch) {
    const auto run = exchange_.run({argument_});
    if (const auto error = run.done.wait_for_error()) {
      ASSERT_EQ(error->code(), ErrorCode::kDeviceFault) << error->what();
      ++failed;
    } else {
      ASSERT_EQ(run.outputs[0].to_host().bytes, sent_.bytes) << "launch " << launch;
    }
    ASSERT_LE(failed, fired());
  }
  EXPECT_EQ(fired(), uint64_t{kFaults});
  EXPECT_NE(console_.find("it is sent again\n"), std::string::npos) << console_;
}

TEST_F(SimLinkFaults, AGangRunsAgainOnce) {
  open_links(fault("core_hang", "core 0", "at = \"launch 2\"\nunit = \"dma_remote\"") +
             fault("core_hang", "core 2", "at = \"launch 3\"\nunit = \"dma_in\""));
  expect_copies(exchange_, argument_);
  expect_error(exchange_, argument_, ErrorCode::kDeviceFault, "DEADLOCK");
  expect_copies(exchange_, argument_);
}

TEST_F(SimLinkFaults, WrongCrcsCostTimeAlone) {
  open_link("link_corrupt", "repeats = 3");
  for (int launch = 0; launch < 3; ++launch) {
    expect_copies(exchange_, argument_);
  }
  EXPECT_EQ(tally("link_corrupt", &spec::FaultTally::seen), 1U);
  EXPECT_NE(close().find("damage link_corrupt link chip0 +x: a transfer has a wrong CRC"),
            std::string::npos);
}

TEST_F(SimLinkFaults, TransfersWaitForALinkThatComesBack) {
  open_link("link_down", "for = \"20 us\"");
  for (int launch = 0; launch < 3; ++launch) {
    expect_copies(exchange_, argument_);
  }
  EXPECT_GE(tally("link_down", &spec::FaultTally::seen), 1U);
  const std::string log = close();
  EXPECT_NE(log.find("damage link_down link chip0 +x: a transfer waits"), std::string::npos) << log;
  EXPECT_NE(log.find("back link_down link chip0 +x: the link works again"), std::string::npos)
      << log;
}

TEST_F(SimFaults, ALinkThatIsBackBeforeItIsNeededDamagesNothing) {
  open(fault("link_down", "link chip0 +x", "at = \"cycle 1000\"\nfor = \"1 us\""));
  const Executable copy = load();
  expect_copies(copy, copy.put(0, sent_));
  EXPECT_EQ(tally("link_down", &spec::FaultTally::fired), 1U);
  EXPECT_EQ(tally("link_down", &spec::FaultTally::seen), 0U);
  EXPECT_NE(close().find("back link_down link chip0 +x: "), std::string::npos);
}

TEST_F(SimLinkFaults, TransfersGoRoundALinkThatIsDownForGood) {
  open_link("link_down", "");
  for (int launch = 0; launch < 4; ++launch) {
    expect_copies(exchange_, argument_);
  }
  EXPECT_GE(tally("link_down", &spec::FaultTally::seen), 1U);
  const std::string log = close();
  EXPECT_NE(log.find("damage link_down link chip0 +x: transfers from chip 0 to chip 1 go round it, "
                     "over 3 links"),
            std::string::npos)
      << log;
}

TEST_F(SimLinkFaults, WithoutAnotherWayALinkThatIsDownFailsWhoNeedsIt) {
  open_links(no_way());
  const Executable copy = load();
  expect_copies(exchange_, argument_);
  expect_error(exchange_, argument_, ErrorCode::kDeviceFault, "LINK_DOWN");
  expect_error(exchange_, argument_, ErrorCode::kDeviceFault, "from chip 0 to chip 1");
  expect_copies(copy, copy.put(0, sent_));
}

// Each replica tells the other one by a signal alone that it has begun.
constexpr const char* kGreeting = R"(
  rid r1
  li r2, 0
  bne r1, r0, go
  li r2, 2
go:
  dma_remote.nop signal=1:1:r2
  dma_in.dma wait=1:1:take signal=0:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  dma_out.dma wait=0:1:take signal=3:1 src=vmem+0 dst=hbm[1]+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  swait r3, r0, 1
  halt
)";

TEST_F(SimLinkFaults, SignalsWaitForALinkToo) { expect_waits(kGreeting); }

TEST_F(SimLinkFaults, SignalsThatHaveNoWayFail) { expect_no_way(kGreeting); }

// Each replica keeps its data, and tells the other one so.
constexpr const char* kTelling = R"(
  rid r1
  li r2, 0
  li r4, 2
  bne r1, r0, go
  li r2, 2
  li r4, 0
go:
  dma_in.dma signal=0:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  dma_remote.dma wait=0:1:take signal=1:1 signal=1:1:r2 src=vmem+0 dst=vmem+4096 peer_reg=4 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  dma_out.dma wait=1:2:take signal=3:1 src=vmem+4096 dst=hbm[1]+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  swait r3, r0, 1
  halt
)";

TEST_F(SimLinkFaults, SignalsOfATransferToAnotherCoreWaitForALink) { expect_waits(kTelling); }

TEST_F(SimLinkFaults, SignalsOfATransferToAnotherCoreThatHaveNoWayFail) { expect_no_way(kTelling); }

// Words of VMEM that another core would have written, had there been a way.
TEST_F(SimLinkFaults, ATransferThatHasNoWayHealsNothing) {
  open_links(no_way() + fault("vmem", "core 2", "at = \"launch 2\"\naddress = \"4160\"\nbits = 2"));
  const Executable look = load(std::string(".program \"look\"") + test::kCopySlots + R"(
  dma_out.dma signal=1:1 src=vmem+4096 dst=hbm[1]+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  swait r1, r0, 1
  halt
)",
                               2);
  const Array argument = look.put(0, sent_);
  expect_copies(exchange_, argument_);
  expect_error(exchange_, argument_, ErrorCode::kDeviceFault, "LINK_DOWN");
  expect_error(look, argument, ErrorCode::kDataLoss, "a word of VMEM is lost");
}

TEST_F(SimLinkFaults, ALinkThatIsDownForGoodNeverComesBack) {
  open_links(fault("link_down", "link chip0 +x", "at = \"launch 2\"\nfor = \"20 us\"") +
             fault("link_down", "link chip0 +x", "at = \"launch 3\"\nfor = \"20 us\"") +
             fault("link_down", "link chip0 +x", "at = \"launch 2 + 10\""));
  for (int launch = 0; launch < 8; ++launch) {
    expect_copies(exchange_, argument_);
  }
  const std::string log = close();
  EXPECT_EQ(log.find("+x: the link works again"), std::string::npos) << log;
  EXPECT_NE(log.find("nothing link_down link chip0 +x: the link is down for good"),
            std::string::npos)
      << log;
}

TEST_F(SimLinkFaults, ALinkIsBackWhenTheLastFaultIsOver) {
  open_links(fault("link_down", "link chip0 +x", "at = \"launch 2\"\nfor = \"30 us\"") +
             fault("link_down", "link chip0 +x", "at = \"launch 2 + 10\"\nfor = \"10 us\""));
  for (int launch = 0; launch < 8; ++launch) {
    expect_copies(exchange_, argument_);
  }
  const std::string log = close();
  const size_t back = log.find("+x: the link works again");
  EXPECT_NE(back, std::string::npos) << log;
  EXPECT_EQ(log.find("+x: the link works again", back + 1), std::string::npos) << log;
}

// Between two chips that no launch has used.
TEST_F(SimLinkFaults, CopiesBetweenCoresGoRound) {
  open_links(fault("link_down", "link chip2 +x", "at = \"cycle 1\""));
  expect_copies(exchange_, argument_);
  const Buffer there = board_.copy(argument_.parts()[0], 4);
  EXPECT_EQ(board_.copy(there, 6).to_host().bytes, sent_.bytes);
  const std::string log = close();
  EXPECT_NE(log.find("damage link_down link chip2 +x: transfers from chip 2 to chip 3 go round it"),
            std::string::npos)
      << log;
}

TEST_F(SimLinkFaults, CopiesBetweenCoresThatHaveNoWayFail) {
  open_links(no_way());
  expect_copies(exchange_, argument_);
  expect_error(exchange_, argument_, ErrorCode::kDeviceFault, "LINK_DOWN");
  const auto error = board_.copy(argument_.parts()[0], 2).ready().wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kDeviceFault);
  EXPECT_NE(error->message().find("copy from TPU:0 to TPU:2: the device answers LINK_DOWN: links "
                                  "are down, and no way leads to the chip of the other device"),
            std::string::npos)
      << error->what();
  EXPECT_EQ(board_.copy(argument_.parts()[0], 1).to_host().bytes, sent_.bytes);
}

TEST_F(SimFaults, WhatNeverCameIsSaidAtTheEnd) {
  open(fault("hbm", "core 3", "at = \"launch 2000\"\naddress = \"slot 0\"") +
       fault("core_hang", "core 0", "at = \"step 77\""));
  const Executable copy = load();
  expect_copies(copy, copy.put(0, sent_));
  const std::string log = close();
  EXPECT_NE(log.find("fault 1 (line 1: hbm in core 3, launch 2000) never came"), std::string::npos)
      << log;
  EXPECT_NE(log.find("fault 2 (line 6: core_hang in core 0, step 77) never came"),
            std::string::npos)
      << log;
}

TEST_F(SimFaults, TheFileIsReadWhenTheBoardOpens) {
  open(fault("ring_command", "core 3", "at = \"launch 2\""));
  const Executable copy = load();
  const Array argument = copy.put(0, sent_);
  expect_copies(copy, argument);
  std::ofstream(faults_path()) << "this is no longer a fault file";
  expect_copies(copy, argument);
  expect_copies(copy, argument);
  EXPECT_EQ(tally("ring_command", &spec::FaultTally::seen), 1U);
}

// The driver reads the record of the launch that hangs.
TEST_F(SimFaults, AReadThatTimesOutIsRepeated) {
  open(fault("pcie_timeout", "chip 1", "at = \"launch 2\"") +
       fault("core_hang", "core 3", "at = \"launch 2\"\nunit = \"dma_out\""));
  const Executable copy = load();
  const Array argument = copy.put(0, sent_);
  expect_copies(copy, argument);
  expect_copies(copy, argument);  // behind the hang it is sent again
  EXPECT_EQ(tally("core_hang", &spec::FaultTally::fired), 1U);
  EXPECT_EQ(tally("pcie_timeout", &spec::FaultTally::seen), 1U);
  expect_copies(copy, argument);
  EXPECT_NE(close().find("damage pcie_timeout chip 1: a read of a register gets no answer"),
            std::string::npos);
}

// As a chip that has gone.
TEST_F(SimFaults, ReadsThatTimeOutThreeTimesAreBelieved) {
  std::string faults = fault("core_hang", "core 3", "at = \"launch 2\"\nunit = \"dma_out\"");
  for (const char* cycles : {"1", "2", "3"}) {
    faults += fault("pcie_timeout", "chip 1", std::string("at = \"launch 2 + ") + cycles + "\"");
  }
  open(faults);
  const Executable copy = load();
  const Array argument = copy.put(0, sent_);
  expect_copies(copy, argument);
  expect_error(copy, argument, ErrorCode::kUnavailable, "chip 1 has gone");
  const std::string log = close();
  const std::string line = "damage pcie_timeout chip 1: a read of a register gets no answer";
  const size_t first = log.find(line), second = log.find(line, first + 1);
  EXPECT_NE(log.find(line, second + 1), std::string::npos) << log;
}

// One bit of each of so many instructions: those of the main loop are among them.
TEST_F(SimFaults, AHartWithDamagedCodeIsStartedAgain) {
  std::string faults;
  for (int at = 0; at < 16384; at += 4) {
    faults += fault("tcm", "core 3",
                    "at = \"launch 2\"\nbit = 0\naddress = \"" + std::to_string(at) + "\"");
  }
  open(faults);
  const Executable copy = load();
  const Array argument = copy.put(0, sent_);
  expect_copies(copy, argument);
  expect_copies(copy, argument);
  expect_copies(copy, argument);
  EXPECT_EQ(tally("tcm", &spec::FaultTally::fired), 4096U);
  EXPECT_NE(close().find("fault tcm core 3: a bit flips in the byte at "), std::string::npos);
}

TEST_F(SimFaults, ABoardWithAFaultFileHasNoSnapshots) {
  open(fault("hart_hang", "core 3", "at = \"launch 2000\""));
  try {
    board_.save_snapshot(::testing::TempDir() + "faults.snapshot");
    ADD_FAILURE() << "a snapshot was saved";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("a board with faults on purpose has no snapshots"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(SimFaults, ABoardThatDiesIsUnavailable) {
  open(fault("board_dies", "board 0", "at = \"launch 2\""));
  const Executable copy = load();
  const Array argument = copy.put(0, sent_);
  expect_copies(copy, argument);
  expect_error(copy, argument, ErrorCode::kUnavailable, "has gone");
  EXPECT_THROW(copy.put(0, sent_), Error);
}

using SimFaultsDeathTest = SimFaults;

TEST_F(SimFaultsDeathTest, AHostThatDiesEndsItsProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        open(fault("host_dies", "board 0", "at = \"launch 2\""));
        const Executable copy = load();
        const Array argument = copy.put(0, sent_);
        expect_copies(copy, argument);
        expect_copies(copy, argument);
      },
      ::testing::KilledBySignal(SIGKILL), "");
  std::stringstream text;
  text << std::ifstream(log_path()).rdbuf();
  EXPECT_NE(text.str().find("fault host_dies board 0: the process that has the board ends"),
            std::string::npos)
      << text.str();
}

TEST_F(SimFaults, RatesDrawTheSameFaultsForASeed) {
  open("seed = 9\n" + fault("hbm", "core 3", "rate = \"0.5 per launch\"\naddress = \"slot 0\""));
  const Executable copy = load();
  const Array argument = copy.put(0, sent_);
  for (int launch = 0; launch < 32; ++launch) {
    expect_copies(copy, argument);
  }
  const uint64_t fired = tally("hbm", &spec::FaultTally::fired);
  EXPECT_GE(fired, 8U);
  EXPECT_LE(fired, 24U);
}

}  // namespace
}  // namespace tpu::driver
