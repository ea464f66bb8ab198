// Errors across the C interface: what throws inside becomes a PJRT_Error, which the caller owns.
#pragma once

#include <memory>
#include <string>

#include "pjrt_abi.h"
#include "tpu/error.hpp"

struct PJRT_Error {
  PJRT_Error_Code code = PJRT_Error_Code_UNKNOWN;
  std::string message;  // without the code's name: frameworks put it in front
};

namespace tpu::pjrt {

PJRT_Error* new_error(const driver::Error& error);

/// What a caller reports to us.
driver::Error error_of(PJRT_Error_Code code, const char* text, size_t size);

/// Of the exception that is being handled.
PJRT_Error* new_error_of_exception();
/// Of the exception that is being handled, for those who are not told by a PJRT_Error.
driver::Error error_of_exception();

[[noreturn]] void throw_invalid(const std::string& text);
[[noreturn]] void throw_unimplemented(const std::string& text);

/// `handle`, which must not be null: it is called `what` in the error.
template <typename T>
T& need(T* handle, const char* what) {
  if (handle == nullptr) {
    throw_invalid(std::string(what) + " is null");
  }
  return *handle;
}

}  // namespace tpu::pjrt
