// Source locations and the one exception type of the compiler. A location comes from the artifact:
// the JAX op path ("jit(step)/dot_general") and the Python call stack, innermost user line first.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace tpu::compiler {

struct SourceFrame {
  std::string file;
  uint32_t line = 0;
  uint32_t column = 0;
  std::string function;  // empty if the artifact does not say
};

struct Loc {
  std::string path;                 // op path as JAX names it; may be empty
  std::vector<SourceFrame> frames;  // innermost first; may be empty
};
using LocRef = std::shared_ptr<const Loc>;  // never null in an Op; shared between ops

LocRef unknown_loc();
std::string to_string(
    const Loc& loc);  // "train.py:12:7 (jit(step)/add)", "<unknown>" without facts

// Location of an op that was written at `inner` and reached through `outer` (a call, a shard_map):
// paths are joined, and a missing call stack is taken from outside. Null `outer` gives `inner`.
LocRef nested_loc(const LocRef& outer, const LocRef& inner);

// What the compiler throws for anything it cannot read or compile.
class Error : public std::runtime_error {
 public:
  // Text: "<file:line:col>: <op>: <message> [<path>]"; parts that are not known are left out.
  Error(std::string message, std::string op = "", LocRef loc = nullptr);  // NOLINT: only thrown

  const std::string& message() const { return message_; }
  const std::string& op() const { return op_; }  // StableHLO op name, or empty
  const LocRef& loc() const { return loc_; }     // null if not known

 private:
  std::string message_;
  std::string op_;
  LocRef loc_;
};

}  // namespace tpu::compiler
