#include "processes/wire/failure.hpp"

#include <exception>
#include <new>

namespace tpu::pjrt {

using driver::ErrorCode;

std::unique_ptr<wire::FailureT> failure_of(const driver::Error& error) {
  auto failure = std::make_unique<wire::FailureT>();
  failure->code = static_cast<uint8_t>(static_cast<int>(error.code()) + 1);
  failure->message = error.message();
  failure->device = error.place().device;
  failure->op = error.place().op;
  failure->source = error.place().source;
  return failure;
}

std::unique_ptr<wire::FailureT> failure_of(const std::shared_ptr<const driver::Error>& error) {
  return error == nullptr ? nullptr : failure_of(*error);
}

std::unique_ptr<wire::FailureT> failure_of_exception() {
  try {
    throw;
  } catch (const driver::Error& error) {
    return failure_of(error);
  } catch (const std::bad_alloc&) {
    return failure_of(driver::Error(ErrorCode::kResourceExhausted,
                                    "the process that has the board has no memory left"));
  } catch (const std::exception& error) {
    return failure_of(driver::Error(ErrorCode::kInternal, error.what()));
  } catch (...) {
    return failure_of(driver::Error(ErrorCode::kInternal, "an exception of an unknown type"));
  }
}

driver::Error error_of(const wire::FailureT& failure) {
  const int code = failure.code - 1;
  const bool known = code >= 0 && code <= static_cast<int>(ErrorCode::kDataLoss);
  return {known ? static_cast<ErrorCode>(code) : ErrorCode::kInternal,
          failure.message,
          {.device = failure.device, .op = failure.op, .source = failure.source}};
}

}  // namespace tpu::pjrt
