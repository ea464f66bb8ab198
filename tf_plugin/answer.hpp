// Errors across TensorFlow's interface: what throws inside becomes the text and the code of the
// caller's status, which code and message are put in.
#pragma once

#include <string>

#include "abi/executor.h"
#include "call_log.hpp"
#include "tpu/error.hpp"

struct TSL_Status {
  int code = 0;  // of absl::StatusCode
  std::string message;
};

namespace tpu::tensorflow {

/// An error with a code of TensorFlow's, which the driver may not have.
class StatusError : public driver::Error {
 public:
  explicit StatusError(const TF_Status& status);
  const TF_Status& status() const { return status_; }

 private:
  TF_Status status_;
};

/// Of the exception that is being handled.
TF_Status status_of_exception();
/// As status_of_exception(). `status` may be null: the call log alone has it.
void set_from_exception(TF_Status* status, const char* name, const pjrt::CallLog::Line& line);

/// Sets `status` to an error. Null: good.
void set_from_error(TF_Status* status, const driver::Error* error);

/// Runs the body of a slot: an entry in the call log, and exceptions into `status`. False: it
/// threw.
template <typename Body>
bool answer(const char* name, TF_Status* status, const Body& body) noexcept {
  const pjrt::CallLog::Line line(name);
  try {
    body();
    line.end(nullptr);
    return true;
  } catch (...) {
    set_from_exception(status, name, line);
    return false;
  }
}

}  // namespace tpu::tensorflow
