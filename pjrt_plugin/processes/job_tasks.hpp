// What the framework says of the processes of its job (PJRT_Client_UpdateGlobalProcessInfo). Which
// of them share the board, and which of those have ended, the server of the board knows by itself;
// only the framework knows that a process is there and cannot continue.
#pragma once

#include <map>
#include <span>
#include <string>

#include "pjrt_abi.h"
#include "sync/mutex.hpp"

namespace tpu::pjrt {

class JobTasks {
 public:
  /// News of some of the tasks; what was known of others stays. `processes` that share the board.
  /// Throws driver::Error (InvalidArgument), and has changed nothing then: for a state that does
  /// not exist, and for a task that is not one of several processes.
  void update(std::span<const PJRT_ProcessInfo> infos, int processes);
  /// Throws driver::Error (Unavailable) for a process that is in an error state.
  void check(int process) const;

 private:
  mutable base::Mutex mutex_;
  std::map<int, std::string> errors_ TPU_GUARDED_BY(mutex_);  // by task
};

}  // namespace tpu::pjrt
