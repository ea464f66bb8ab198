#include "processes/profile_calls.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "processes/wire/failure.hpp"

namespace tpu::pjrt {

void ProfileCalls::in_thread(std::function<wire::AnswerT()> work, const Tell& tell) {
  join_those_over();
  auto over = std::make_shared<std::atomic<bool>>(false);
  threads_.push_back({std::thread([work = std::move(work), tell, over] {
                        wire::AnswerT made;
                        try {
                          made = work();
                        } catch (...) {
                          made.failure = failure_of_exception();
                        }
                        tell(std::move(made));
                        *over = true;
                      }),
                      over});
}

// A thread that has ended keeps its stack until then.
void ProfileCalls::join_those_over() {
  std::erase_if(threads_, [](Call& each) {
    if (*each.over) {
      each.thread.join();
      return true;
    }
    return false;
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
  if (call.first > 0) {
    return tell(part(call.first));  // is here already
  }
  in_thread(
      [this, &profile, &runtime, goes_on = call.goes_on] {
        std::string taken = profile.take(this, runtime, goes_on);
        {
          const base::MutexLock lock(mutex_);
          taken_ = std::move(taken);
        }
        return part(0);
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
  for (Call& each : threads_) {
    each.thread.join();
  }
  threads_.clear();
}

}  // namespace tpu::pjrt
