#include "processes/job_tasks.hpp"

#include <fmt/format.h>

#include <string_view>

#include "errors.hpp"
#include "tpu/error.hpp"

namespace tpu::pjrt {
namespace {

void check_info(const PJRT_ProcessInfo& info, int processes) {
  if (info.task_id < 0 || (processes > 1 && info.task_id >= processes)) {
    throw_invalid(
        fmt::format("task {} of the job: expected one of the {} processes that share the "
                    "board, from 0 to {}",
                    info.task_id, processes, processes - 1));
  }
  if (info.state < PJRT_ProcessState_kUnspecified || info.state > PJRT_ProcessState_kError) {
    throw_invalid(fmt::format("task {} of the job: {} is not a state of a process", info.task_id,
                              static_cast<int>(info.state)));
  }
}

}  // namespace

void JobTasks::update(std::span<const PJRT_ProcessInfo> infos, int processes) {
  for (const PJRT_ProcessInfo& info : infos) {
    check_info(info, processes);
  }
  const base::MutexLock lock(mutex_);
  for (const PJRT_ProcessInfo& info : infos) {
    if (info.state != PJRT_ProcessState_kError) {
      errors_.erase(info.task_id);  // another one may have taken the place of a task that failed
      continue;
    }
    const std::string_view message =
        info.error_message == nullptr
            ? std::string_view()
            : std::string_view(info.error_message, info.error_message_size);
    errors_[info.task_id] = fmt::format(
        "task {} of the job (incarnation {}) is in an error state, as the framework "
        "reports: {} (code {})",
        info.task_id, info.incarnation_id, message.empty() ? "without a text" : message,
        info.error_code);
  }
}

void JobTasks::check(int process) const {
  const base::MutexLock lock(mutex_);
  const auto found = errors_.find(process);
  if (found != errors_.end()) {
    throw driver::Error(driver::ErrorCode::kUnavailable, found->second);
  }
}

}  // namespace tpu::pjrt
