// The devices of a board: what is in flight on them, and of which operations.
#include "src/operations/devices.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "src/residency/program.hpp"

namespace tpu::driver {
namespace {

class DevicesTest : public testing::Test {
 protected:
  DevicesTest() {
    for (int id = 0; id < 2; ++id) {
      auto& memory = memory_.emplace_back(CommandRing::kCommandBytes);
      devices_.add(Device({.id = id, .chip = 0, .core = id}, nullptr,
                          CommandRing({0, memory}, {0, completions_})));
      devices_[id].ring.clear();
    }
  }
  std::shared_ptr<Command> send(int device, const std::shared_ptr<Operation>& op) {
    auto command = std::make_shared<Command>();
    command->device = device;
    command->op = op;
    devices_[device].ring.make_place();
    devices_[device].ring.enter(command);
    return command;
  }
  static std::shared_ptr<Operation> operation(uint64_t number, bool launch = false) {
    auto op = std::make_shared<Operation>();
    op->number = number;
    if (launch) {
      op->program =
          std::make_shared<LoadedProgram>(std::make_shared<exe::ExecutableT>(), std::vector<int>{});
    }
    return op;
  }

  std::vector<std::byte> completions_ = std::vector<std::byte>(CommandRing::kCompletionBytes);
  std::vector<std::vector<std::byte>> memory_;
  Devices devices_;
};

TEST_F(DevicesTest, ADeviceThatIsNotThereIsRefusedByName) {
  EXPECT_EQ(devices_.at(1).id, 1);
  for (const int id : {-1, 2}) {
    try {
      devices_.at(id);
      FAIL() << id;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(error.message().find("TPU:0..1"), std::string::npos) << error.message();
    }
  }
}

TEST_F(DevicesTest, WhatIsInFlightIsAskedForByTheNumberOfTheOperation) {
  EXPECT_FALSE(devices_.in_flight());
  const auto late = send(1, operation(7));
  EXPECT_TRUE(devices_.in_flight());
  EXPECT_TRUE(devices_.in_flight(7));
  EXPECT_FALSE(devices_.in_flight(6));
  late->op.reset();
  EXPECT_TRUE(devices_.in_flight(0)) << "a command that has outlived its operation counts";
}

TEST_F(DevicesTest, TheFirstLaunchIsTheOldestOnTheRing) {
  EXPECT_EQ(devices_[0].first_launch(), nullptr);
  const auto copy = send(0, operation(1));
  const auto launch = operation(2, true);
  const auto first = send(0, launch);
  const auto second = send(0, operation(3, true));
  EXPECT_EQ(devices_[0].first_launch(), launch.get());
  EXPECT_EQ(devices_[1].first_launch(), nullptr);
  EXPECT_FALSE(devices_.any_held());
  devices_[1].held = true;
  EXPECT_TRUE(devices_.any_held());
}

// Both devices have the second launch; the first one's other launch is in front of it.
TEST_F(DevicesTest, ALaunchIsInTurnWhenAllItsDevicesHaveComeToIt) {
  const auto first = operation(1, true);
  const auto both = operation(2, true);
  for (const auto& [device, op] : {std::pair(0, first), std::pair(0, both), std::pair(1, both)}) {
    const auto command = send(device, op);
    command->index = op->commands.size();
    op->commands.push_back(command);
    op->status.push_back(kStatusOpen);
  }
  LaunchesInTurn look(devices_);
  EXPECT_EQ(look.at(devices_[0]), first.get());
  EXPECT_EQ(look.at(devices_[1]), nullptr) << "its other device has not come to it";
  EXPECT_EQ(look.at(devices_[0]), first.get()) << "the answer is that of the other launch";
  first->commands[0]->op.reset();  // taken off
  LaunchesInTurn later(devices_);
  EXPECT_EQ(later.at(devices_[0]), both.get());
  EXPECT_EQ(later.at(devices_[1]), both.get());
}

}  // namespace
}  // namespace tpu::driver
