// What one example holds, by name, and what a batch makes of it. An example is a set of features;
// a batch has one array for each, [batch, ...shape].
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tpu/types.hpp"

namespace tpu::input {

using driver::DType;
using driver::Shape;

/// Both ends included.
struct IntegerRange {
  int64_t low = 0;
  int64_t high = 0;
};

struct Feature {
  std::string name;          ///< in the records, or of the array
  DType type = DType::kF32;  ///< in the batch
  Shape shape = {};          ///< of one example in the batch; {}: a scalar

  /// Element type of a feature that records store as bytes; u8 when it is not said. Of arrays, and
  /// of lists of integers and floats, the files say it.
  std::optional<DType> stored_type = {};
  /// Element type that all stored examples must have; none: each says its own.
  std::optional<DType> expected_type = {};
  /// Shape of one stored example, [height, width, channels], where `shape` is cut out of it.
  /// Empty: `shape`.
  Shape stored_shape = {};

  /// f32 and bf16 are (value - subtract) / divide, in f32.
  float subtract = 0.0f;
  float divide = 1.0f;
  /// Integers that are allowed (classes, tokens); none: all that fit into `type`.
  std::optional<IntegerRange> range = {};

  /// Images, [height, width, channels]: zeros put around before `shape` is cut out at a random
  /// place, and a random half mirrored left to right.
  int64_t crop_padding = 0;
  bool flip = false;
  /// false: the middle is cut out and nothing is mirrored (evaluation).
  bool augment = true;
};

/// "NAME:TYPE[DIMS]", as "image:u8[28,28,1]" or "label:i32": name, type and shape. Throws
/// driver::Error InvalidArgument.
Feature parse_feature(const std::string& text);

}  // namespace tpu::input
