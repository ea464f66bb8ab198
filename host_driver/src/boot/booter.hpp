// Booter: brings control harts up: checks the chips, loads the firmware, sets up the rings. All
// cores boot at once; a hart that died is started again the same way. Guarded by the board lock.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/events/outbox.hpp"
#include "src/harts/harts.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/devices.hpp"
#include "src/rings/core_registers.hpp"
#include "src/texts/firmware.hpp"

namespace tpu::driver {

class Booter {
 public:
  /// `transport`: null when the board is closed.
  Booter(const std::unique_ptr<Transport>& transport, Devices& devices, CoreRegisters& registers,
         Harts& harts, Outbox& outbox)
      : transport_(transport),
        devices_(devices),
        registers_(registers),
        harts_(harts),
        outbox_(outbox) {}

  /// What is loaded. Its build is checked when it is known to Harts.
  void set_firmware(std::vector<std::byte> bytes, uint32_t entry) TPU_REQUIRES(board_lock);
  const std::vector<std::byte>& firmware() const TPU_REQUIRES(board_lock) { return firmware_; }

  /// Throws Unavailable for a chip that does not answer, FailedPrecondition for one of another
  /// register map or board.
  void check_chips(int chips, uint64_t board_hash) TPU_REQUIRES(board_lock);
  void boot_all() TPU_REQUIRES(board_lock);
  /// These cores only. Throws Internal, or FailedPrecondition for firmware of other ring formats.
  void boot(const std::vector<int>& ids) TPU_REQUIRES(board_lock) { boot(ids, false); }

 private:
  void boot(const std::vector<int>& ids, bool retried) TPU_REQUIRES(board_lock);
  void load_firmware(const std::vector<int>& ids) TPU_REQUIRES(board_lock);
  std::vector<int> await_state(const std::vector<int>& ids, uint32_t wanted)
      TPU_REQUIRES(board_lock);
  void set_up_rings(Device& device) TPU_REQUIRES(board_lock);
  void check_versions(const Device& device) TPU_REQUIRES(board_lock);

  const std::unique_ptr<Transport>& transport_;
  Devices& devices_;
  CoreRegisters& registers_;
  Harts& harts_;
  Outbox& outbox_;
  std::vector<std::byte> firmware_;
  uint32_t entry_ = 0;
};

}  // namespace tpu::driver
