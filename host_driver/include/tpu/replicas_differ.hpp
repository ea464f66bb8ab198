// Copies of an array that are not equal: what Array::to_host_checked() and read_pieces() throw.
#pragma once

#include <string>
#include <utility>

#include "tpu/error.hpp"

namespace tpu::driver {

/// Internal, as Error has it: the text names the array, both cores and the element. place() has the
/// core of the copy that was compared with the first one; which of the two is wrong is unknown.
class ReplicasDiffer : public Error {
 public:
  /// Of a text and the place of the copy that was compared.
  ReplicasDiffer(const std::string& message, ErrorPlace where)
      : Error(ErrorCode::kInternal, message, std::move(where)) {}
};

}  // namespace tpu::driver
