// What the op ids of events mean: the executables of the launches that are under way, as the host
// names them before it starts one. The board itself never sees them: its cores have the code alone.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace tpu::exe {
struct ExecutableT;
}

namespace tpu::model {

// Any thread.
class LaunchPrograms {
 public:
  // Null: the launch is over. `trace_context`: RunOptions::trace_context.
  void name(uint32_t launch, std::shared_ptr<const exe::ExecutableT> program,
            uint64_t trace_context = 0) {
    const std::lock_guard lock(mutex_);
    if (program == nullptr) {
      launches_.erase(launch);
    } else {
      launches_[launch] = {std::move(program), trace_context};
    }
  }

  // Null when nobody has named it.
  std::shared_ptr<const exe::ExecutableT> of(uint32_t launch) const {
    const std::lock_guard lock(mutex_);
    const auto found = launches_.find(launch);
    return found == launches_.end() ? nullptr : found->second.program;
  }

  // 0: the caller has named none.
  uint64_t trace_context_of(uint32_t launch) const {
    const std::lock_guard lock(mutex_);
    const auto found = launches_.find(launch);
    return found == launches_.end() ? 0 : found->second.trace_context;
  }

 private:
  struct Launch {
    std::shared_ptr<const exe::ExecutableT> program;
    uint64_t trace_context = 0;
  };

  mutable std::mutex mutex_;
  std::unordered_map<uint32_t, Launch> launches_;
};

}  // namespace tpu::model
