// The firmware's portable part (firmware/rt) as it runs on the host: one instance for each core.
// The C code works on the state of one instance and on the registers of one core: those that the
// calling thread is at. Threads may run different instances at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct fw_core;  // state of the firmware: rt/fw.h

namespace tpu::firmware {

class FakeCore;

class FirmwareOnHost {
 public:
  explicit FirmwareOnHost(FakeCore& core);
  ~FirmwareOnHost();
  FirmwareOnHost(const FirmwareOnHost&) = delete;
  FirmwareOnHost& operator=(const FirmwareOnHost&) = delete;

  /// Starts anew, up to state HANDSHAKE.
  void boot(uint32_t build);
  /// Handles all pending interrupts of the core; false if none is pending.
  bool dispatch();
  /// Writes a completion with MORE and STEP of the launch that runs, as a launch with OUTFEED does
  /// after each step but its last.
  void tell_step();
  /// What the trap handler does: record, abort of the gang, state DEAD.
  void trap(uint32_t mepc, uint32_t mcause);
  /// Commands completed, in the order of the ring, up to the first that is not.
  uint32_t oldest() const;
  /// Bytes of the state at a hart address, for DMA; empty: not all of them are there.
  std::span<std::byte> tcm_bytes(uint64_t address, uint64_t bytes);

 private:
  FakeCore& core_;
  std::unique_ptr<fw_core> state_;
};

/// Lets the firmware work on this state and this core in the calling thread, while it lives.
class FirmwareTurn {
 public:
  FirmwareTurn(fw_core& state, FakeCore& core);
  ~FirmwareTurn();
  FirmwareTurn(const FirmwareTurn&) = delete;
  FirmwareTurn& operator=(const FirmwareTurn&) = delete;

 private:
  fw_core* const state_before_;
  FakeCore* const core_before_;
};

}  // namespace tpu::firmware
