// Looks at a Python interpreter by a program that it runs.
#pragma once

#include <chrono>
#include <string>

namespace tpu::driver {

/// Runs `code` with `python -c`, with the output of this process, and without modules of the
/// working folder; its exit code, or -1 where a signal ended it. Throws Error (Unavailable) when it
/// cannot be started; `advice` ends the text.
int run_python(const std::string& python, const std::string& code, const std::string& advice);

/// The same, and what it printed on standard output. Its errors are not shown, and it has nothing
/// to read. One that has not ended at `limit` is killed.
struct PythonOutput {
  bool ended = false;
  int code = 0;
  std::string text;
};
PythonOutput ask_python(const std::string& python, const std::string& code,
                        std::chrono::milliseconds limit, const std::string& advice);

}  // namespace tpu::driver
