// The Python interpreter of this process, if it has one: its C functions by name. The library does
// not link Python.
#pragma once

#include <dlfcn.h>

namespace tpu::pjrt {

using PythonObject = struct PyObject;  // nothing of it is known here

/// Null where the process has no such function.
template <typename Function>
Function* python(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

inline bool has_python() {
  auto* const is_initialized = python<int()>("Py_IsInitialized");
  return is_initialized != nullptr && is_initialized() != 0;
}

/// The interpreter's lock, also where the thread has it already.
class PythonLock {
 public:
  PythonLock() : state_(python<int()>("PyGILState_Ensure")()) {}
  ~PythonLock() { python<void(int)>("PyGILState_Release")(state_); }
  PythonLock(const PythonLock&) = delete;
  PythonLock& operator=(const PythonLock&) = delete;

 private:
  const int state_;
};

}  // namespace tpu::pjrt
