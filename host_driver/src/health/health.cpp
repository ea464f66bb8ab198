// What calls are told of a board that cannot be used.
#include "src/health/health.hpp"

#include <fmt/format.h>

namespace tpu::driver {
namespace {

const ErrorPtr kGivenUp = std::make_shared<Error>(
    ErrorCode::kInternal, "the call failed while its commands were being sent");

}  // namespace

void Health::check_usable() {
  if (closed_) {
    throw Error(ErrorCode::kFailedPrecondition, "the board is closed");
  }
  if (!told_) {
    check_unbroken();
  }
  if (broken_) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("the board cannot be used any more: {}: {}",
                            error_code_name(broken_->code()), broken_->message()),
                broken_->place());
  }
}

void Health::check_unbroken() {
  if (broken_) {
    told_ = true;
    throw Error(*broken_);
  }
}

bool Health::break_by(const ErrorPtr& reason) {
  if (broken_) {
    return false;
  }
  broken_ = reason;
  return true;
}

ErrorPtr model_error(const std::exception& error) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  if (known != nullptr && known->code() == ErrorCode::kUnavailable) {
    return std::make_shared<Error>(*known);  // the process that has the board is gone
  }
  return std::make_shared<Error>(ErrorCode::kInternal,
                                 fmt::format("the board model failed: {}", error.what()));
}

ErrorPtr given_up() { return kGivenUp; }

}  // namespace tpu::driver
