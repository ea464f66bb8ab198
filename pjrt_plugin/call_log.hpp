// CallLog: a line for each call of the interface, where TPUBOARD_LOG asks for it.
#pragma once

#include <chrono>
#include <string>

#include "pjrt_abi.h"

namespace tpu::pjrt {

class CallLog {
 public:
  /// One call, from here to end().
  class Line {
   public:
    explicit Line(const char* name);
    void end(const PJRT_Error* error) const noexcept;

   private:
    const char* name_;
    std::chrono::steady_clock::time_point begin_;
  };

  /// "stderr", a file to write, or empty: none. Throws driver::Error when it cannot be opened.
  static void open(const std::string& to);
  /// A line of its own, about the last call of this thread.
  static void note(const std::string& text) noexcept;
};

}  // namespace tpu::pjrt
