// What a status of TensorFlow's libraries is for the plugin.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "lowering/lowered.hpp"

namespace tpu::tensorflow {

inline Outcome outcome_of(const absl::Status& status) {
  return {static_cast<int>(status.code()), std::string(status.message())};
}

/// With an error `lowered` has nothing else.
inline void answer(const absl::Status& status, Lowered& lowered) {
  if (!status.ok()) {
    const Outcome outcome = outcome_of(status);
    lowered = {};
    lowered.error_code = outcome.error_code;
    lowered.error = outcome.error;
  }
}

}  // namespace tpu::tensorflow
