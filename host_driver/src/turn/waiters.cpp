// The count of threads that wait, and what was left to them.
#include "src/turn/waiters.hpp"

namespace tpu::driver {

bool Waiters::leave_to_them() {
  if (count_.load() == 0) {
    return false;
  }
  left_to_them_ = true;
  return count_.load() > 0;  // else the last one has left before it could see that
}

// To wake the completion thread for nothing would cost a short launch a tenth of its time.
void Waiters::leave() {
  if (--count_ == 0 && left_to_them_.exchange(false)) {
    go_on_();
  }
}

}  // namespace tpu::driver
