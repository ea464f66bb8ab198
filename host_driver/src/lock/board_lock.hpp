// The board lock, as a role for clang's analysis of threads. The state of a board belongs to many
// classes, which know nothing of the mutex (src/turn/turn.hpp). Their functions name this role, and
// who enters a board has it.
#pragma once

#include "sync/thread_annotations.hpp"

namespace tpu::driver {

class TPU_CAPABILITY("board lock") BoardLock {
 public:
  /// For the analysis: the caller has the lock, by a call that it cannot see.
  void assert_held() const TPU_ASSERT_CAPABILITY(this) {}
};

inline constexpr BoardLock board_lock;

}  // namespace tpu::driver
