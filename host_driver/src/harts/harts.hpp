// Harts: what the control harts of the cores say of themselves: fault records, traps with their
// place in the firmware, where they are. Guarded by the board lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "src/events/outbox.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/devices.hpp"
#include "src/rings/core_registers.hpp"
#include "src/texts/firmware.hpp"

namespace tpu::driver {

class Harts {
 public:
  /// `transport`: null when the board is closed.
  Harts(const std::unique_ptr<Transport>& transport, CoreRegisters& registers, Outbox& outbox)
      : transport_(transport), registers_(registers), outbox_(outbox) {}

  /// The firmware that was loaded. `build`: 0 when it is not known.
  void set_firmware(std::shared_ptr<const firmware::Image> names, uint32_t build)
      TPU_REQUIRES(board_lock);
  const firmware::Image& names() const TPU_REQUIRES(board_lock) { return *names_; }
  uint32_t build() const TPU_REQUIRES(board_lock) { return build_; }

  /// In state DEAD, which only a reset ends.
  bool dead(const Device& device) TPU_REQUIRES(board_lock);
  tpu_fault_record_t read_fault(const Device& device) TPU_REQUIRES(board_lock);
  /// From the debug port, lines that begin with a line feed: what the core says of its fault of
  /// that cycle, and where its control hart is.
  std::string core_text(const Device& device, uint64_t fault_cycle = UINT64_MAX)
      TPU_REQUIRES(board_lock);
  /// Function and line where a hart trapped; empty when the firmware has no names.
  std::string trap_place(const Device& device, const tpu_fault_record_t& record)
      TPU_REQUIRES(board_lock);
  /// Of a core in state DEAD; empty when it left no record of a trap.
  std::string describe_trap(const Device& device) TPU_REQUIRES(board_lock);
  /// Tells of harts that died, once for each death: also of those that nobody waits for.
  void note_deaths(Devices& devices) TPU_REQUIRES(board_lock);

 private:
  const std::unique_ptr<Transport>& transport_;
  CoreRegisters& registers_;
  Outbox& outbox_;
  std::shared_ptr<const firmware::Image> names_;
  uint32_t build_ = 0;
};

}  // namespace tpu::driver
