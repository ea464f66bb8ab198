// Wrong usage of the command line.
#pragma once

#include <stdexcept>

namespace tpu::driver {

/// Exit code 2 of the command.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tpu::driver
