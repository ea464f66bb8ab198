// The end of a command: its results, then what was wanted beside them, each of which is tried
// whatever happens to the others.
#pragma once

#include <cstdio>
#include <exception>
#include <utility>

#include "sim/option_names.hpp"
#include "terminal/printable_text.hpp"

namespace tpu::driver {

class Attempts {
 public:
  /// False: the action has failed; its error is kept.
  template <typename Action>
  bool attempt(const Action& action) {
    try {
      action();
      return true;
    } catch (const std::exception& error) {
      if (first_) {
        spec::print(stderr, "tpuboard: {}\n",
                    spec::name_options(error.what(), spec::OptionDoor::kCommandLine));
      } else {
        first_ = std::current_exception();
      }
      return false;
    }
  }
  /// Throws the first error, if there was one; the others have been said.
  void finish() {
    if (first_) {
      std::rethrow_exception(std::exchange(first_, nullptr));
    }
  }

 private:
  std::exception_ptr first_;
};

}  // namespace tpu::driver
