// What a fake core needs from its board: memories, other cores, clock, and
// hooks for what goes over the host's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gang/core_set.hpp"

namespace tpu::firmware {

class FakeSurroundings {
 public:
  virtual ~FakeSurroundings() = default;

  /// Host memory at `iova`; a null pointer: not registered.
  virtual std::span<std::byte> host_bytes(uint64_t iova, uint64_t bytes, bool write) = 0;
  /// ITCM or DTCM of the core; empty: outside of both.
  virtual std::span<std::byte> tcm_bytes(uint64_t address, uint64_t bytes) = 0;

  /// Whether a core of the board has this range of HBM. The other calls get ranges that are there.
  virtual bool hbm_holds(uint32_t core, uint64_t at, uint64_t bytes) = 0;
  /// HBM of the core itself.
  virtual void read_hbm(uint64_t at, std::span<std::byte> out) = 0;
  virtual void write_hbm(uint64_t at, std::span<const std::byte> data) = 0;
  virtual void fill_hbm(uint64_t at, uint64_t bytes, uint32_t pattern) = 0;
  /// From its HBM to that of core `peer`, which may be itself.
  virtual void copy_hbm(uint64_t from, uint32_t peer, uint64_t to, uint64_t bytes) = 0;

  virtual uint64_t cycle() = 0;
  /// Value of a counter of spec/regs/perf.toml.
  virtual uint64_t counter(uint32_t index) = 0;

  /// The core sends the MSI of this vector, counted as sysctl MSI does.
  virtual void send_msi(uint32_t vector) = 0;
  /// The sequencer starts the step of its registers.
  virtual void program_started() = 0;
  /// The core has arrived at a barrier, or aborts a gang (spec/regs/gsync.toml).
  virtual void arrived(uint32_t kind) = 0;
  /// `gang`: empty where the root alone knows it.
  virtual void abort_sent(uint32_t tag, uint32_t root, const spec::CoreSet& gang,
                          uint32_t code) = 0;

  /// A command entry, between host memory and the check of its CRC.
  virtual void entry_on_the_way(std::span<std::byte> entry) { static_cast<void>(entry); }
  /// A sealed completion, on its way to host memory.
  virtual void completion_on_the_way(std::span<std::byte> completion) {
    static_cast<void>(completion);
  }
};

}  // namespace tpu::firmware
