// The one exception type of the driver: a code that programs can act on, a text for people, and
// where it happened (device, op of the program, source line).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tpu::driver {

enum class ErrorCode : uint8_t {
  kInvalidArgument,    ///< the caller's input cannot be used; nothing was changed
  kUnimplemented,      ///< a valid request that this driver or board cannot do
  kResourceExhausted,  ///< memory or ids used up; nothing was changed
  kDeviceFault,        ///< a core program failed on the device
  kTimeout,            ///< the device does not answer any more
  kInternal,           ///< driver, firmware or board broke its own rules
};

/// "InvalidArgument", ...
const char* error_code_name(ErrorCode code);

/// Where an error belongs. Empty fields are unknown.
struct ErrorPlace {
  int device = -1;
  std::string op;      ///< op of the program, as in its op table
  std::string source;  ///< "file:line" of the op
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, ErrorPlace place = {});

  ErrorCode code() const { return code_; }
  const ErrorPlace& place() const { return place_; }
  /// The text without code and place.
  const std::string& message() const { return message_; }

 private:
  ErrorCode code_;
  std::string message_;
  ErrorPlace place_;
};

}  // namespace tpu::driver
