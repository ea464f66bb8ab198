// The code of the error that a call of the driver throws.
#pragma once

#include <gtest/gtest.h>

#include "tpu/tpu.hpp"

namespace tpu::driver::test {

template <typename Call>
ErrorCode code_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error was thrown";
  return ErrorCode::kInternal;
}

}  // namespace tpu::driver::test
