// Ticks of the limit, and the heads of the devices at each.
#include "src/pump/launch_clock.hpp"

#include <algorithm>

namespace tpu::driver {
namespace {

constexpr uint64_t kTicks = 8;
// Longer limits are none: a century of nanoseconds still fits.
constexpr double kLongest = 3e9;

}  // namespace

LaunchClock::LaunchClock(double seconds, size_t devices) : seconds_(seconds), heads_(devices) {
  if (seconds > 0) {
    const double tick = std::min(seconds, kLongest) / kTicks;
    tick_ =
        std::max(Time(1), std::chrono::duration_cast<Time>(std::chrono::duration<double>(tick)));
  }
}

bool LaunchClock::spend(Time time) {
  if (tick_ == Time(0)) {
    return false;
  }
  spent_ += time;
  if (spent_ < tick_) {
    return false;
  }
  spent_ = Time(0);
  return true;
}

bool LaunchClock::look(size_t device, uint32_t launch_id, uint64_t steps, uint64_t unseen) {
  Head& head = heads_[device];
  if (launch_id == 0 || launch_id != head.launch_id || steps != head.steps) {
    head = {launch_id, steps, 0};
    return false;
  }
  if (++head.ticks < kTicks * unseen) {
    return false;
  }
  head.ticks = 0;
  return true;
}

}  // namespace tpu::driver
