// Recovery after faults, stalls and deaths, step by step; cores and firmware are fake.
#include "src/recovery/recovery.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "image/firmware_image.hpp"
#include "src/residency/program.hpp"
#include "tests/unit/driver/fake_cores.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

namespace core_page = spec::core_page;

// Cores that resume at once, and fault records that a test sets.
class FaultWire : public test::SilentWire {
 public:
  uint32_t read32(int, int, uint64_t offset) override {
    const uint64_t place = offset - core_page::kBase;
    const auto core = static_cast<size_t>(place / core_page::kStride);
    const uint64_t reg = place % core_page::kStride;
    if (reg == core_page::kEpoch) {
      return epoch.at(core);
    }
    if (reg == core_page::kCplTail) {
      return completions.at(core);
    }
    const uint64_t word = (reg - core_page::kFaultRecord) / core_page::kFaultRecordStride;
    if (reg >= core_page::kFaultRecord && word < sizeof(tpu_fault_record_t) / 4) {
      uint32_t value = 0;
      std::memcpy(&value, reinterpret_cast<const std::byte*>(&record) + 4 * word, 4);
      return value;
    }
    return 0;
  }
  void write32(int chip, int bar, uint64_t offset, uint32_t value) override {
    SilentWire::write32(chip, bar, offset, value);
    const uint64_t place = offset - core_page::kBase;
    if (place % core_page::kStride == core_page::kResume) {
      epoch.at(static_cast<size_t>(place / core_page::kStride)) = value;
    }
  }
  // Values that were written to a register of a core since the last look.
  std::vector<uint32_t> written(int core, uint64_t reg) {
    std::vector<uint32_t> values;
    for (const auto& [offset, value] : writes) {
      if (offset == core_page::kBase + static_cast<uint64_t>(core) * core_page::kStride + reg) {
        values.push_back(value);
      }
    }
    writes.clear();
    return values;
  }

  std::vector<uint32_t> epoch = {0, 0};
  std::vector<uint32_t> completions = {0, 0};
  tpu_fault_record_t record{};
};

class RecoveryTest : public testing::Test, protected test::FakeBoard {
 protected:
  RecoveryTest() {
    auto made = std::make_unique<FaultWire>();
    wire_ = made.get();
    transport_ = std::move(made);
    cores.registers.connect(wire_);
    harts_.set_firmware(std::make_shared<firmware::Image>(), 0);
    loader_.set_board("fake", 1);
  }
  std::shared_ptr<Operation> gang() {
    auto op = operations.begin("launch of add");
    op->program = std::make_shared<LoadedProgram>(std::make_shared<exe::ExecutableT>(),
                                                  std::vector<int>{0, 1});
    for (const int device : {0, 1}) {
      auto command = std::make_shared<Command>();
      command->device = device;
      command->opcode = TPU_OP_LAUNCH;
      op->commands.push_back(command);
    }
    launcher_.give_id(*op);
    operations.submit_gang(op);
    return op;
  }
  std::shared_ptr<Operation> fill(int device) {
    auto op = operations.begin("fill");
    auto command = std::make_shared<Command>();
    command->device = device;
    command->opcode = TPU_OP_FILL;
    operations.add(op, command);
    operations.seal(op);
    return op;
  }
  // The oldest command of a device has ended so, and holds its core.
  void fail(int device, uint16_t status) {
    cores.devices[device].held = true;
    report(device, status);
  }

  std::unique_ptr<Transport> transport_;
  FaultWire* wire_ = nullptr;
  ErrorPtr broken_;
  std::vector<std::string> hangs_;
  std::function<bool()> run_ = [] { return false; };
  Transfers transfers_{memory, operations, order, handles, turn};
  Feeds feeds_{cores.devices, cores.registers, operations, memory, handles, health, outbox, news};
  Loader loader_{cores.devices, operations, order, memory, transfers_, health, [this] { pump(); }};
  Launcher launcher_{operations,
                     order,
                     memory,
                     transfers_,
                     feeds_,
                     loader_,
                     handles,
                     health,
                     [](uint32_t, const std::shared_ptr<const exe::ExecutableT>&, uint64_t) {}};
  HostCallServer calls_{cores.devices, cores.registers, memory, health, outbox, turn, news};
  const std::function<void(const ErrorPtr&)> break_ = [this](const ErrorPtr& error) {
    broken_ = error;
    health.break_by(error);
  };
  Completions completions_{cores.devices, cores.registers, operations, calls_, health, break_};
  Harts harts_{transport_, cores.registers, outbox};
  Booter booter_{transport_, cores.devices, cores.registers, harts_, outbox};
  LaunchRecords records_{transport_};
  Recovery recovery_{transport_,
                     cores.devices,
                     cores.registers,
                     operations,
                     completions_,
                     feeds_,
                     loader_,
                     launcher_,
                     records_,
                     harts_,
                     booter_,
                     health,
                     turn,
                     {.run = [this] { return run_(); },
                      .break_board = break_,
                      .tell_hang =
                          [this](const char* kind, const Operation*, const std::vector<UnitWait>&,
                                 const TransportStats&) {
                            hangs_.emplace_back(kind);
                            return std::string("a waits for b\n");
                          }}};
};

TEST_F(RecoveryTest, WhatWasFlushedIsSentAgainInTheOldOrderWithTheNextEpoch) {
  const auto first = fill(0);
  const auto launch = gang();
  const auto second = fill(0);
  const uint32_t id = launch->launch_id;
  fail(0, TPU_STATUS_HBM_RANGE);
  EXPECT_TRUE(first->event->failed());
  report(0, TPU_STATUS_FLUSHED);
  report(0, TPU_STATUS_FLUSHED);
  fail(1, TPU_STATUS_FLUSHED);
  recovery_.recover();
  EXPECT_EQ(broken_, nullptr);
  EXPECT_EQ(recovery_.recoveries(), 1u);
  EXPECT_FALSE(cores.devices.any_held());
  EXPECT_EQ(cores.devices[0].ring.epoch(), 1u);
  EXPECT_GT(launch->launch_id, id) << "the board remembers aborted gangs";
  ASSERT_EQ(cores.devices[0].ring.open(), 2u);
  EXPECT_EQ(cores.oldest(0)->op, launch);
  report(0);
  EXPECT_EQ(cores.oldest(0)->op, second);
  report(0);
  report(1);
  EXPECT_FALSE(launch->event->failed());
  EXPECT_FALSE(second->event->open());
  recovery_.recover();
  EXPECT_EQ(recovery_.recoveries(), 1u) << "there is nothing to recover";
}

TEST_F(RecoveryTest, ALaunchThatIsFlushedAgainAndAgainFails) {
  const auto launch = gang();
  for (int i = 0; i < 5; ++i) {
    ASSERT_FALSE(launch->finished) << i;
    fail(0, TPU_STATUS_FLUSHED);
    fail(1, TPU_STATUS_FLUSHED);
    recovery_.recover();
  }
  ASSERT_TRUE(launch->event->failed());
  EXPECT_EQ(launch->event->error->message(), "launch of add: flushed again and again");
}

TEST_F(RecoveryTest, AFaultOfTheLaunchIsToldByItsRecord) {
  const auto launch = gang();
  wire_->record.code = TPU_FAULT_WATCHDOG;
  wire_->record.launch_id = launch->launch_id;
  wire_->record.op_id = TPU_OP_NONE;
  fail(0, TPU_STATUS_FAULT);
  fail(1, TPU_STATUS_FAULT);
  recovery_.recover();
  ASSERT_TRUE(launch->event->failed());
  EXPECT_EQ(launch->event->error->code(), ErrorCode::kDeviceFault);
  EXPECT_EQ(launch->event->error->place().device, 1);
  EXPECT_EQ(hangs_, std::vector<std::string>{"watchdog"});
  EXPECT_NE(launch->event->error->message().find("a waits for b"), std::string::npos);
}

TEST_F(RecoveryTest, AVerdictOfTheDriverIsTheErrorOfTheLaunch) {
  const auto launch = gang();
  launch->verdict = std::make_shared<Error>(ErrorCode::kTimeout, "ended no step");
  wire_->record.code = TPU_FAULT_HOST_ABORT;
  wire_->record.launch_id = launch->launch_id;
  fail(0, TPU_STATUS_FAULT);
  fail(1, TPU_STATUS_FAULT);
  recovery_.recover();
  EXPECT_EQ(launch->event->error->message(), "ended no step");
}

TEST_F(RecoveryTest, ACoreThatDoesNotResumeBreaksTheBoard) {
  fill(0);
  fail(0, TPU_STATUS_HBM_RANGE);
  cores.devices[0].ring.begin_epoch(5);
  wire_->epoch.clear();
  wire_->epoch.resize(2, 0);
  class Deaf : public FaultWire {
   public:
    void write32(int, int, uint64_t, uint32_t) override {}
  } deaf;
  cores.registers.connect(&deaf);
  recovery_.recover();
  ASSERT_NE(broken_, nullptr);
  EXPECT_EQ(broken_->message(), "the core does not resume after a fault");
}

TEST_F(RecoveryTest, AStallIsAnsweredInThreeSteps) {
  const auto launch = gang();
  cores.registers.send();
  wire_->writes.clear();
  recovery_.stalled();
  EXPECT_EQ(recovery_.repeated_doorbells(), 2u);
  EXPECT_EQ(wire_->written(1, core_page::kCmdTail), std::vector<uint32_t>{1});
  recovery_.stalled();
  EXPECT_EQ(hangs_, std::vector<std::string>{"deadlock"});
  EXPECT_EQ(launch->stall_text, "a waits for b\n");
  EXPECT_EQ(wire_->written(0, core_page::kAbort), std::vector<uint32_t>{launch->launch_id});
  EXPECT_EQ(broken_, nullptr);
  recovery_.stalled();
  ASSERT_NE(broken_, nullptr);
  EXPECT_EQ(broken_->code(), ErrorCode::kTimeout);
  EXPECT_NE(broken_->message().find("a waits for b"), std::string::npos);
}

TEST_F(RecoveryTest, ProgressBeginsTheStepsAnew) {
  gang();
  recovery_.stalled();
  recovery_.note_progress();
  recovery_.stalled();
  EXPECT_TRUE(hangs_.empty());
  EXPECT_EQ(recovery_.repeated_doorbells(), 4u);
}

TEST_F(RecoveryTest, ACompletionThatIsMissingBreaksTheBoardInAStall) {
  fill(0);
  wire_->completions[0] = 1;
  recovery_.stalled();
  recovery_.stalled();
  ASSERT_NE(broken_, nullptr);
  EXPECT_NE(broken_->message().find("it is not there, though 1 were written"), std::string::npos)
      << broken_->message();
}

}  // namespace
}  // namespace tpu::driver
