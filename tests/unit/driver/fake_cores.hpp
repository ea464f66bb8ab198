// Cores without a board: rings in memory, a wire that swallows register accesses, and completions
// that a test writes as the firmware does.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "file/crc32c.hpp"
#include "src/operations/devices.hpp"
#include "src/rings/command_ring.hpp"
#include "src/rings/core_registers.hpp"

namespace tpu::driver::test {

/// A transport that nothing comes back from.
class SilentWire : public Transport {
 public:
  uint32_t read32(int, int, uint64_t) override { return 0; }
  void write32(int, int, uint64_t, uint32_t) override { ++writes; }
  void write_block(int, int, uint64_t, std::span<const std::byte>) override {}
  RunOutcome run() override { return {}; }
  uint64_t now() override { return 0; }
  TransportStats stats() override { return {}; }

  int writes = 0;
};

/// Two cores.
struct FakeCores {
  FakeCores() {
    for (int id = 0; id < 2; ++id) {
      auto& commands = memory_.emplace_back(CommandRing::kCommandBytes);
      auto& completions = memory_.emplace_back(CommandRing::kCompletionBytes);
      devices.add(Device({.id = id, .chip = 0, .core = id},
                         std::make_shared<DeviceMemory>(id, uint64_t{1} << 20),
                         CommandRing({0x10000, commands}, {0x20000, completions})));
      devices[id].ring.clear();
    }
    registers.connect(&wire);
  }

  /// The oldest command of a device that is in flight; null without one.
  const Command* oldest(int device) {
    return devices[device].ring.first([](const Command&) { return true; });
  }
  /// Takes that command off the ring, as completed.
  std::shared_ptr<Command> take_oldest(int device) {
    CommandRing& ring = devices[device].ring;
    tpu_completion_t record{};
    record.seq = oldest(device)->seq;
    return ring.accept(record);
  }

  SilentWire wire;
  Devices devices;
  CoreRegisters registers{[](const std::exception&) {}};

 private:
  std::deque<std::vector<std::byte>> memory_;
};

}  // namespace tpu::driver::test
