// What a debugger sees of a board: control harts, their address spaces, and texts about the blocks
// around them. Nothing here lets simulated time pass. Implemented by the board's wiring.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "hart/hart.hpp"

namespace tpu::model {

class DebugTarget {
 public:
  virtual ~DebugTarget() = default;

  virtual uint32_t harts() const = 0;
  virtual Hart& hart(uint32_t core) = 0;

  // Bytes as the hart would see them, but without the side effects of reading a register. False:
  // there is nothing, or a register that cannot be read.
  virtual bool read(uint32_t core, uint32_t address, std::span<uint8_t> data) = 0;
  // Registers take whole words, with all that a write of the hart does.
  virtual bool write(uint32_t core, uint32_t address, std::span<const uint8_t> data) = 0;
  // A register as the hart would read it, side effects and all.
  virtual bool read_register(uint32_t core, uint32_t address, uint32_t& value) = 0;

  virtual std::string time_text() const = 0;
  virtual std::string hart_text(uint32_t core) const = 0;        // one line, without its end
  virtual std::string queues_text(uint32_t core) const = 0;      // lines
  virtual std::string semaphores_text(uint32_t core) const = 0;  // lines
  virtual std::string rings_text(uint32_t core) const = 0;       // lines
  // Opens or closes the window of the waves: one line about it, without its end.
  virtual std::string switch_waves(bool on) = 0;
};

}  // namespace tpu::model
