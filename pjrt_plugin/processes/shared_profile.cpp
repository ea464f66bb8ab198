// XSpaces behind each other are one XSpace, with the planes of all: so are protocol buffers.
#include "processes/shared_profile.hpp"

#include <utility>

namespace tpu::pjrt {

void SharedProfile::keep_for_all(const std::string& part) {
  for (auto& [who, taken] : taken_) {
    taken += part;
  }
}

void SharedProfile::begin(const void* who, const Runtime& runtime) {
  const base::MutexLock lock(mutex_);
  if (taken_.empty()) {
    runtime.begin_profile();
  } else {
    keep_for_all(runtime.take_profile(true));
  }
  taken_[who].clear();
}

std::string SharedProfile::take(const void* who, const Runtime& runtime, bool goes_on) {
  const base::MutexLock lock(mutex_);
  if (!taken_.contains(who)) {
    return {};
  }
  keep_for_all(runtime.take_profile(goes_on || taken_.size() > 1));
  std::string own = std::exchange(taken_[who], {});
  if (!goes_on) {
    taken_.erase(who);
  }
  return own;
}

void SharedProfile::drop(const void* who, const Runtime& runtime) {
  try {
    static_cast<void>(take(who, runtime, false));
  } catch (const driver::Error&) {
    const base::MutexLock lock(mutex_);
    taken_.erase(who);  // the board goes on with the profile, which the next who begins gets
  }
}

}  // namespace tpu::pjrt
