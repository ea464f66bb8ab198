// Errors of the compiler that callers tell apart from a damaged or contradictory program.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ir/error.hpp"

namespace tpu::compiler {

struct Op;
struct Value;

// When a program needs most HBM: values of its graph, or of the kernels', that have a buffer then
// (arguments and results aside), and how much more that is than the program may use.
struct MemoryPeak {
  std::vector<const Value*> alive = {};
  int64_t bytes = 0;  // of them
  int64_t excess = 0;
};

// The program is good, the board too small: a core has less memory than it needs. The text lists
// the largest buffers.
class HbmExhausted : public Error {
 public:
  using Error::Error;
  HbmExhausted(const Error& error, MemoryPeak peak) : Error(error), peak_(std::move(peak)) {}
  // Nothing is alive: it is not the values between the arguments and the results.
  const MemoryPeak& peak() const { return peak_; }

 private:
  MemoryPeak peak_;
};

// The program holds what the compiler does not support; the text says what and where.
class Unsupported : public Error {
 public:
  using Error::Error;
  explicit Unsupported(const Error& error) : Error(error) {}
};

// The program has more instructions than a core takes.
class ProgramTooLong : public Unsupported {
 public:
  ProgramTooLong(const Error& error, const Op* most, double share)
      : Unsupported(error), most_(most), share_(share) {}
  // The op that is written out most, of the graph that was compiled; null: of no op.
  const Op* most() const { return most_; }
  // What it takes of all that a core takes, as far as it was written out.
  double share() const { return share_; }

 private:
  const Op* most_;
  double share_;
};

// The program says of an array what cannot be, such as an axis that its mesh lacks.
class Contradiction : public Error {
 public:
  using Error::Error;
};

}  // namespace tpu::compiler
