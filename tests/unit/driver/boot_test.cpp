// What the driver reads of cores beside operations: completions that must not be believed, fault
// records, and the states of a core that boots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "image/firmware_image.hpp"
#include "src/boot/booter.hpp"
#include "src/completions/completions.hpp"
#include "src/harts/harts.hpp"
#include "src/residency/program.hpp"
#include "tests/unit/driver/fake_cores.hpp"
#include "tpu/spec/chip_page_regs.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

namespace chip_page = spec::chip_page;
namespace core_page = spec::core_page;

class CompletionsTest : public testing::Test, protected test::FakeBoard {
 protected:
  static tpu_completion_t record(uint16_t status, uint32_t seq = 0, uint16_t flags = 0,
                                 uint32_t epoch = 0) {
    tpu_completion_t made{};
    made.status = status;
    made.seq = seq;
    made.flags = flags;
    made.epoch = static_cast<decltype(made.epoch)>(epoch);
    made.cycle = 12;
    return made;
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
  std::shared_ptr<Operation> gang() {
    auto op = operations.begin("launch");
    op->program = std::make_shared<LoadedProgram>(std::make_shared<exe::ExecutableT>(),
                                                  std::vector<int>{0, 1});
    for (const int device : {0, 1}) {
      auto command = std::make_shared<Command>();
      command->device = device;
      command->opcode = TPU_OP_LAUNCH;
      op->commands.push_back(command);
    }
    operations.submit_gang(op);
    return op;
  }

  ErrorPtr broken_;
  HostCallServer calls_{cores.devices, cores.registers, memory, health, outbox, turn, news};
  Completions completions_{
      cores.devices, cores.registers, operations, calls_, health, [this](const ErrorPtr& error) {
        broken_ = error;
        health.break_by(error);
      }};
};

TEST_F(CompletionsTest, ARecordEndsItsCommandAndAFaultHoldsTheCore) {
  const auto good = fill(0);
  const auto bad = fill(1);
  EXPECT_FALSE(completions_.drain());
  cores.write(0, record(TPU_STATUS_OK));
  cores.write(1, record(TPU_STATUS_HBM_RANGE));
  EXPECT_TRUE(completions_.drain());
  EXPECT_EQ(good->event->error, nullptr);
  EXPECT_EQ(good->end_cycle, 12u);
  EXPECT_TRUE(bad->event->failed());
  EXPECT_FALSE(cores.devices[0].held);
  EXPECT_TRUE(cores.devices[1].held);
}

TEST_F(CompletionsTest, ARecordThatCannotBeTrueBreaksTheBoardAndEndsNothing) {
  const std::vector<std::pair<tpu_completion_t, std::string>> cases = {
      {record(TPU_STATUS_TIMEOUT), "status 19"},
      {record(TPU_STATUS_OK, 5), "command 5, which is not in flight"},
      {record(TPU_STATUS_OK, 0, TPU_CPL_FLAG_MORE | TPU_CPL_FLAG_STEP),
       "announces more of command 0"},
      {record(TPU_STATUS_OK, 0, TPU_CPL_FLAG_MORE | TPU_CPL_FLAG_CALL), "host call 0 of command 0"},
      {record(TPU_STATUS_OK, 0, 0, 3), "it is of epoch 3, the core is in epoch 0"}};
  for (const auto& [what, text] : cases) {
    SCOPED_TRACE(text);
    broken_ = nullptr;
    health = Health();
    operations.fail_all(nullptr);
    cores.devices[0].ring.clear();
    const auto op = fill(0);
    cores.write(0, what);
    EXPECT_FALSE(completions_.drain());
    ASSERT_NE(broken_, nullptr);
    EXPECT_NE(broken_->message().find(text), std::string::npos) << broken_->message();
    EXPECT_FALSE(op->finished);
  }
}

TEST_F(CompletionsTest, OnlyEndsOfPartsAreNotedWhileTheBoardRuns) {
  const auto op = gang();
  cores.write(1, record(TPU_STATUS_OK));
  EXPECT_TRUE(completions_.note_parts());
  EXPECT_TRUE(completions_.take_noted());
  EXPECT_FALSE(completions_.take_noted()) << "once";
  EXPECT_FALSE(op->finished);
  cores.write(0, record(TPU_STATUS_OK));
  EXPECT_FALSE(completions_.note_parts()) << "the last part ends the launch: run() must come back";
  EXPECT_FALSE(op->finished);
  EXPECT_TRUE(completions_.drain());
  EXPECT_TRUE(op->finished);
}

// Registers of chips and cores as a test sets them; a state of the firmware is told once a read.
class PageWire : public test::SilentWire {
 public:
  uint32_t read32(int chip, int, uint64_t offset) override {
    if (offset == core_page::kBase + core_page::kFwState && !states.empty()) {
      const uint32_t state = states.front();
      states.erase(states.begin());
      return state;
    }
    const auto place = pages.find({chip, offset});
    return place == pages.end() ? 0 : place->second;
  }
  void write_block(int, int, uint64_t, std::span<const std::byte> data) override {
    loaded += data.size();
  }
  RunOutcome run() override {
    RunOutcome outcome;
    outcome.quiescent = states.empty();
    limits_of_runs.push_back(limit);
    return outcome;
  }
  void limit_run(std::chrono::nanoseconds time) override { limit = time; }
  void set_core(uint64_t offset, uint32_t value) { pages[{0, core_page::kBase + offset}] = value; }

  std::map<std::pair<int, uint64_t>, uint32_t> pages;
  std::vector<uint32_t> states;
  size_t loaded = 0;
  std::chrono::nanoseconds limit{0};
  std::vector<std::chrono::nanoseconds> limits_of_runs;
};

class BootTest : public testing::Test, protected test::FakeBoard {
 protected:
  BootTest() {
    auto made = std::make_unique<PageWire>();
    page_ = made.get();
    transport_ = std::move(made);
    cores.registers.connect(page_);
    harts_.set_firmware(std::make_shared<firmware::Image>(), 0xB111D);
    booter_.set_firmware(std::vector<std::byte>(5000), 0x100);
    page_->set_core(core_page::kFwAbi, TPU_RING_ABI);
    page_->set_core(core_page::kFwBuild, 0xB111D);
    page_->set_core(core_page::kEpoch, 4);
  }
  ErrorCode boot_error() {
    try {
      booter_.boot({0});
    } catch (const Error& error) {
      text_ = error.message();
      return error.code();
    }
    ADD_FAILURE() << "it booted";
    return {};
  }

  std::unique_ptr<Transport> transport_;
  PageWire* page_ = nullptr;
  std::string text_;
  Harts harts_{transport_, cores.registers, outbox};
  Booter booter_{transport_, cores.devices, cores.registers, harts_, outbox};
};

TEST_F(BootTest, ACoreGetsTheFirmwareThenItsRings) {
  page_->states = {core_page::kStateRom, core_page::kStateHandshake, core_page::kStateReady};
  cores.devices[0].held = true;
  const uint32_t boots = cores.devices[0].ring.boots();
  booter_.boot({0});
  EXPECT_EQ(page_->loaded, 5000u);
  EXPECT_EQ(cores.devices[0].ring.boots(), boots + 1);
  EXPECT_EQ(cores.devices[0].ring.epoch(), 4u);
  EXPECT_FALSE(cores.devices[0].held);
  EXPECT_EQ(page_->writes.back(),
            (std::pair<uint64_t, uint32_t>{core_page::kBase + core_page::kQueueEn, 1}));
}

TEST_F(BootTest, TheSliceOfALaunchDoesNotLimitTheBoot) {
  page_->limit_run(std::chrono::milliseconds(5));
  page_->states = {core_page::kStateRom, core_page::kStateHandshake, core_page::kStateReady};
  booter_.boot({0});
  ASSERT_FALSE(page_->limits_of_runs.empty());
  EXPECT_THAT(page_->limits_of_runs, testing::Each(std::chrono::nanoseconds(0)));
}

TEST_F(BootTest, AnImageDamagedOnTheWayIsLoadedOnceMore) {
  page_->states = {core_page::kStateBadImage, core_page::kStateHandshake, core_page::kStateReady};
  booter_.boot({0});
  EXPECT_EQ(page_->loaded, 10000u);
  page_->states = {core_page::kStateBadImage, core_page::kStateBadImage};
  EXPECT_EQ(boot_error(), ErrorCode::kInternal);
  EXPECT_NE(text_.find("firmware image corrupt"), std::string::npos) << text_;
}

TEST_F(BootTest, FirmwareThatDoesNotFitTheDriverIsRefused) {
  page_->set_core(core_page::kFwAbi, TPU_RING_ABI + 0x10000);
  page_->states = {core_page::kStateHandshake};
  EXPECT_EQ(boot_error(), ErrorCode::kFailedPrecondition);
  page_->set_core(core_page::kFwAbi, TPU_RING_ABI);
  page_->set_core(core_page::kFwBuild, 1);
  page_->states = {core_page::kStateHandshake};
  EXPECT_EQ(boot_error(), ErrorCode::kInternal);
  EXPECT_NE(text_.find("build 00000001"), std::string::npos) << text_;
}

TEST_F(BootTest, ACoreThatDoesNotBootIsNamedWithItsLastState) {
  page_->set_core(core_page::kFwState, core_page::kStateRom);
  EXPECT_EQ(boot_error(), ErrorCode::kInternal);
  EXPECT_NE(text_.find("its last reported state is ROM"), std::string::npos) << text_;
}

TEST_F(BootTest, ChipsAreCheckedBeforeTheyAreUsed) {
  const auto error = [&] {
    try {
      booter_.check_chips(1, 0x1122334455667788);
    } catch (const Error& thrown) {
      return thrown.message();
    }
    return std::string();
  };
  EXPECT_NE(error().find("no chip 0"), std::string::npos);
  page_->pages[{0, chip_page::kMagic}] = chip_page::kMagicTpub;
  EXPECT_NE(error().find("register map 0.0"), std::string::npos);
  page_->pages[{0, chip_page::kHwAbi}] = chip_page::kHwAbiMajor << 16 | chip_page::kHwAbiMinor;
  EXPECT_NE(error().find("board hash 0000000000000000"), std::string::npos);
  page_->pages[{0, chip_page::kBoardHashLo}] = 0x55667788;
  page_->pages[{0, chip_page::kBoardHashHi}] = 0x11223344;
  EXPECT_EQ(error(), "");
}

TEST_F(BootTest, ADeathIsToldOnceForEachBoot) {
  std::vector<std::string> told;
  outbox.set_console([&](int device, const std::string& line) {
    told.push_back(std::to_string(device) + " " + line);
  });
  tpu_fault_record_t record{};
  record.code = TPU_FAULT_FW_TRAP;
  std::array<uint32_t, sizeof(record) / 4> words{};
  std::memcpy(words.data(), &record, sizeof(record));
  for (size_t i = 0; i < words.size(); ++i) {
    page_->set_core(core_page::kFaultRecord + i * core_page::kFaultRecordStride, words[i]);
  }
  page_->set_core(core_page::kFwState, core_page::kStateDead);
  EXPECT_TRUE(harts_.dead(cores.devices[0]));
  EXPECT_FALSE(harts_.dead(cores.devices[1]));
  harts_.note_deaths(cores.devices);
  harts_.note_deaths(cores.devices);
  outbox.take().deliver();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].find("0 "), 0u) << told[0];
  cores.devices[0].ring.clear();  // it was started again, and dies again
  harts_.note_deaths(cores.devices);
  outbox.take().deliver();
  EXPECT_EQ(told.size(), 2u);
}

}  // namespace
}  // namespace tpu::driver
