#include "input/records/example.hpp"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "example.pb.h"

namespace tpu::input {
namespace {

bool parse_record(std::span<const std::byte> record, wire::Example& example) {
  return record.size() <= static_cast<size_t>(std::numeric_limits<int>::max()) &&
         example.ParseFromArray(record.data(), static_cast<int>(record.size()));
}

std::string names_of(const wire::Features& features) {
  std::string names;
  for (const wire::NamedFeature& entry : features.feature()) {
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", entry.key());
  }
  return names.empty() ? "none" : names;
}

Value value_of(const Feature& feature, const wire::Feature& stored) {
  switch (stored.kind_case()) {
    case wire::Feature::kBytesList: {
      const auto& values = stored.bytes_list().value();
      if (values.size() != 1) {
        throw BadExample(fmt::format("feature '{}': {} strings of bytes; one is expected",
                                     feature.name, values.size()));
      }
      return {feature.stored_type.value_or(DType::kU8), std::as_bytes(std::span(values[0]))};
    }
    case wire::Feature::kFloatList: {
      const auto& values = stored.float_list().value();
      return {DType::kF32,
              std::as_bytes(std::span(values.data(), static_cast<size_t>(values.size())))};
    }
    case wire::Feature::kInt64List: {
      const auto& values = stored.int64_list().value();
      return {DType::kI64,
              std::as_bytes(std::span(values.data(), static_cast<size_t>(values.size())))};
    }
    case wire::Feature::KIND_NOT_SET:
      break;
  }
  throw BadExample(fmt::format("feature '{}': it has no value", feature.name));
}

}  // namespace

struct ExampleParser::State {
  std::vector<Feature> features;
  wire::Example example;  // keeps its memory from record to record
  std::vector<const wire::Feature*> found;
};

ExampleParser::ExampleParser(std::vector<Feature> features) : state_(std::make_unique<State>()) {
  state_->features = std::move(features);
}

ExampleParser::~ExampleParser() = default;

std::vector<Feature> features_of(std::span<const std::byte> record) {
  wire::Example example;
  if (!parse_record(record, example)) {
    throw BadExample("the record is no tf.train.Example");
  }
  std::vector<Feature> features;
  for (const wire::NamedFeature& entry : example.features().feature()) {
    Feature feature{.name = entry.key()};
    const Value value = value_of(feature, entry.value());
    feature.type = value.type;
    const uint64_t elements = value.bytes.size() / driver::dtype_bytes(value.type);
    if (elements != 1) {
      feature.shape = {static_cast<int64_t>(elements)};
    }
    features.push_back(std::move(feature));
  }
  return features;
}

void ExampleParser::parse(std::span<const std::byte> record, std::span<Value> values) {
  State& state = *state_;
  if (!parse_record(record, state.example)) {
    throw BadExample("the record is no tf.train.Example");
  }
  state.found.assign(state.features.size(), nullptr);
  for (const wire::NamedFeature& entry : state.example.features().feature()) {
    for (size_t i = 0; i < state.features.size(); ++i) {
      if (entry.key() == state.features[i].name) {
        state.found[i] = &entry.value();  // the last of a name, as in a map
      }
    }
  }
  for (size_t i = 0; i < state.features.size(); ++i) {
    if (state.found[i] == nullptr) {
      throw BadExample(fmt::format("it has no feature '{}'; it has {}", state.features[i].name,
                                   names_of(state.example.features())));
    }
    values[i] = value_of(state.features[i], *state.found[i]);
  }
}

namespace {

template <typename Number>
void add_integers(wire::Int64List& list, std::span<const std::byte> bytes) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(Number)) {
    Number number;
    std::memcpy(&number, bytes.data() + at, sizeof(number));
    list.add_value(static_cast<int64_t>(number));
  }
}

void set_value(wire::Feature& feature, const Value& value) {
  switch (value.type) {
    case DType::kI8:
      return add_integers<int8_t>(*feature.mutable_int64_list(), value.bytes);
    case DType::kI1:
      return add_integers<uint8_t>(*feature.mutable_int64_list(), value.bytes);
    case DType::kI16:
      return add_integers<int16_t>(*feature.mutable_int64_list(), value.bytes);
    case DType::kU16:
      return add_integers<uint16_t>(*feature.mutable_int64_list(), value.bytes);
    case DType::kI32:
      return add_integers<int32_t>(*feature.mutable_int64_list(), value.bytes);
    case DType::kU32:
      return add_integers<uint32_t>(*feature.mutable_int64_list(), value.bytes);
    case DType::kI64:
      return add_integers<int64_t>(*feature.mutable_int64_list(), value.bytes);
    case DType::kF32: {
      auto& list = *feature.mutable_float_list()->mutable_value();
      list.Resize(static_cast<int>(value.bytes.size() / sizeof(float)), 0.0f);
      std::memcpy(list.mutable_data(), value.bytes.data(), value.bytes.size());
      return;
    }
    default:  // u8, and what no list can hold
      feature.mutable_bytes_list()->add_value(value.bytes.data(), value.bytes.size());
  }
}

}  // namespace

std::vector<std::byte> format_example(std::span<const NamedValue> values) {
  wire::Example example;
  for (const NamedValue& named : values) {
    wire::NamedFeature& entry = *example.mutable_features()->add_feature();
    entry.set_key(named.name);
    set_value(*entry.mutable_value(), named.value);
  }
  std::vector<std::byte> record(example.ByteSizeLong());
  example.SerializeToArray(record.data(), static_cast<int>(record.size()));
  return record;
}

}  // namespace tpu::input
