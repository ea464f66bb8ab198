// Fault logs of processes that have the boards of a pod become one log, in the order that a pod in
// one process has (tlm_model/faults/fault_log.hpp).
#pragma once

#include <string>
#include <vector>

namespace tpu::driver::worker {

/// Writes the logs, which come in the order of their boards, as the file `path`, and removes them.
/// Those that are missing are left out. Empty, or what went wrong.
std::string merge_fault_logs(const std::vector<std::string>& parts, const std::string& path);

}  // namespace tpu::driver::worker
