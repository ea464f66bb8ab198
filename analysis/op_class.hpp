// Which class of work an operation of a program is: what profilers of real boards sum times by, so
// that a simulated step can be held against theirs (docs/timing_truth.md).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tpu::driver {

enum class OpClass : uint8_t {
  kMatmul,          // contractions, with the elementwise operations that work on their blocks
  kElementwise,     // loops: fused or lone elementwise operations and sums; the optimiser
  kCollective,      // exchanges between cores
  kDataFormatting,  // nothing but moves: copies, transposes, slices, pads, gathers
  kHost,            // transfers that the host takes part in
  kOther,           // control flow, and commands of no operation
  kIdle,            // nothing is under way
};
inline constexpr size_t kOpClasses = static_cast<size_t>(OpClass::kIdle) + 1;
inline constexpr std::array<std::string_view, kOpClasses> kOpClassNames = {
    "matmul", "elementwise", "collective", "data formatting", "host", "other", "idle"};

/// By the name in the op table of an executable: the kinds of its ops joined by "+", "result N" of
/// a copy to a result. Never kIdle.
OpClass class_of_op(std::string_view name);

}  // namespace tpu::driver
