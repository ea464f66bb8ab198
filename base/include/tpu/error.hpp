// The one exception type of the driver: a code that programs can act on, a text for people, and
// where it happened (device, op of the program, source line). The codes mean what gRPC and absl
// mean by those names.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tpu::driver {

/// What went wrong, for programs to act on.
enum class ErrorCode : uint8_t {
  /// The caller's input cannot be used, whatever state the board is in: a wrong shape, a device
  /// that is not there, a handle of another board, a damaged file. Nothing was changed; the same
  /// call fails again.
  kInvalidArgument,
  /// The call is good, but not in the present state: the board is closed, the buffer was donated or
  /// deleted, the program unloaded, a callback wants to wait. Nothing was changed; it can succeed
  /// only when the caller has changed the state.
  kFailedPrecondition,
  /// A valid request that this driver, this build or this board cannot do.
  kUnimplemented,
  /// Memory of a core or of the host, program ids or room for a file are used up. Nothing was
  /// changed; the same call can succeed when something has been given back.
  kResourceExhausted,
  /// The host gave it up before it was over: the board was closed, or an event of the host's own
  /// went away without being set.
  kCancelled,
  /// There is no board to do it: none answers behind the endpoints, or it has broken, which an
  /// earlier call has said with a code and text of its own (the text is repeated). Opening a board
  /// again may help; the same call does not.
  kUnavailable,
  /// A core program failed on the device; its donated buffers and outputs are lost, nothing else.
  kDeviceFault,
  /// Something was not over in the time that was allowed for it: the caller's own (the object stays
  /// usable), the time limit of a launch (the launch is lost), or the patience of the driver with a
  /// board that does not answer (the board is lost); the text says which.
  kTimeout,
  /// Driver, firmware or board broke its own rules.
  kInternal,
  /// Memory of the board lost contents: the text names the array, the operation that read it and
  /// its source line. What the program was to write is lost too, nothing else; write the array
  /// again, and the same call can succeed.
  kDataLoss,
};

/// "InvalidArgument", ...
const char* error_code_name(ErrorCode code);

/// Where an error belongs. Empty fields are unknown.
struct ErrorPlace {
  int device = -1;     ///< DeviceInfo::id
  std::string op;      ///< op of the program, as in its op table
  std::string source;  ///< "file:line" of the op
};

/// What every call of the driver throws. what() is code, text and place together.
class Error : public std::runtime_error {
 public:
  /// For callbacks and HostEvent::fail().
  Error(ErrorCode code, const std::string& message, ErrorPlace place = {});

  ErrorCode code() const { return code_; }            ///< what to do about it
  const ErrorPlace& place() const { return place_; }  ///< where it happened
  /// The text without code and place.
  const std::string& message() const { return message_; }

 private:
  ErrorCode code_;
  std::string message_;
  ErrorPlace place_;
};

}  // namespace tpu::driver
