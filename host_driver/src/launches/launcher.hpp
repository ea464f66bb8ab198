// Launcher: launches of programs: checks of the arguments, memory of the slots, one command for
// each core of the gang. Guarded by the board lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gang/core_set.hpp"
#include "src/feeds/feeds.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/board_handles.hpp"
#include "src/operations/send_order.hpp"
#include "src/residency/loader.hpp"
#include "src/transfers/transfers.hpp"

namespace tpu::driver {

class Launcher {
 public:
  /// Tells the transport what the launch of that id runs; null: it is over. `context`: that of the
  /// host's trace (RunOptions).
  using Name =
      std::function<void(uint32_t launch_id, const std::shared_ptr<const exe::ExecutableT>& program,
                         uint64_t context)>;
  Launcher(Operations& operations, SendOrder& order, BoardMemory& memory, Transfers& transfers,
           Feeds& feeds, Loader& loader, const BoardHandles& handles, Health& health, Name name)
      : operations_(operations),
        order_(order),
        memory_(memory),
        transfers_(transfers),
        feeds_(feeds),
        loader_(loader),
        handles_(handles),
        health_(health),
        name_(std::move(name)) {}

  /// Everything that can be wrong with a launch before anything is sent.
  void check(const LoadedProgram& program, const std::vector<Array>& arguments,
             const RunOptions& options) const TPU_REQUIRES(board_lock);
  /// Waits for room.
  RunResult launch(const std::shared_ptr<LoadedProgram>& program,
                   const std::vector<Array>& arguments, const RunOptions& options)
      TPU_REQUIRES(board_lock);

  /// A launch that is sent, or sent again: the board remembers aborted gangs by their launch id.
  void give_id(Operation& launch) TPU_REQUIRES(board_lock);
  /// The id is nobody's.
  void forget_id(const Operation& launch) const TPU_REQUIRES(board_lock);
  /// For tests of the wrap: the next launch has the id behind this one.
  void set_last_id(uint32_t launch_id) TPU_REQUIRES(board_lock) { last_id_ = launch_id; }

  void visit_state(spec::Archive& archive) { archive(last_id_); }

 private:
  std::vector<Array> prepare_arguments(const LoadedProgram& program, std::vector<Array> arguments,
                                       const std::vector<size_t>& kept) TPU_REQUIRES(board_lock);
  bool lies_as_wanted(const Array& array, const OwnedRuns& wants) const TPU_REQUIRES(board_lock);
  std::vector<std::shared_ptr<Allocation>> bind_slots(const Operation& op, size_t p,
                                                      const std::vector<Array>& arguments,
                                                      const std::vector<std::string>& labels,
                                                      std::vector<std::vector<Buffer>>& outputs)
      TPU_REQUIRES(board_lock);
  struct Gang {
    uint32_t core_mask = 0;       // of LAUNCH
    std::vector<std::byte> rows;  // of its table
  };
  static Gang gang_of(const Residence& residence);
  std::shared_ptr<Command> launch_command(const Operation& op, size_t p, const Gang& gang,
                                          const std::vector<std::shared_ptr<Allocation>>& slots)
      TPU_REQUIRES(board_lock);
  void submit(const std::shared_ptr<Operation>& op,
              const std::vector<std::shared_ptr<BufferState>>& donated) TPU_REQUIRES(board_lock);

  Operations& operations_;
  SendOrder& order_;
  BoardMemory& memory_;
  Transfers& transfers_;
  Feeds& feeds_;
  Loader& loader_;
  const BoardHandles& handles_;
  Health& health_;
  const Name name_;
  uint32_t last_id_ = 0;  // wraps; 0 is no launch id
};

}  // namespace tpu::driver
