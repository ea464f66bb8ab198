// A block of 32-bit registers on the control hart's bus. Offsets are from the block's base and
// multiples of 4.
#pragma once

#include <cstdint>

#include "file/archive.hpp"

namespace tpu::model {

class RegBlock {
 public:
  virtual ~RegBlock() = default;
  // False: there is no such register for this direction; the hart takes an access fault.
  virtual bool read(uint32_t offset, uint32_t& value) = 0;
  virtual bool write(uint32_t offset, uint32_t value) = 0;
  // As read(), without side effects: for debuggers.
  virtual bool peek(uint32_t offset, uint32_t& value) { return read(offset, value); }
  // True: it makes no difference at which cycle between its neighbours the hart's access is
  // performed, since nothing but another access of the hart changes or uses the register.
  virtual bool untimed(uint32_t /*offset*/, bool /*write*/) const { return false; }
};

// Writes of the two halves of a 64-bit register.
inline void set_low(uint64_t& target, uint32_t value) { target = target >> 32 << 32 | value; }
inline void set_high(uint64_t& target, uint32_t value) {
  target = (target & UINT32_MAX) | static_cast<uint64_t>(value) << 32;
}

}  // namespace tpu::model
