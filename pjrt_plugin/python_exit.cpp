// Python ends a thread that wants the interpreter's lock while it shuts down: in a callback that is
// in the middle of the caller's C++ frames, which abort the process. So the interpreter waits for
// the callback that is under way, and later ones are refused. That is done where `atexit` forgets
// its functions: behind all of them, also JAX's own, which waits for effects. The interpreter is
// looked up in the process, which need not have one.
#include "python_exit.hpp"

#include <unistd.h>

#include <atomic>

#include "python.hpp"
#include "sync/mutex.hpp"
#include "tpu/error.hpp"

namespace tpu::pjrt {
namespace {

struct HostCalls {
  const pid_t process = getpid();
  base::Mutex mutex;
  base::CondVar changed;
  int under_way TPU_GUARDED_BY(mutex) = 0;
  bool ended TPU_GUARDED_BY(mutex) = false;
};

HostCalls& host_calls() {
  static auto* const calls = new HostCalls;  // threads may outlive static objects
  return *calls;
}

using Object = PythonObject;

// The destructor of what `atexit` keeps.
void end_host_calls(Object*) {
  HostCalls& calls = host_calls();
  if (getpid() != calls.process) {
    return;  // a child made by fork()
  }
  void* const thread = python<void*()>("PyEval_SaveThread")();
  {
    const base::MutexLock lock(calls.mutex);
    calls.ended = true;
    while (calls.under_way != 0) {
      calls.changed.wait(calls.mutex);
    }
  }
  python<void(void*)>("PyEval_RestoreThread")(thread);
}

}  // namespace

HostCallUnderWay::HostCallUnderWay() {
  HostCalls& calls = host_calls();
  const base::MutexLock lock(calls.mutex);
  if (calls.ended) {
    throw driver::Error(driver::ErrorCode::kCancelled,
                        "the host call was cancelled: the Python process exits");
  }
  ++calls.under_way;
}

HostCallUnderWay::~HostCallUnderWay() {
  HostCalls& calls = host_calls();
  const base::MutexLock lock(calls.mutex);
  --calls.under_way;
  calls.changed.notify_all();
}

void end_host_calls_with_python() {
  static std::atomic<bool> begun{false};
  if (!has_python() || begun.exchange(true)) {
    return;
  }
  const PythonLock lock;
  Object* const atexit = python<Object*(const char*)>("PyImport_ImportModule")("atexit");
  Object* const kept = python<Object*(void*, const char*, void (*)(Object*))>("PyCapsule_New")(
      &host_calls(), "tpuboard.host_calls", end_host_calls);
  auto* const idle = static_cast<Object*>(dlsym(RTLD_DEFAULT, "PyBool_Type"));  // bool(kept)
  Object* const done = python<Object*(Object*, const char*, const char*, ...)>(
      "PyObject_CallMethod")(atexit, "register", "OO", idle, kept);
  if (done == nullptr) {
    python<void()>("PyErr_Clear")();
  }
  for (Object* const object : {done, kept, atexit}) {
    python<void(Object*)>("Py_DecRef")(object);
  }
}

}  // namespace tpu::pjrt
