// ForkCheck: whether this process was forked from the one that made the object. Threads and locks
// of a board stay in the process that opened it. Needs no lock: its state never changes.
#pragma once

#include <cstdint>

namespace tpu::driver {

class ForkCheck {
 public:
  ForkCheck();
  bool in_child() const;
  /// Throws FailedPrecondition in a child.
  void check() const;

 private:
  const uint32_t forks_;  // so far
};

}  // namespace tpu::driver
