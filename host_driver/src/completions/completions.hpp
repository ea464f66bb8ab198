// Completions: reads what the cores report and hands it on to operations and host calls. A record
// that is not what the firmware wrote, or not what it may say, must not end or fail any command: it
// breaks the board. Guarded by the board lock.
#pragma once

#include <functional>
#include <string>

#include "src/health/health.hpp"
#include "src/host_calls/host_call_server.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/operations.hpp"

namespace tpu::driver {

class Completions {
 public:
  Completions(Devices& devices, CoreRegisters& registers, Operations& operations,
              HostCallServer& calls, const Health& health,
              std::function<void(const ErrorPtr&)> break_board)
      : devices_(devices),
        registers_(registers),
        operations_(operations),
        calls_(calls),
        health_(health),
        break_board_(std::move(break_board)) {}

  /// Takes all that is there. True: something was.
  bool drain() TPU_REQUIRES(board_lock);
  /// At an interrupt, while the board's thread has everything and this one waits for operations to
  /// end: ends of parts are noted there, so that a gang costs one way to this thread and back and
  /// not one a core. True: nothing else has come.
  bool note_parts() TPU_REQUIRES(board_lock);
  /// Whether note_parts() has noted any since the last call.
  bool take_noted() TPU_REQUIRES(board_lock) { return std::exchange(parts_noted_, false); }
  /// The devices count their completions, so that a record whose phase is wrong shows as well.
  /// True: the ring was read or the board is broken, so there is something to go on with.
  bool find_missing() TPU_REQUIRES(board_lock);

 private:
  bool drain_device(Device& device) TPU_REQUIRES(board_lock);
  bool part_of_gang(const Device& device, const tpu_completion_t& completion) const
      TPU_REQUIRES(board_lock);
  const Command* command_of(const Device& device, const tpu_completion_t& completion,
                            std::string& wrong) const TPU_REQUIRES(board_lock);
  void corrupt(const Device& device, const std::string& trouble) TPU_REQUIRES(board_lock);
  void complete(Device& device, const tpu_completion_t& completion) TPU_REQUIRES(board_lock);

  Devices& devices_;
  CoreRegisters& registers_;
  Operations& operations_;
  HostCallServer& calls_;
  const Health& health_;
  const std::function<void(const ErrorPtr&)> break_board_;
  bool parts_noted_ = false;
};

}  // namespace tpu::driver
