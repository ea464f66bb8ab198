// What one process asks of the profile: calls that wait for the board, on threads of their own, as
// what the board waits for may come in further calls of the process.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "processes/shared_profile.hpp"
#include "processes/wire/frame.hpp"
#include "sync/mutex.hpp"

namespace tpu::pjrt {

/// The calls come from one thread.
class ProfileCalls {
 public:
  ProfileCalls() = default;
  ProfileCalls(const ProfileCalls&) = delete;
  ProfileCalls& operator=(const ProfileCalls&) = delete;
  ~ProfileCalls() { wait(); }

  using Tell = std::function<void(wire::AnswerT answer)>;
  /// Tell the answer later; profile and runtime last as long as this.
  void begin(SharedProfile& profile, const Runtime& runtime, const Tell& tell);
  void take(SharedProfile& profile, const Runtime& runtime, const wire::EndProfileT& call,
            const Tell& tell);
  /// The process has ended.
  void end(SharedProfile& profile, const Runtime& runtime);

 private:
  void in_thread(std::function<wire::AnswerT()> work, const Tell& tell);
  wire::AnswerT part(uint64_t first);
  void join_those_over();
  void wait();

  struct Call {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> over;
  };
  std::vector<Call> threads_;
  base::Mutex mutex_;
  std::string taken_ TPU_GUARDED_BY(mutex_);  // the last one, which is told in parts
};

}  // namespace tpu::pjrt
