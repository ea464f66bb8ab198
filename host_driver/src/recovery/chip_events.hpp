// ChipEvents: what a chip tells by the interrupt of its own, beside harts that died: HBM that ECC
// cannot correct, whose pages are retired; and whether a chip is still there. Guarded by the board
// lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "src/events/outbox.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/devices.hpp"
#include "tpu/spec/board_params.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {

class ChipEvents {
 public:
  /// `transport`: null when the board is closed.
  ChipEvents(const spec::BoardParams& params, const std::unique_ptr<Transport>& transport,
             Devices& devices, Outbox& outbox)
      : params_(params), transport_(transport), devices_(devices), outbox_(outbox) {}

  /// Of each chip, the vectors that came.
  void take(std::span<const uint32_t> msi) TPU_REQUIRES(board_lock);
  /// Why the board is lost, if one of the chips that something is open on has left the bus.
  ErrorPtr lost_chip() TPU_REQUIRES(board_lock);

 private:
  uint32_t read(int chip, uint64_t offset) TPU_REQUIRES(board_lock) {
    return transport_->read32(chip, 0, offset);
  }
  void read_log(int chip) TPU_REQUIRES(board_lock);
  void retire(int chip, uint32_t low, uint32_t high) TPU_REQUIRES(board_lock);

  const spec::BoardParams& params_;
  const std::unique_ptr<Transport>& transport_;
  Devices& devices_;
  Outbox& outbox_;
  std::map<int, uint32_t> logged_;  // by chip: entries of its ECC log that were read
};

}  // namespace tpu::driver
