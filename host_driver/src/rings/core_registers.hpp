// CoreRegisters: the pages of registers that the cores of a board have behind BAR 0. Doorbells are
// posted writes that reach the board at its present time: they are kept and handed over together
// before anything else is asked of it, since each way to the board and back may cost the host more
// than all else in a call. Guarded by the board lock.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

#include "src/lock/board_lock.hpp"
#include "src/rings/command_ring.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {

/// Where a core is.
struct CorePlace {
  int id = 0;    ///< TPU:id
  int chip = 0;  ///< whose endpoint
  int core = 0;  ///< of the chip
};

class CoreRegisters {
 public:
  /// `failed` is told when doorbells do not reach the board.
  explicit CoreRegisters(std::function<void(const std::exception&)> failed)
      : failed_(std::move(failed)) {}

  /// Null: there is no board any more, and nothing is asked of it.
  void connect(Transport* transport) TPU_REQUIRES(board_lock) { transport_ = transport; }

  uint32_t read(const CorePlace& core, uint64_t offset) TPU_REQUIRES(board_lock);
  uint32_t read_chip(int chip, uint64_t offset) TPU_REQUIRES(board_lock);
  void write(const CorePlace& core, uint64_t offset, uint32_t value) TPU_REQUIRES(board_lock);

  /// Room for that many doorbells, which ring() cannot fail for then.
  void make_room(size_t doorbells) TPU_REQUIRES(board_lock);
  /// The doorbell of a core for what is new on its ring.
  void ring(const CorePlace& core, CommandRing& commands) TPU_REQUIRES(board_lock);
  /// Hands the doorbells over.
  void send() TPU_REQUIRES(board_lock);

 private:
  const std::function<void(const std::exception&)> failed_;
  Transport* transport_ = nullptr;
  std::vector<RegisterWrite> doorbells_;  // rung, and not on the board yet
};

}  // namespace tpu::driver
