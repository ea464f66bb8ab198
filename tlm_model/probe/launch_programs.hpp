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
  // Null: the launch is over.
  void name(uint32_t launch, std::shared_ptr<const exe::ExecutableT> program) {
    const std::lock_guard lock(mutex_);
    if (program == nullptr) {
      programs_.erase(launch);
    } else {
      programs_[launch] = std::move(program);
    }
  }

  // Null when nobody has named it.
  std::shared_ptr<const exe::ExecutableT> of(uint32_t launch) const {
    const std::lock_guard lock(mutex_);
    const auto found = programs_.find(launch);
    return found == programs_.end() ? nullptr : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint32_t, std::shared_ptr<const exe::ExecutableT>> programs_;
};

}  // namespace tpu::model
