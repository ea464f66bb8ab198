// Cores without a board: rings in memory, a wire that swallows register accesses, and completions
// that a test writes as the firmware does.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "file/crc32c.hpp"
#include "src/operations/board_handles.hpp"
#include "src/operations/devices.hpp"
#include "src/operations/send_order.hpp"
#include "src/residency/resident_programs.hpp"
#include "src/rings/command_ring.hpp"
#include "src/rings/core_registers.hpp"
#include "src/transfers/board_memory.hpp"
#include "src/turn/turn.hpp"

namespace tpu::driver::test {

/// A transport that nothing comes back from.
class SilentWire : public Transport {
 public:
  uint32_t read32(int, int, uint64_t) override { return 0; }
  void write32(int, int, uint64_t offset, uint32_t value) override {
    writes.emplace_back(offset, value);
  }
  void write_block(int, int, uint64_t, std::span<const std::byte>) override {}
  RunOutcome run() override { return {}; }
  uint64_t now() override { return 0; }
  TransportStats stats() override { return {}; }

  std::vector<std::pair<uint64_t, uint32_t>> writes;  ///< offset, value
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
  /// Writes the record that is taken of a device next, in the first lap of its ring, as the
  /// firmware does.
  void write(int device, tpu_completion_t record) {
    record.flags |= TPU_CPL_FLAG_PHASE;
    const auto bytes = std::as_bytes(std::span<const tpu_completion_t, 1>(&record, 1));
    record.crc = spec::crc32c(bytes.first(sizeof(record) - sizeof(record.crc)));
    const CommandRing& ring = devices[device].ring;
    std::memcpy(ring.completions().bytes.data() + ring.taken() * sizeof(record), &record,
                sizeof(record));
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

/// The owners that operations need, around two such cores.
struct FakeBoard {
  FakeBoard() { memory.set_arena(arena); }

  /// The oldest command of a device has ended.
  void report(int device, uint16_t status = TPU_STATUS_OK) {
    operations.report(cores.take_oldest(device), status);
  }

  const std::shared_ptr<HostArena> arena = std::make_shared<HostArena>(4096, 64 << 10);
  FakeCores cores;
  Health health;
  Outbox outbox;
  HostNews news;
  BoardHandles handles;
  ResidentPrograms programs;
  Turn turn{[] {}};
  /// What waits for room does.
  std::function<void()> pump = [] { throw std::logic_error("nothing should wait here"); };
  Operations operations{cores.devices,
                        cores.registers,
                        health,
                        outbox,
                        news,
                        {.pump = [this] { pump(); },
                         .make_event = [this] { return handles.make_event(); },
                         .launch_over = [](Operation&, const ErrorPtr&) {}}};
  SendOrder order{operations, health, [] { return false; }};
  BoardMemory memory{cores.devices,
                     health,
                     {.pump = [this] { pump(); },
                      .evict = [this](int device) { return programs.evict(device); },
                      .held_bytes = [] { return std::optional<uint64_t>(); }}};
};

}  // namespace tpu::driver::test
