// Configuration space of a chip's PCI function: header, MSI (8 vectors, 64 bit), PCI Express and
// AER capabilities, and a vendor-specific one with the clock of the board. Writes go through masks
// as in hardware. Not here: what a write sets off.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tpu::driver::vfio {

/// Vendor and device id, as lspci has them.
struct PciId {
  uint16_t vendor = 0x1ae0;
  uint16_t device = 0x0027;
};

class ConfigSpace {
 public:
  static constexpr size_t kBytes = 4096;
  static constexpr size_t kCommand = 0x04;
  static constexpr uint16_t kMemorySpace = 1 << 1;
  static constexpr uint16_t kBusMaster = 1 << 2;
  static constexpr size_t kStatus = 0x06;
  static constexpr uint16_t kReceivedAbort = 1 << 13;
  static constexpr size_t kBar0 = 0x10;
  static constexpr size_t kBar2 = 0x18;
  static constexpr size_t kFirstCapability = 0x34;
  static constexpr size_t kMsi = 0x50;
  static constexpr size_t kExpress = 0x70;
  static constexpr size_t kDeviceControl = kExpress + 8;
  static constexpr size_t kDeviceStatus = kExpress + 10;
  static constexpr uint16_t kFunctionReset = 1 << 15;
  static constexpr size_t kAer = 0x100;
  static constexpr size_t kAerStatus = kAer + 4;
  static constexpr uint32_t kUnsupportedRequest = 1 << 20;
  /// Vendor-specific extended capability: id and length, then a word of flags, a word of zeros, the
  /// board's clock in core cycles, 64 bits, and the cycle up to which a board runs on which nothing
  /// is in flight, 64 bits. Reading it lets no simulated time pass.
  static constexpr size_t kClock = 0x150;
  static constexpr uint32_t kClockId = 0x5450;
  static constexpr uint32_t kClockVersion = 2;  ///< 1 had no target
  static constexpr size_t kClockFlags = kClock + 8;
  static constexpr uint32_t kQuiescent = 1;  ///< nothing is in flight on the whole board
  static constexpr size_t kClockCycles = kClock + 16;
  static constexpr size_t kClockUntil = kClock + 24;

  ConfigSpace(PciId id, uint32_t bar0_bytes, uint32_t bar2_bytes);

  /// As after a reset of the function.
  void reset();
  /// The range is inside.
  void read(size_t at, std::span<std::byte> to) const;
  void write(size_t at, std::span<const std::byte> from);

  uint16_t word(size_t at) const;
  bool memory_space() const { return (word(kCommand) & kMemorySpace) != 0; }
  bool bus_master() const { return (word(kCommand) & kBusMaster) != 0; }
  /// A request of the function reached no memory.
  void note_abort();
  /// An access that the function does not support.
  void note_unsupported();
  void set_clock(bool quiescent, uint64_t cycles);
  uint64_t clock_until() const;

 private:
  using Bytes = std::array<std::byte, kBytes>;
  template <class Number>
  static void put(Bytes& bytes, size_t at, Number value);
  void build(PciId id);

  Bytes bytes_{}, initial_{}, writable_{}, cleared_by_ones_{};
};

}  // namespace tpu::driver::vfio
