// A block of 32-bit registers on the control hart's bus. Offsets are from the block's base and
// multiples of 4.
#pragma once

#include <cstdint>

namespace tpu::model {

class RegBlock {
 public:
  virtual ~RegBlock() = default;
  // False: there is no such register for this direction; the hart takes an access fault.
  virtual bool read(uint32_t offset, uint32_t& value) = 0;
  virtual bool write(uint32_t offset, uint32_t value) = 0;
};

}  // namespace tpu::model
