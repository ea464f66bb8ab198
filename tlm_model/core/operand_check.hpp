// Bounds of operands in the core's own memories.
#pragma once

#include <cstdint>

#include "core/program.hpp"
#include "probe/events.hpp"

namespace tpu::model {

// Checks that the operand, moved by `addend`, lies in [0, size); `base` is its address then.
inline bool operand_in(const Operand& operand, int64_t addend, uint64_t size, uint64_t* base) {
  const __int128 at = static_cast<__int128>(operand.address.offset) + addend;
  *base = static_cast<uint64_t>(at);
  return at + operand.extent.low >= 0 && at + operand.extent.high <= static_cast<__int128>(size);
}

// The first byte and the length of what it touches, for fault records.
inline uint64_t operand_first(const Operand& operand, uint64_t base) {
  return base + static_cast<uint64_t>(operand.extent.low);
}
inline uint64_t operand_length(const Operand& operand) {
  return static_cast<uint64_t>(operand.extent.high - operand.extent.low);
}

// The smallest range around what it touches.
inline AccessRange operand_range(const Operand& operand, uint32_t owner, ProbeMemory memory,
                                 uint64_t base, bool write) {
  return {.owner = owner,
          .memory = memory,
          .low = operand_first(operand, base),
          .bytes = operand_length(operand),
          .write = write};
}

// Where it lies.
inline ProbeMemory memory_of(const Operand& operand) {
  switch (static_cast<spec::Space>(operand.address.space)) {
    case spec::Space::kVmem:
      return ProbeMemory::kVmem;
    case spec::Space::kSmem:
      return ProbeMemory::kSmem;
    default:
      return ProbeMemory::kHbm;
  }
}

}  // namespace tpu::model
