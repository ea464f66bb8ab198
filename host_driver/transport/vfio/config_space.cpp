#include "transport/vfio/config_space.hpp"

#include <algorithm>
#include <cstring>

namespace tpu::driver::vfio {
namespace {

constexpr uint16_t kCapabilityList = 1 << 4;
constexpr uint32_t kProcessingAccelerator = 0x120000;
constexpr uint8_t kMsiCapability = 5;
constexpr uint16_t kMsi64Bit = 1 << 7;
constexpr uint16_t kMsiEightVectors = 3 << 1;
constexpr uint16_t kMsiEnable = 1;
constexpr uint16_t kMsiEnabledVectors = 7 << 4;
constexpr uint8_t kExpressCapability = 0x10;
constexpr uint16_t kExpressVersion = 2;  // an endpoint
constexpr uint32_t kFunctionLevelReset = 1 << 28;
constexpr uint32_t kRoleBasedErrors = 1 << 15;
constexpr uint32_t kLink8GT16Lanes = 3 | 16 << 4;
constexpr uint16_t kAerCapability = 1;
constexpr uint16_t kVendorCapability = 0xB;
constexpr uint32_t kClockBytes = 0x20;
// Correctable, non-fatal, fatal error and unsupported request: enable bits and status bits.
constexpr uint16_t kErrorBits = 0xF;
constexpr uint16_t kNonFatalDetected = 1 << 1;
constexpr uint16_t kUnsupportedDetected = 1 << 3;
// Errors that an endpoint knows (PCIe base specification): their status, mask and severity bits.
constexpr uint32_t kUncorrectable = 0x001FF010;
constexpr uint32_t kFatalAtReset = 0x00062010;
constexpr uint32_t kCorrectable = 0x000031C1;
constexpr uint32_t kAdvisoryNonFatal = 1 << 13;

constexpr uint32_t extended(uint16_t id, uint32_t version, size_t next) {
  return id | version << 16 | static_cast<uint32_t>(next) << 20;
}

}  // namespace

template <class Number>
void ConfigSpace::put(Bytes& bytes, size_t at, Number value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

ConfigSpace::ConfigSpace(PciId id, uint32_t bar0_bytes, uint32_t bar2_bytes) {
  build(id);
  put(writable_, kBar0, ~(bar0_bytes - 1));
  put(writable_, kBar2, ~(bar2_bytes - 1));
  bytes_ = initial_;
}

void ConfigSpace::build(PciId id) {
  Bytes& all = initial_;
  put(all, 0x00, id.vendor);
  put(all, 0x02, id.device);
  put(writable_, kCommand,
      static_cast<uint16_t>(kMemorySpace | kBusMaster | 1 << 6 | 1 << 8 | 1 << 10));
  put(all, kStatus, kCapabilityList);
  put(cleared_by_ones_, kStatus, static_cast<uint16_t>(0xF900));
  put(all, 0x08, kProcessingAccelerator << 8 | 1);
  put(writable_, 0x0C, uint8_t{0xFF});  // size of a cache line: without effect
  put(all, 0x2C, id.vendor);
  put(all, 0x2E, uint16_t{1});
  put(all, kFirstCapability, static_cast<uint8_t>(kMsi));
  put(writable_, 0x3C, uint8_t{0xFF});  // interrupt line: without effect

  put(all, kMsi, kMsiCapability);
  put(all, kMsi + 1, static_cast<uint8_t>(kExpress));
  put(all, kMsi + 2, static_cast<uint16_t>(kMsi64Bit | kMsiEightVectors));
  put(writable_, kMsi + 2, static_cast<uint16_t>(kMsiEnable | kMsiEnabledVectors));
  put(writable_, kMsi + 4, ~uint32_t{3});
  put(writable_, kMsi + 8, ~uint32_t{0});
  put(writable_, kMsi + 12, static_cast<uint16_t>(0xFFFF));

  put(all, kExpress, kExpressCapability);
  put(all, kExpress + 2, kExpressVersion);
  put(all, kExpress + 4, kFunctionLevelReset | kRoleBasedErrors);
  put(all, kDeviceControl, static_cast<uint16_t>(1 << 4 | 2 << 12));  // relaxed order, 512 B reads
  put(writable_, kDeviceControl, static_cast<uint16_t>(kErrorBits | 1 << 4 | 7 << 5 | 7 << 12));
  put(cleared_by_ones_, kDeviceStatus, kErrorBits);
  put(all, kExpress + 12, kLink8GT16Lanes);
  put(writable_, kExpress + 16, static_cast<uint16_t>(0xC3));
  put(all, kExpress + 18, static_cast<uint16_t>(kLink8GT16Lanes));

  put(all, kAer, extended(kAerCapability, 2, kClock));
  put(cleared_by_ones_, kAerStatus, kUncorrectable);
  put(writable_, kAer + 8, kUncorrectable);
  put(all, kAer + 12, kFatalAtReset);
  put(writable_, kAer + 12, kUncorrectable);
  put(cleared_by_ones_, kAer + 16, kCorrectable);
  put(all, kAer + 20, kAdvisoryNonFatal);
  put(writable_, kAer + 20, kCorrectable);

  put(all, kClock, extended(kVendorCapability, 1, 0));
  put(all, kClock + 4, kClockId | kClockVersion << 16 | kClockBytes << 20);
  put(writable_, kClockUntil, ~uint64_t{0});
}

void ConfigSpace::reset() { bytes_ = initial_; }

void ConfigSpace::read(size_t at, std::span<std::byte> to) const {
  std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(at), to.size(), to.begin());
}

void ConfigSpace::write(size_t at, std::span<const std::byte> from) {
  for (const std::byte value : from) {
    bytes_[at] = (bytes_[at] & ~writable_[at]) | (value & writable_[at]);
    bytes_[at] &= ~(value & cleared_by_ones_[at]);
    ++at;
  }
}

uint16_t ConfigSpace::word(size_t at) const {
  uint16_t value = 0;
  std::memcpy(&value, bytes_.data() + at, sizeof value);
  return value;
}

void ConfigSpace::note_abort() {
  put(bytes_, kStatus, static_cast<uint16_t>(word(kStatus) | kReceivedAbort));
}

void ConfigSpace::note_unsupported() {
  uint32_t status = 0;
  std::memcpy(&status, bytes_.data() + kAerStatus, sizeof status);
  if ((status & kUnsupportedRequest) == 0) {
    put(bytes_, kAer + 24, static_cast<uint32_t>(20));  // the first error
  }
  put(bytes_, kAerStatus, status | kUnsupportedRequest);
  put(bytes_, kDeviceStatus,
      static_cast<uint16_t>(word(kDeviceStatus) | kNonFatalDetected | kUnsupportedDetected));
}

uint64_t ConfigSpace::clock_until() const {
  uint64_t cycle = 0;
  std::memcpy(&cycle, bytes_.data() + kClockUntil, sizeof cycle);
  return cycle;
}

void ConfigSpace::set_clock(bool quiescent, uint64_t cycles) {
  put(bytes_, kClockFlags, quiescent ? kQuiescent : 0);
  put(bytes_, kClockCycles, cycles);
}

}  // namespace tpu::driver::vfio
