// DebugPort: registers and memories of the control harts, as Board::peek_word() and poke_word()
// show them. Its calls take the board lock themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "src/door/door.hpp"
#include "src/health/health.hpp"
#include "src/operations/devices.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {

class DebugPort {
 public:
  DebugPort(Door& door, Health& health, const Devices& devices,
            const std::unique_ptr<Transport>& transport)
      : door_(door), health_(health), devices_(devices), transport_(transport) {}

  uint32_t peek_word(int device, const std::string& place);
  void poke_word(int device, const std::string& place, uint32_t value);

 private:
  void check_hart(int device) const;

  Door& door_;
  Health& health_;
  const Devices& devices_;
  const std::unique_ptr<Transport>& transport_;
};

}  // namespace tpu::driver
