// TensorFlow's profiler: what the board did between start and stop, as XSpace.
#include <algorithm>
#include <memory>
#include <string>

#include "abi/profiler.h"
#include "answer.hpp"
#include "errors.hpp"
#include "sync/mutex.hpp"
#include "system.hpp"

struct TpuProfiler {
  tpu::base::Mutex mutex;
  bool running TPU_GUARDED_BY(mutex) = false;
  std::string space TPU_GUARDED_BY(mutex);  // of the last run, until it is taken
};

namespace tpu::tensorflow {
namespace {

void start(TpuProfiler& profiler) {
  const base::MutexLock lock(profiler.mutex);
  if (profiler.running) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                        "the profiler runs already: stop it first");
  }
  System::get().runtime().begin_profile();
  profiler.running = true;
}

void stop(TpuProfiler& profiler) {
  const base::MutexLock lock(profiler.mutex);
  if (!profiler.running) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                        "the profiler does not run: start it first");
  }
  profiler.space = System::get().runtime().take_profile(false);
  profiler.running = false;  // when that throws, a stop can be tried again
}

// Without a buffer, the size that it must have.
void collect(TpuProfiler& profiler, uint8_t* buffer, size_t& size) {
  const base::MutexLock lock(profiler.mutex);
  if (buffer == nullptr) {
    size = profiler.space.size();
    return;
  }
  if (size < profiler.space.size()) {
    pjrt::throw_invalid("a buffer of " + std::to_string(size) +
                        " bytes for the profile: expected " +
                        std::to_string(profiler.space.size()));
  }
  std::ranges::copy(profiler.space, buffer);
  size = profiler.space.size();
  profiler.space.clear();
}

}  // namespace
}  // namespace tpu::tensorflow

using namespace tpu::tensorflow;  // NOLINT: the slots below are all of this file

extern "C" {

void TpuProfiler_Create(TpuProfiler** profiler, TF_Status* status) {
  *profiler = nullptr;
  answer(__func__, status, [&] { *profiler = new TpuProfiler; });
}

// The board does not go on profiling for it.
void TpuProfiler_Destroy(TpuProfiler* profiler) {
  const std::unique_ptr<TpuProfiler> last(profiler);
  if (last == nullptr) {
    return;
  }
  bool running = false;
  {
    const tpu::base::MutexLock lock(last->mutex);
    running = last->running;
  }
  if (running) {
    answer(__func__, nullptr, [&] { stop(*last); });
  }
}

void TpuProfiler_Start(TpuProfiler* profiler, TF_Status* status) {
  answer(__func__, status, [&] { start(*profiler); });
}

void TpuProfiler_Stop(TpuProfiler* profiler, TF_Status* status) {
  answer(__func__, status, [&] { stop(*profiler); });
}

void TpuProfiler_CollectData(TpuProfiler* profiler, TF_Status* status, uint8_t* buffer,
                             size_t* size) {
  answer(__func__, status, [&] { collect(*profiler, buffer, *size); });
}

}  // extern "C"
