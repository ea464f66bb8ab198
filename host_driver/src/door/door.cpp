// Who leaves last looks at what is left to do.
#include "src/door/door.hpp"

namespace tpu::driver {

Door::Entry::Entry(Door& door, EntryKind kind, Deadline deadline) : door_(door), kind_(kind) {
  door.forks_.check();
  entered_ = door.turn_.enter(kind, deadline);
}

Door::Entry::~Entry() {
  if (entered_) {
    door_.leave(kind_);
  }
}

// Nothing of the board is used once the lock is left: that may be the end of it.
void Door::leave(EntryKind kind) {
  const Outbox::Contents out =
      kind == EntryKind::kLook ? outbox_.take_all_but_callbacks() : outbox_.take();
  const bool busy = operations_.busy();
  const auto thread = kind != EntryKind::kWait && busy ? thread_ : nullptr;
  if (kind == EntryKind::kWait && !busy && !order_.any() && !operations_.being_sent()) {
    waiters_.done();
  }
  turn_.leave();
  if (thread) {
    thread->call_is_over();
  }
  out.deliver();
}

}  // namespace tpu::driver
