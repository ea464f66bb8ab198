// Errors of the driver in frames.
#pragma once

#include <memory>

#include "process_wire_generated.h"
#include "tpu/error.hpp"

namespace tpu::pjrt {

std::unique_ptr<wire::FailureT> failure_of(const driver::Error& error);
/// Null for null.
std::unique_ptr<wire::FailureT> failure_of(const std::shared_ptr<const driver::Error>& error);
/// Of the exception that is being handled.
std::unique_ptr<wire::FailureT> failure_of_exception();

driver::Error error_of(const wire::FailureT& failure);

}  // namespace tpu::pjrt
