// A record's `tf.train.Example` as the values of the wanted features.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "input/feature.hpp"
#include "input/source.hpp"

namespace tpu::input {

/// For one thread.
class ExampleParser {
 public:
  explicit ExampleParser(std::vector<Feature> features);
  ~ExampleParser();
  ExampleParser(const ExampleParser&) = delete;
  ExampleParser& operator=(const ExampleParser&) = delete;

  /// Values are valid until the next call, and as long as the record. Throws BadExample: no
  /// Example, a feature that is not there (which are) or has no one value.
  void parse(std::span<const std::byte> record, std::span<Value> values);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The features of one record: integers as i64, floats as f32, bytes as u8, each a flat array or,
/// of one element, a scalar. Throws BadExample.
std::vector<Feature> features_of(std::span<const std::byte> record);

/// The other way: one record of named values. Integers become a list of int64, f32 a list of
/// floats, u8 and what is no list of its own bytes.
struct NamedValue {
  std::string name;
  Value value;
};
std::vector<std::byte> format_example(std::span<const NamedValue> values);

}  // namespace tpu::input
