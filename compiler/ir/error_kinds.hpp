// Errors of the compiler that callers tell apart from a damaged or contradictory program.
#pragma once

#include "ir/error.hpp"

namespace tpu::compiler {

// The program is good, the board too small: a core has less memory than it needs. The text lists
// the largest buffers.
class HbmExhausted : public Error {
 public:
  using Error::Error;
};

// The program holds what the compiler does not support; the text says what and where.
class Unsupported : public Error {
 public:
  using Error::Error;
  explicit Unsupported(const Error& error) : Error(error) {}
};

// The program says of an array what cannot be, such as an axis that its mesh lacks.
class Contradiction : public Error {
 public:
  using Error::Error;
};

}  // namespace tpu::compiler
