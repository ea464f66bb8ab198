#include "socket/parent_only.hpp"

#include <pthread.h>
#include <unistd.h>

#include <set>

#include "sync/mutex.hpp"

namespace tpu::base {
namespace {

struct Descriptors {
  Mutex mutex;  // a leaf lock, held during fork()
  std::multiset<int> all TPU_GUARDED_BY(mutex);
  // Those of a parent, which are closed here: their numbers may name other files now.
  bool inherited TPU_GUARDED_BY(mutex) = false;
};

// Never destroyed: processes fork while they exit.
Descriptors* descriptors = nullptr;

void before_fork() TPU_NO_THREAD_SAFETY_ANALYSIS { descriptors->mutex.lock(); }

void in_parent() TPU_NO_THREAD_SAFETY_ANALYSIS { descriptors->mutex.unlock(); }

// Frees nothing: another thread may have had the allocator's lock.
void in_child() TPU_NO_THREAD_SAFETY_ANALYSIS {
  if (!descriptors->inherited) {
    for (const int descriptor : descriptors->all) {
      ::close(descriptor);
    }
    descriptors->inherited = true;
  }
  descriptors->mutex.unlock();
}

Descriptors& known() {
  static Descriptors& made = []() -> Descriptors& {
    descriptors = new Descriptors;
    ::pthread_atfork(before_fork, in_parent, in_child);
    return *descriptors;
  }();
  return made;
}

}  // namespace

ParentOnly::ParentOnly(int descriptor) : descriptor_(descriptor) {
  Descriptors& of_process = known();
  const MutexLock lock(of_process.mutex);
  if (of_process.inherited) {
    of_process.all.clear();
    of_process.inherited = false;
  }
  of_process.all.insert(descriptor);
}

ParentOnly::~ParentOnly() {
  if (descriptor_ < 0) {
    return;
  }
  Descriptors& of_process = known();
  const MutexLock lock(of_process.mutex);
  if (const auto found = of_process.all.find(descriptor_); found != of_process.all.end()) {
    of_process.all.erase(found);
  }
}

}  // namespace tpu::base
