#include "processes/profile_calls.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "processes/wire/failure.hpp"

namespace tpu::pjrt {

void ProfileCalls::in_thread(std::function<wire::AnswerT()> work, const Tell& tell) {
  threads_.emplace_back([work = std::move(work), tell] {
    wire::AnswerT made;
    try {
      made = work();
    } catch (...) {
      made.failure = failure_of_exception();
    }
    tell(std::move(made));
  });
}

void ProfileCalls::begin(SharedProfile& profile, const Runtime& runtime, const Tell& tell) {
  in_thread(
      [this, &profile, &runtime] {
        profile.begin(this, runtime);
        return wire::AnswerT();
      },
      tell);
}

void ProfileCalls::take(SharedProfile& profile, const Runtime& runtime,
                        const wire::EndProfileT& call, const Tell& tell) {
  in_thread(
      [this, &profile, &runtime, first = call.first, goes_on = call.goes_on] {
        if (first == 0) {
          std::string taken = profile.take(this, runtime, goes_on);
          const base::MutexLock lock(mutex_);
          taken_ = std::move(taken);
        }
        return part(first);
      },
      tell);
}

wire::AnswerT ProfileCalls::part(uint64_t first) {
  constexpr size_t kMost = kMostFrameBytes / 2;
  const base::MutexLock lock(mutex_);
  const std::string_view bytes =
      std::string_view(taken_).substr(std::min<size_t>(first, taken_.size()), kMost);
  wire::AnswerT made;
  made.number = taken_.size();
  made.bytes.assign(bytes.begin(), bytes.end());
  return made;
}

void ProfileCalls::end(SharedProfile& profile, const Runtime& runtime) {
  wait();
  profile.drop(this, runtime);
}

void ProfileCalls::wait() {
  for (std::thread& each : threads_) {
    each.join();
  }
  threads_.clear();
}

}  // namespace tpu::pjrt
