// The vfio-user protocol, version 0.0: a PCI function in another process, over a Unix socket. These
// are its messages, little endian, as the server and the client of this project use them; the
// specification is a part of QEMU's documentation (docs/interop/vfio-user). Numbers of regions,
// interrupts and flags are those of Linux's VFIO.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpu::driver::vfio {

enum class Command : uint16_t {
  kVersion = 1,
  kDmaMap = 2,
  kDmaUnmap = 3,
  kDeviceInfo = 4,
  kRegionInfo = 5,
  kRegionFds = 6,
  kIrqInfo = 7,
  kSetIrqs = 8,
  kRegionRead = 9,
  kRegionWrite = 10,
  kDmaRead = 11,   ///< of the server
  kDmaWrite = 12,  ///< of the server
  kReset = 13,
  kRegionWriteMulti = 15,
};

struct Head {
  static constexpr uint32_t kReply = 1;  ///< in the four bits of the type; 0: a command
  static constexpr uint32_t kTypeMask = 0xF;
  static constexpr uint32_t kNoReply = 1 << 4;
  static constexpr uint32_t kError = 1 << 5;
  static constexpr uint32_t kKnownFlags = kTypeMask | kNoReply | kError;

  uint16_t id = 0;
  uint16_t command = 0;
  uint32_t bytes = 0;  ///< of the frame, with this
  uint32_t flags = 0;
  uint32_t error = 0;  ///< errno of a reply with kError
};
static_assert(sizeof(Head) == 16);

struct Version {
  uint16_t major = 0;
  uint16_t minor = 0;
  // JSON text and a zero follow, or nothing.
};

struct DmaMap {
  static constexpr uint32_t kRead = 1;
  static constexpr uint32_t kWrite = 2;
  uint32_t argsz = sizeof(DmaMap);
  uint32_t flags = 0;
  uint64_t offset = 0;  ///< in the file of the descriptor
  uint64_t address = 0;
  uint64_t size = 0;
};
static_assert(sizeof(DmaMap) == 32);

struct DmaUnmap {
  static constexpr uint32_t kAll = 2;
  uint32_t argsz = sizeof(DmaUnmap);
  uint32_t flags = 0;
  uint64_t address = 0;
  uint64_t size = 0;
};
static_assert(sizeof(DmaUnmap) == 24);

struct DeviceInfo {
  static constexpr uint32_t kResets = 1;
  static constexpr uint32_t kPci = 2;
  uint32_t argsz = sizeof(DeviceInfo);
  uint32_t flags = 0;
  uint32_t regions = 0;
  uint32_t irqs = 0;
};
static_assert(sizeof(DeviceInfo) == 16);

struct RegionInfo {
  static constexpr uint32_t kRead = 1;
  static constexpr uint32_t kWrite = 2;
  uint32_t argsz = sizeof(RegionInfo);
  uint32_t flags = 0;
  uint32_t index = 0;
  uint32_t cap_offset = 0;
  uint64_t size = 0;
  uint64_t offset = 0;
};
static_assert(sizeof(RegionInfo) == 32);

struct IrqInfo {
  static constexpr uint32_t kEventfd = 1;
  static constexpr uint32_t kNoResize = 8;
  uint32_t argsz = sizeof(IrqInfo);
  uint32_t flags = 0;
  uint32_t index = 0;
  uint32_t count = 0;
};
static_assert(sizeof(IrqInfo) == 16);

struct SetIrqs {
  static constexpr uint32_t kNone = 1;
  static constexpr uint32_t kBool = 2;
  static constexpr uint32_t kEventfd = 4;
  static constexpr uint32_t kTrigger = 32;
  uint32_t argsz = sizeof(SetIrqs);
  uint32_t flags = 0;
  uint32_t index = 0;
  uint32_t start = 0;
  uint32_t count = 0;
  // A byte for each interrupt with kBool, descriptors beside the frame with kEventfd.
};
static_assert(sizeof(SetIrqs) == 20);

struct RegionAccess {
  uint64_t offset = 0;
  uint32_t region = 0;
  uint32_t count = 0;
  // The bytes of a write, or of the reply to a read.
};
static_assert(sizeof(RegionAccess) == 16);

struct ManyWrites {
  uint64_t count = 0;
  struct Write {
    RegionAccess access;
    std::byte data[8];
  };
};
static_assert(sizeof(ManyWrites::Write) == 24);

struct DmaAccess {
  uint64_t address = 0;
  uint64_t count = 0;
  // The bytes of a write, or of the reply to a read.
};
static_assert(sizeof(DmaAccess) == 16);

inline constexpr uint32_t kBar0Region = 0;
inline constexpr uint32_t kBar2Region = 2;
inline constexpr uint32_t kConfigRegion = 7;
inline constexpr uint32_t kRegions = 9;
inline constexpr uint32_t kMsiIrq = 1;
inline constexpr uint32_t kErrorIrq = 3;
inline constexpr uint32_t kIrqs = 5;

inline constexpr uint32_t kMostDataBytes = 1 << 20;  ///< of a read or write, both ways
inline constexpr uint32_t kMostFrameBytes = kMostDataBytes + 64;
inline constexpr uint64_t kPageBytes = 4096;

}  // namespace tpu::driver::vfio
