// How files, configurations and programs that do not fit are refused: the text says what is wrong,
// where, and what to do.
#pragma once

#include <string>

#include "tpu/error.hpp"

namespace tpu::driver {

[[noreturn]] inline void refuse(const std::string& text) {
  throw Error(ErrorCode::kInvalidArgument, text);
}

}  // namespace tpu::driver
