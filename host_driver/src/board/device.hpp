// Device: one core as the driver keeps it: memory, rings and what is known of its hart.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "src/board/operation.hpp"
#include "src/memory/device_memory.hpp"
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
  Operation* first_launch() const {
    const Command* command =
        ring.first([](const Command& each) { return each.op && each.op->launch(); });
    return command == nullptr ? nullptr : command->op.get();
  }
};

}  // namespace tpu::driver
