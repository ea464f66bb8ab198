// Programs run as processes, as a user runs them: exit code and what they said.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace tpu::test {

struct Result {
  int code = -1;
  std::string text;  // both streams
};

/// Runs a command of the shell.
inline Result call(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  Result r;
  std::array<char, 4096> buffer;
  for (size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    r.text.append(buffer.data(), n);
  }
  r.code = WEXITSTATUS(pclose(pipe));
  return r;
}

}  // namespace tpu::test
