// Programs on their cores, launches of them, and what is recorded of launches; the cores are fake.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/feeds/feeds.hpp"
#include "src/handles/access.hpp"
#include "src/launches/launch_records.hpp"
#include "src/launches/launcher.hpp"
#include "src/residency/loader.hpp"
#include "tests/unit/driver/fake_cores.hpp"

namespace tpu::driver {
namespace {

constexpr uint64_t kHash = 0xB0A2D;

class LaunchesTest : public testing::Test, protected test::FakeBoard {
 protected:
  LaunchesTest() { loader_.set_board("fake", kHash, {}); }

  // One argument and one result of four floats, on these cores.
  static std::shared_ptr<exe::ExecutableT> executable(const std::vector<uint8_t>& on,
                                                      bool donates = false) {
    auto exe = std::make_shared<exe::ExecutableT>();
    exe->name = "add";
    exe->board_name = "fake";
    exe->board_hash = kHash;
    exe->partitions = static_cast<uint32_t>(on.size());
    exe->cores.assign(on.begin(), on.end());
    exe->image.resize(64);
    for (const auto kind : {exe::SlotKind::argument, exe::SlotKind::result}) {
      exe->slots.push_back(std::make_unique<exe::SlotT>());
      exe->slots.back()->kind = kind;
      exe->slots.back()->bytes = 16;
    }
    for (uint32_t slot = 0; slot < 2; ++slot) {
      auto tensor = std::make_unique<exe::TensorT>();
      tensor->elem = static_cast<exe::Elem>(DType::kF32);
      tensor->global_dims = tensor->local_dims = {4};
      tensor->offsets.assign(on.size(), 0);
      tensor->replicated = true;
      tensor->slot = donates ? 0 : slot;
      tensor->donated_to = donates && slot == 0 ? 0 : -1;
      (slot == 0 ? exe->args : exe->results).push_back(std::move(tensor));
    }
    if (donates) {
      exe->slots.pop_back();
    }
    return exe;
  }
  std::shared_ptr<LoadedProgram> load(const std::vector<uint8_t>& on, bool donates = false) {
    auto program = loader_.make(executable(on, donates), "add.tpuexe", {});
    loader_.load(program, false);
    return program;
  }
  // The opcode of the oldest command of a core, which ends.
  uint16_t end_oldest(int device, uint16_t status = TPU_STATUS_OK) {
    const uint16_t opcode = cores.oldest(device)->opcode;
    report(device, status);
    return opcode;
  }
  Array argument(const LoadedProgram& program) {
    std::vector<Buffer> parts;
    for (const int device : program.info->devices) {
      parts.push_back(transfers_.zeros(device, DType::kF32, {4}, 0));
      end_oldest(device);
    }
    const ParameterInfo& info = program.info->arguments[0];
    return Array(info.dtype, info.shape, info.layout, std::move(parts));
  }

  Transfers transfers_{memory, operations, order, handles, turn};
  Feeds feeds_{cores.devices, cores.registers, operations, memory, handles, health, outbox, news};
  Loader loader_{cores.devices, operations, order, memory, transfers_, health, [this] { pump(); }};
  std::vector<std::pair<uint32_t, bool>> named_;  // id, runs something
  Launcher launcher_{operations,
                     order,
                     memory,
                     transfers_,
                     feeds_,
                     loader_,
                     handles,
                     health,
                     [this](uint32_t id, const std::shared_ptr<const exe::ExecutableT>& program,
                            uint64_t) { named_.emplace_back(id, program != nullptr); }};
};

TEST_F(LaunchesTest, AProgramOfAnotherBoardOrPlaceIsRefused) {
  auto other = executable({0});
  other->board_hash = 1;
  EXPECT_THROW(loader_.make(other, "other", {}), Error);
  EXPECT_THROW(loader_.make(executable({0, 1, 2}), "wide", {}), Error);
  EXPECT_THROW(loader_.make(executable({0, 1}), "gang", {1, 0}), Error);
  EXPECT_EQ(loader_.make(executable({0}), "one", {1})->info->devices, std::vector<int>{1});
}

TEST_F(LaunchesTest, AProgramIsLoadedOnceAndUnloadedBeforeItsIdIsUsedAgain) {
  auto program = load({0});
  EXPECT_EQ(end_oldest(0), TPU_OP_LOAD_PROGRAM);
  EXPECT_EQ(loader_.make_resident(*program), program->residence);
  EXPECT_EQ(cores.oldest(0), nullptr) << "it is there";
  program.reset();
  const auto next = load({0});
  EXPECT_EQ(end_oldest(0), TPU_OP_UNLOAD_PROGRAM);
  EXPECT_EQ(end_oldest(0), TPU_OP_LOAD_PROGRAM);
  EXPECT_EQ(next->residence->parts[0].id, 0);
}

// Behind what ends last nothing is left on the core, but an id that nobody has taken back yet.
TEST_F(LaunchesTest, ALoadGetsTheIdOfWhatEndsLast) {
  while (loader_.ids()->take(0)) {
  }
  const Buffer cleared = transfers_.zeros(0, DType::kF32, {4}, 0);
  ASSERT_EQ(cores.devices[0].ring.open(), 1u);
  pump = [&] {
    end_oldest(0);
    loader_.ids()->retire({.device = 0, .id = 3, .sent = false});
  };
  const auto program = load({0});
  EXPECT_EQ(program->residence->parts[0].id, 3);
}

TEST_F(LaunchesTest, ALoadThatFailedIsTriedAgain) {
  const auto program = load({0});
  end_oldest(0, TPU_STATUS_BAD_PROGRAM);
  EXPECT_TRUE(program->residence->parts[0].ready->failed());
  loader_.make_resident(*program);
  EXPECT_NE(cores.oldest(0), nullptr);
}

TEST_F(LaunchesTest, OnlyWhatACoreHadIsLoadedAgainAfterItsDeath) {
  const auto program = load({0, 1});
  EXPECT_EQ(end_oldest(0), TPU_OP_LOAD_PROGRAM);
  loader_.load_again({1});
  EXPECT_EQ(cores.devices[1].ring.open(), 1u) << "its first load is still open";
  loader_.load_again({0});
  EXPECT_EQ(end_oldest(0), TPU_OP_LOAD_PROGRAM);
}

TEST_F(LaunchesTest, AGangIsLaunchedWithItsSlotTableUnderOneId) {
  const auto program = load({0, 1});
  end_oldest(0);
  end_oldest(1);
  const Array input = argument(*program);
  launcher_.check(*program, {input}, {});
  launcher_.set_last_id(UINT32_MAX);
  const RunResult result = launcher_.launch(program, {input}, {});
  EXPECT_EQ(named_, (std::vector<std::pair<uint32_t, bool>>{{1, true}})) << "0 is no launch id";
  for (const int device : {0, 1}) {
    tpu_command_launch_t wire;
    std::memcpy(&wire, cores.oldest(device)->wire.data(), sizeof(wire));
    EXPECT_EQ(wire.launch_id, 1u);
    EXPECT_EQ(wire.core_mask, 3u);
    ASSERT_EQ(wire.slots, 2u);
    std::array<tpu_slot_entry_t, 2> table{};
    const auto bytes = arena->span(wire.table_iova, sizeof(table), false);
    std::memcpy(table.data(), bytes.data(), sizeof(table));
    const auto part = static_cast<size_t>(device);
    EXPECT_EQ(table[0].base, Access::state(input.parts()[part])->hold()->address());
    EXPECT_EQ(table[1].base, Access::state(result.outputs[0].parts()[part])->hold()->address());
    EXPECT_EQ(table[1].flags, TPU_SLOT_FLAG_FRESH);
  }
  end_oldest(0);
  EXPECT_FALSE(result.done.ready());
  end_oldest(1);
  EXPECT_TRUE(result.done.ready());
}

TEST_F(LaunchesTest, ADonatedArrayIsGoneWhenTheLaunchIsSent) {
  const auto program = load({0}, true);
  end_oldest(0);
  const Array input = argument(*program);
  launcher_.launch(program, {input}, {});
  EXPECT_FALSE(Access::state(input.parts()[0])->live());
  EXPECT_THROW(launcher_.check(*program, {input}, {}), Error);
}

TEST_F(LaunchesTest, WhatIsWrongWithALaunchIsSaidBeforeAnythingIsSent) {
  const auto program = load({0});
  end_oldest(0);
  EXPECT_THROW(launcher_.check(*program, {}, {}), Error);
  EXPECT_THROW(launcher_.check(*program, {Array()}, {}), Error);
  RunOptions twice;
  twice.steps = 2;
  EXPECT_THROW(launcher_.check(*program, {argument(*program)}, twice), Error)
      << "both steps would compute the same";
  EXPECT_EQ(cores.oldest(0), nullptr);
}

// A debug port with one finding.
class Port : public test::SilentWire {
 public:
  std::vector<CheckFinding> take_findings() override { return std::exchange(findings, {}); }
  std::vector<OpTally> take_op_times(uint32_t launch_id) override {
    return {{.op_id = 0, .cycles = 10 * launch_id, .busy_cycles = 1, .commands = 1}};
  }
  std::vector<CheckFinding> findings;
};

TEST_F(LaunchesTest, FindingsAndTimesAreThoseOfTheirLaunch) {
  auto port = std::make_unique<Port>();
  CheckFinding finding{};
  finding.launch = 7;
  finding.step = 2;
  finding.what = "reads what nobody has written";
  port->findings = {finding};
  const std::unique_ptr<Transport> transport = std::move(port);
  LaunchRecords records(transport);
  records.set_board_words(" --set a.b=1");
  const auto exe = executable({0});
  exe->ops.push_back(std::make_unique<exe::OpInfoT>());
  Operation launch;
  launch.program = std::make_shared<LoadedProgram>(exe, std::vector<int>{0});
  launch.launch_id = 6;
  records.end(launch);
  EXPECT_TRUE(records.op_times().empty()) << "the option is off";
  SimOptions sim;
  sim.check = sim.op_times = true;
  records.set_options(sim);
  records.end(launch);
  EXPECT_EQ(records.check_text(), "") << "it is of another launch";
  launch.launch_id = 7;
  records.end(launch);
  EXPECT_NE(records.check_text().find("step 2: "), std::string::npos) << records.check_text();
  EXPECT_NE(records.check_text().find("tpuboard run add.tpuexe --set a.b=1 --check"),
            std::string::npos)
      << records.check_text();
  ASSERT_EQ(records.op_times().size(), 1u);
  EXPECT_EQ(records.op_times()[0].cycles, 130u);
}

}  // namespace
}  // namespace tpu::driver
