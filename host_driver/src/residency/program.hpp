// LoadedProgram: an executable and the cores that it runs on; Residence: its image, constants,
// scratch memory and program ids there. A program is without one while others need the room.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exe/executable.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/buffer_state.hpp"
#include "src/operations/operation.hpp"
#include "sync/mutex.hpp"
#include "tpu/executable.hpp"

namespace tpu::driver {

class ProgramIds;

/// What stays readable when the program is gone.
struct ProgramInfo {
  std::string name;
  std::vector<int> devices;  ///< by partition
  std::vector<ParameterInfo> arguments;
  std::vector<ParameterInfo> results;
  ProgramCost cost;
  std::vector<HostCallInfo> host_calls;
};

/// What a program has on its cores, for as long as somebody holds it: the program until it is the
/// one to make room, and each launch until it is over.
struct Residence {
  ~Residence();

  /// What one core holds.
  struct Part {
    int device = 0;
    uint16_t id = 0;
    bool has_id = false;                                           ///< given back by retire()
    bool sent = false;                                             ///< the core may know the id
    std::shared_ptr<bool> loaded = std::make_shared<bool>(false);  ///< its LOAD has been OK
    std::shared_ptr<EventState> ready;                             ///< code and constants are there
    std::shared_ptr<Allocation> code;
    std::vector<std::shared_ptr<Allocation>> slots;  ///< constants and scratch by slot, else null
  };

  std::weak_ptr<ProgramIds> ids;  ///< which get those of the parts back
  std::vector<Part> parts;        ///< by partition
};

struct LoadedProgram {
  LoadedProgram(std::shared_ptr<const exe::ExecutableT> from, std::vector<int> on,
                std::string of_file = {});

  const std::shared_ptr<const exe::ExecutableT> owner;
  const std::string file;       ///< that `tpuboard run` takes; empty: not known
  const exe::ExecutableT& exe;  ///< what `owner` holds
  const uint32_t image_crc;
  const std::shared_ptr<const ProgramInfo> info;
  std::vector<OwnedRuns> argument_owned, result_owned;  ///< null: every core holds all of it
  std::shared_ptr<Residence> residence TPU_GUARDED_BY(board_lock);
  uint64_t last_use TPU_GUARDED_BY(board_lock) = 0;
  bool has_ended TPU_GUARDED_BY(board_lock) = false;  ///< a launch of it has gone well
};

/// The program behind a handle.
struct ExecutableState {
  ExecutableState(std::shared_ptr<BoardImpl> on, std::shared_ptr<LoadedProgram> loaded)
      : board(std::move(on)), info(loaded->info), program_(std::move(loaded)) {}

  const std::shared_ptr<BoardImpl> board;
  const std::shared_ptr<const ProgramInfo> info;

  /// Throws FailedPrecondition after unload().
  std::shared_ptr<LoadedProgram> program() const;
  void unload();

 private:
  mutable base::Mutex mutex_;  // leaf lock
  std::shared_ptr<LoadedProgram> program_ TPU_GUARDED_BY(mutex_);
};

}  // namespace tpu::driver
