// The profile of the board for several processes: it runs while one of them wants it, and each has
// the steps between its own begin and end, those of all processes.
#pragma once

#include <map>
#include <string>

#include "runtime/runtime.hpp"
#include "sync/mutex.hpp"

namespace tpu::pjrt {

class SharedProfile {
 public:
  /// These wait for the board, as the runtime's do, and for each other. `who`: any address.
  void begin(const void* who, const Runtime& runtime);
  /// XSpace. Where others have begun or ended meanwhile, it has the planes of a core once for each
  /// stretch in which steps ran.
  std::string take(const void* who, const Runtime& runtime, bool goes_on);
  /// As the end of the profile, for one who may have begun and does not want it any more.
  void drop(const void* who, const Runtime& runtime);

 private:
  void keep_for_all(const std::string& part) TPU_REQUIRES(mutex_);

  base::Mutex mutex_;
  std::map<const void*, std::string> taken_ TPU_GUARDED_BY(mutex_);  // by who has begun
};

}  // namespace tpu::pjrt
