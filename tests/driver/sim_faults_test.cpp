// Faults on purpose on the simulated board (docs/faults.md), one board a test: what hardware shows,
// what the user is told, and that all else lives on.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::copy_program;
using test::counting;

constexpr int kDevice = 3;

std::string fault(const std::string& kind, const std::string& where, const std::string& rest) {
  return "[[fault]]\nkind = \"" + kind + "\"\nwhere = \"" + where + "\"\n" + rest + "\n";
}

class SimFaults : public ::testing::Test {
 protected:
  void TearDown() override {
    if (open_) {
      board_.close();
    }
  }

  void open(const std::string& faults) {
    const std::string path = ::testing::TempDir() + "faults_" + name() + ".toml";
    std::ofstream(path) << faults;
    OpenOptions options;
    options.sim.faults_path = path;
    options.sim.fault_log_path = log_path();
    board_ = Board::open(options);
    open_ = true;
  }
  // The log, when the board is closed.
  std::string close() {
    board_.close();
    open_ = false;
    std::stringstream text;
    text << std::ifstream(log_path()).rdbuf();
    return text.str();
  }
  Executable load() {
    const auto exe = compiler::assemble(copy_program(), "test.s", spec::load_board("v3_8"));
    return board_.load(exe::write_executable(exe), kDevice);
  }
  void expect_copies(const Executable& copy, const Array& argument) {
    EXPECT_EQ(copy.run({argument}).outputs[0].to_host().bytes, sent_.bytes);
  }
  std::shared_ptr<const Error> expect_error(const Executable& copy, const Array& argument,
                                            ErrorCode code, const std::string& part) {
    auto error = copy.run({argument}).done.wait_for_error();
    EXPECT_NE(error, nullptr) << part;
    if (error) {
      EXPECT_EQ(error->code(), code) << error->what();
      EXPECT_NE(error->message().find(part), std::string::npos) << error->what();
    }
    return error;
  }
  // The fault is of core 3 and its second launch; the launches around it are right.
  void expect_only_second_launch_fails(const std::string& kind, const std::string& part) {
    open(fault(kind, "core 3", "at = \"launch 2\""));
    const Executable copy = load();
    const Array argument = copy.put(0, sent_);
    expect_copies(copy, argument);
    expect_error(copy, argument, ErrorCode::kDeviceFault, part);
    expect_copies(copy, argument);
  }
  uint64_t tally(const std::string& kind, uint64_t spec::FaultTally::*of) {
    const BoardCounters counters = board_.peek();
    const auto found = std::ranges::find(counters.faults, kind, &spec::FaultTally::kind);
    return found == counters.faults.end() ? 0 : (*found).*of;
  }

  const HostArray sent_ = counting(DType::kI32, {1024});
  Board board_;

 private:
  static std::string name() {
    return ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  static std::string log_path() { return ::testing::TempDir() + "faults_" + name() + ".log"; }
  bool open_ = false;
};

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
  EXPECT_EQ(error->place().device, kDevice);
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

TEST_F(SimFaults, AQueueThatStopsEndsItsLaunchOnly) {
  open(fault("core_hang", "core 3", "at = \"launch 2\"\nunit = \"dma_out\""));
  const Executable copy = load();
  const Array argument = copy.put(0, sent_);
  expect_copies(copy, argument);
  expect_error(copy, argument, ErrorCode::kDeviceFault, "dma_out");
  expect_copies(copy, argument);
}

TEST_F(SimFaults, ASequencerThatStopsEndsItsLaunchOnly) {
  expect_only_second_launch_fails("core_hang", "copy");
}

TEST_F(SimFaults, AHartThatTrapsIsStartedAgain) {
  expect_only_second_launch_fails("hart_trap", "instruction access fault");
}

TEST_F(SimFaults, AHartThatStopsIsStartedAgain) {
  expect_only_second_launch_fails("hart_hang", "hart");
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
    open(fault(kind, "link chip0 +x", "at = \"launch 2\"\n" + rest));
    const auto exe =
        compiler::assemble(std::string(".program \"exchange\"\n.partitions 2 cores=[0,2]\n") +
                               test::kCopySlots + kExchange,
                           "test.s", spec::load_board("v3_8"));
    exchange_ = board_.load(exe::write_executable(exe));
    argument_ = exchange_.put(0, sent_);
  }
  Executable exchange_;
  Array argument_;
};

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
  EXPECT_NE(close().find("damage link_down link chip0 +x: the link is back"), std::string::npos);
}

TEST_F(SimLinkFaults, ALinkThatIsDownForGoodFailsWhoNeedsIt) {
  open_link("link_down", "");
  const Executable copy = load();
  expect_copies(exchange_, argument_);
  expect_error(exchange_, argument_, ErrorCode::kDeviceFault, "LINK_DOWN");
  expect_error(exchange_, argument_, ErrorCode::kDeviceFault, "from chip 0 to chip 1");
  expect_copies(copy, copy.put(0, sent_));
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
