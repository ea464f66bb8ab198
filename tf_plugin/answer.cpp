// Codes are those of gRPC, as in PJRT: pjrt_plugin/errors.cpp maps them.
#include "answer.hpp"

#include <algorithm>
#include <memory>

#include "errors.hpp"
#include "failed_program.hpp"

namespace tpu::tensorflow {

StatusError::StatusError(const TF_Status& status)
    : driver::Error(pjrt::error_of(static_cast<PJRT_Error_Code>(status.code), status.message.data(),
                                   status.message.size())),
      status_(status) {}

TF_Status status_of_exception() {
  try {
    throw;
  } catch (const StatusError& error) {
    return error.status();
  } catch (...) {
    const std::unique_ptr<PJRT_Error> made(pjrt::new_error_of_exception());
    return {static_cast<int>(made->code), made->message};
  }
}

void set_from_exception(TF_Status* status, const char* name, const pjrt::CallLog::Line& line) {
  const std::unique_ptr<PJRT_Error> error(pjrt::new_error_of_exception());
  line.end(error.get());
  if (status != nullptr) {
    *status = status_of_exception();
  } else {
    pjrt::CallLog::note(std::string(name) + " has no status for this error");
  }
}

void set_from_error(TF_Status* status, const driver::Error* error) {
  if (error == nullptr) {
    status->code = 0;
    status->message.clear();
    return;
  }
  const std::unique_ptr<PJRT_Error> made(pjrt::new_error(*error));
  status->code = static_cast<int>(made->code);
  status->message = made->message;
}

}  // namespace tpu::tensorflow

extern "C" {

TF_Status* TpuStatus_New() { return new TF_Status; }

TF_Status* TpuStatus_Create(int32_t code, const char* message) {
  return new TF_Status{code, message != nullptr ? message : ""};
}

void TpuStatus_Set(TF_Status* status, int32_t code, const char* message, int32_t length) {
  status->code = code;
  status->message.assign(message != nullptr ? message : "",
                         message != nullptr ? static_cast<size_t>(std::max(length, 0)) : 0);
}

void TpuStatus_Free(TF_Status* status) {
  tpu::tensorflow::status_is_freed(status);
  delete status;
}

const char* TpuStatus_Message(TF_Status* status) { return status->message.c_str(); }

int TpuStatus_Code(TF_Status* status) { return status->code; }

bool TpuStatus_Ok(TF_Status* status) { return status->code == 0; }

}  // extern "C"
