// Codes of the driver and those of PJRT mean the same (gRPC, absl) where they have the same name.
#include "errors.hpp"

#include <new>

#include "calls.hpp"
#include "client_options.hpp"

namespace tpu::pjrt {
namespace {

using driver::ErrorCode;

PJRT_Error_Code code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return PJRT_Error_Code_INVALID_ARGUMENT;
    case ErrorCode::kFailedPrecondition:
      return PJRT_Error_Code_FAILED_PRECONDITION;
    case ErrorCode::kUnimplemented:
      return PJRT_Error_Code_UNIMPLEMENTED;
    case ErrorCode::kResourceExhausted:
      return PJRT_Error_Code_RESOURCE_EXHAUSTED;
    case ErrorCode::kCancelled:
      return PJRT_Error_Code_CANCELLED;
    case ErrorCode::kUnavailable:
      return PJRT_Error_Code_UNAVAILABLE;
    case ErrorCode::kTimeout:
      return PJRT_Error_Code_DEADLINE_EXCEEDED;
    case ErrorCode::kDataLoss:
      return PJRT_Error_Code_DATA_LOSS;
    case ErrorCode::kDeviceFault:  // no code of its own; the text has core, op and source line
    case ErrorCode::kInternal:
      break;
  }
  return PJRT_Error_Code_INTERNAL;
}

// The code stands in front of what() ("InvalidArgument: ..."), and PJRT's callers add theirs.
std::string text_without_code(const driver::Error& error) {
  const std::string all = client::text_of(error);
  const std::string name = std::string(driver::error_code_name(error.code())) + ": ";
  return all.starts_with(name) ? all.substr(name.size()) : all;
}

}  // namespace

PJRT_Error* new_error(const driver::Error& error) {
  return new PJRT_Error{code_of(error.code()), text_without_code(error)};
}

driver::Error error_of(PJRT_Error_Code code, const char* text, size_t size) {
  for (const auto ours :
       {ErrorCode::kInvalidArgument, ErrorCode::kFailedPrecondition, ErrorCode::kUnimplemented,
        ErrorCode::kResourceExhausted, ErrorCode::kCancelled, ErrorCode::kUnavailable,
        ErrorCode::kTimeout, ErrorCode::kDataLoss}) {
    if (code_of(ours) == code) {
      return {ours, std::string(text, size)};
    }
  }
  return {ErrorCode::kInternal, std::string(text, size)};
}

PJRT_Error* new_error_of_exception() { return new_error(error_of_exception()); }

driver::Error error_of_exception() {
  try {
    throw;
  } catch (const driver::Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kResourceExhausted, "out of host memory"};
  } catch (const std::exception& error) {
    return {ErrorCode::kInternal, client::text_of(error)};
  } catch (...) {
    return {ErrorCode::kInternal, "an exception of an unknown type"};
  }
}

void throw_invalid(const std::string& text) {
  throw driver::Error(ErrorCode::kInvalidArgument, text);
}

void throw_unimplemented(const std::string& text) {
  throw driver::Error(ErrorCode::kUnimplemented, text);
}

void call(PJRT_Error_Destroy_Args& args) { delete args.error; }

void call(PJRT_Error_Message_Args& args) {
  static const std::string no_error = "no error";
  const std::string& text = args.error != nullptr ? args.error->message : no_error;
  args.message = text.data();
  args.message_size = text.size();
}

void call(PJRT_Error_GetCode_Args& args) { args.code = need(args.error, "error").code; }

}  // namespace tpu::pjrt
