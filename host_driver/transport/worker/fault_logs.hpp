// Fault logs of processes that have the boards of a pod become one log, in the order that a pod in
// one process has (tlm_model/faults/fault_log.hpp).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "file/file_lock.hpp"

namespace tpu::driver::worker {

/// The log of a pod, which belongs to this run from the begin on, and those of its processes.
class FaultLogs {
 public:
  FaultLogs() = default;  // none
  /// `parts`: by rank, in the order of their boards. Throws tpu::Error (kInvalidArgument) when
  /// `path` is not a regular file, cannot be written, or another run writes it.
  FaultLogs(const std::string& path, std::vector<std::string> parts);
  /// Of a pod that was lost.
  ~FaultLogs() { static_cast<void>(merge()); }
  FaultLogs(const FaultLogs&) = delete;
  FaultLogs& operator=(const FaultLogs&) = delete;

  /// The process has its boards: its part is of this run. Different ranks at once.
  void attached(size_t rank) {
    if (rank < attached_.size()) {
      attached_[rank] = 1;
    }
  }
  /// When the processes write no more: writes the log and removes its parts. Empty, or what went
  /// wrong, such as a part that is missing.
  std::string merge();

 private:
  void write(const std::vector<std::string>& parts);

  std::string path_;
  std::vector<std::string> parts_;
  std::vector<char> attached_;  // by rank
  std::optional<model::FileLock> lock_;
};

}  // namespace tpu::driver::worker
