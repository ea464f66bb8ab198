// A thread that waits for a sign of another one looks for it before it sleeps: to wake up takes
// longer than many answers do.
#pragma once

#include <chrono>
#include <thread>

#include "sync/pause.hpp"

namespace tpu::base {

/// Of one side of a conversation.
class Patience {
 public:
  /// Comes back when `sign` returns true, or when looking for it has taken long enough: the caller
  /// sleeps then. `looks`: so many follow each other between two looks at the clock.
  template <class Sign>
  void look_for(const Sign& sign, int looks = kLooks) {
    begin_ = Clock::now();
    for (auto spent = Clock::duration(0); spent < (short_ ? kShort : kWakeUp);
         spent = Clock::now() - begin_) {
      for (int look = 0; look < looks; ++look) {
        if (sign()) {
          return;
        }
        pause_processor();
      }
      if (spent > kWakeUp) {
        std::this_thread::yield();  // others who want this processor have it
      }
    }
  }
  /// The sign is there, perhaps long after look_for().
  void came() { short_ = Clock::now() - begin_ < kShort; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kLooks = 32;
  /// A sleeping thread takes about as long to wake up.
  static constexpr std::chrono::microseconds kWakeUp{20};
  /// While signs come in less, they are looked for that long: launches of small programs.
  static constexpr std::chrono::microseconds kShort{500};

  bool short_ = false;  // the last sign came soon
  Clock::time_point begin_;
};

}  // namespace tpu::base
