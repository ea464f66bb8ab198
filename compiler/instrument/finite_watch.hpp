// Which op of a program makes the first value that is not finite: the program gets one more result
// that tells how large each of its float values is, and the origin of a bad result is found in it.
//
//   %1 = log %0                   %1 = log %0
//   return %1            =>       %2 = largest of the bits of |%1|: a NaN is above infinity
//                                 return %1, concatenate(..., %2, ...)
//
// Values in the bodies of loops and branches are not watched, but what comes out of them is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace tpu::compiler {

enum class Finite : uint8_t { kFinite, kInfinite, kNan };

// Of an element of the new result.
Finite finite_of(int32_t told);

struct WatchedValue {
  enum class Source : uint8_t { kArgument, kConstant, kOp };
  Source source = Source::kOp;
  size_t argument = 0;                // kArgument: its number
  std::string op = {};                // StableHLO name; kArgument: the program's name for it
  std::string where = {};             // source line
  std::vector<size_t> operands = {};  // numbers of watched values
};

struct FiniteWatch {
  std::vector<WatchedValue> values;            // in program order
  std::vector<std::optional<size_t>> results;  // the value of each result; nothing: no floats
};

// Adds the result to the graph of one core: i32[cores * values], a row for each core.
FiniteWatch watch_finite(Module& module);

// The first value, in program order, from which what is not finite came to `result`: an op that
// makes NaN of operands without NaN, or infinite values of finite ones. Infinite constants (the
// -inf of a mask) are no origin, unless nothing else is. Nothing when the result is finite. `told`
// has a row of values for each core.
std::optional<size_t> origin_of(const FiniteWatch& watch, std::span<const int32_t> told,
                                size_t result);

}  // namespace tpu::compiler
