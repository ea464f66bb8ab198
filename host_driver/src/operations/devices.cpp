// Questions about all devices of a board.
#include "src/operations/devices.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tpu::driver {

Device& Devices::at(int id) {
  if (id < 0 || static_cast<size_t>(id) >= all_.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no device TPU:{}; this board has TPU:0..{}", id, all_.size() - 1));
  }
  return all_[static_cast<size_t>(id)];
}

bool Devices::in_flight(uint64_t last) const {
  const auto counts = [&](const Command& command) {
    return !command.op || command.op->number <= last;
  };
  return std::any_of(all_.begin(), all_.end(), [&](const Device& device) TPU_REQUIRES(board_lock) {
    return device.ring.open() > 0 && (last == UINT64_MAX || device.ring.first(counts) != nullptr);
  });
}

bool Devices::waits_its_turn(const Operation& launch) const {
  return std::any_of(launch.commands.begin(), launch.commands.end(),
                     [&](const auto& command) TPU_REQUIRES(board_lock) {
                       return launch.status[command->index] == kStatusOpen &&
                              (*this)[command->device].first_launch() != &launch;
                     });
}

const Operation* LaunchesInTurn::at(const Device& device) {
  const Operation* const launch = device.first_launch();
  if (launch != nullptr && launch != asked_) {
    asked_ = launch;
    in_turn_ = !devices_.waits_its_turn(*launch);
  }
  return launch != nullptr && in_turn_ ? launch : nullptr;
}

bool Devices::any_held() const {
  return std::any_of(all_.begin(), all_.end(), [](const Device& device) { return device.held; });
}

std::optional<uint64_t> Devices::partly_failed() const {
  const auto failed = [](uint16_t status) {
    return status != kStatusOpen && status != TPU_STATUS_OK;
  };
  const auto counts = [&](const Command& command) {
    return command.op && command.op->launch() &&
           std::any_of(command.op->status.begin(), command.op->status.end(), failed);
  };
  std::optional<uint64_t> earliest;
  for (const Device& device : all_) {
    if (const Command* command = device.ring.first(counts); command != nullptr) {
      earliest = std::min(command->op->number, earliest.value_or(UINT64_MAX));
    }
  }
  return earliest;
}

}  // namespace tpu::driver
