// Host calls and the end of a process that is a Python interpreter.
#pragma once

namespace tpu::pjrt {

/// A call of Python by the board or the compiler. While one lives, a Python interpreter of this
/// process does not shut down. Throws Cancelled when it has begun to.
class HostCallUnderWay {
 public:
  HostCallUnderWay();
  ~HostCallUnderWay();
  HostCallUnderWay(const HostCallUnderWay&) = delete;
  HostCallUnderWay& operator=(const HostCallUnderWay&) = delete;
};

/// Before the first host call, on a thread that may take the interpreter's lock. Nothing in a
/// process without Python.
void end_host_calls_with_python();

}  // namespace tpu::pjrt
