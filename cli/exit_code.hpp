// The command ends with the exit code of a program that it has run.
#pragma once

#include <stdexcept>

namespace tpu::driver {

class EndedWithCode : public std::runtime_error {
 public:
  explicit EndedWithCode(int code) : std::runtime_error("a program has failed"), code_(code) {}
  int exit_code() const { return code_; }

 private:
  int code_;
};

}  // namespace tpu::driver
