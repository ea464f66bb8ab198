// Device: one core as the driver keeps it: memory, rings and what is known of its hart; Devices:
// all of a board, by id. Guarded by the board lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/lock/board_lock.hpp"
#include "src/memory/device_memory.hpp"
#include "src/operations/operation.hpp"
#include "src/rings/command_ring.hpp"
#include "src/rings/core_registers.hpp"

namespace tpu::driver {

/// What the driver knows of one core.
struct Device : CorePlace {
  Device(const CorePlace& place, std::shared_ptr<DeviceMemory> hbm, CommandRing commands)
      : CorePlace(place), memory(std::move(hbm)), ring(std::move(commands)) {}

  std::shared_ptr<DeviceMemory> memory;
  CommandRing ring;
  bool held = false;       // waits for RESUME
  ErrorPtr trap;           // why its hart was started again last
  uint32_t told_trap = 0;  // boots + 1 when its last trap was told

  /// The launch that the core runs, or would run next; null without one.
  Operation* first_launch() const TPU_REQUIRES(board_lock) {
    const Command* command =
        ring.first([](const Command& each) { return each.op && each.op->launch(); });
    return command == nullptr ? nullptr : command->op.get();
  }
};

/// The list is complete before others know of the board: to look into it needs no lock.
class Devices {
 public:
  void add(Device device) TPU_REQUIRES(board_lock) { all_.push_back(std::move(device)); }
  size_t size() const { return all_.size(); }
  Device& operator[](int id) { return all_[static_cast<size_t>(id)]; }
  const Device& operator[](int id) const { return all_[static_cast<size_t>(id)]; }
  /// Throws InvalidArgument when the board has no such device.
  Device& at(int id);

  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

  /// Something is in flight of the operations up to number `last`; commands that have outlived
  /// their operation count always.
  bool in_flight(uint64_t last = UINT64_MAX) const TPU_REQUIRES(board_lock);
  /// A core of its gang still has to do with an older launch, so that it cannot end a step.
  bool waits_its_turn(const Operation& launch) const TPU_REQUIRES(board_lock);
  /// A core waits for RESUME.
  bool any_held() const TPU_REQUIRES(board_lock);
  /// Number of the earliest launch that has failed on one core, or was flushed there, and is open
  /// on another one.
  std::optional<uint64_t> partly_failed() const TPU_REQUIRES(board_lock);

 private:
  std::vector<Device> all_;
};

/// A look at the launches of all devices. The devices of a launch ask for it one after the other,
/// and its answer is found once: a pod has thousands of them.
class LaunchesInTurn {
 public:
  /// The list must outlive the look.
  explicit LaunchesInTurn(const Devices& devices) : devices_(devices) {}
  /// The first launch of a device; null without one, or while it waits its turn.
  const Operation* at(const Device& device) TPU_REQUIRES(board_lock);

 private:
  const Devices& devices_;
  const Operation* asked_ = nullptr;
  bool in_turn_ = false;  // that one
};

}  // namespace tpu::driver
