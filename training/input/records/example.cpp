// Records are written by protobuf's classes and read by its coded stream: the classes would copy
// each value once more, and make and free their lists for each record.
#include "input/records/example.hpp"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>

#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "example.pb.h"

namespace tpu::input {
namespace {

using google::protobuf::io::CodedInputStream;

// Field numbers of example.proto.
constexpr uint32_t kExampleFeatures = 1;
constexpr uint32_t kFeaturesEntry = 1;
constexpr uint32_t kEntryKey = 1;
constexpr uint32_t kEntryValue = 2;
constexpr uint32_t kBytesList = 1;
constexpr uint32_t kFloatList = 2;
constexpr uint32_t kInt64List = 3;
constexpr uint32_t kListValue = 1;

[[noreturn]] void refuse_record() {
  throw BadExample("expected a tf.train.Example, found other data");
}

enum class Wire : uint8_t { kVarint = 0, kEight = 1, kBytes = 2, kGroup = 3, kEnd = 4, kFour = 5 };

struct Field {
  uint32_t number = 0;
  Wire wire = Wire::kVarint;
  uint64_t value = 0;                // kVarint, kFour
  std::span<const std::byte> bytes;  // kBytes
};

// The fields of a message from front to back. Throws BadExample for bytes that are none.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> message)
      : message_(message),
        in_(reinterpret_cast<const uint8_t*>(message.data()), static_cast<int>(message.size())) {}

  bool next(Field& field) {
    const uint32_t tag = in_.ReadTag();
    if (tag == 0) {
      if (!in_.ConsumedEntireMessage()) {
        refuse_record();
      }
      return false;
    }
    if (!read(tag, field, 0)) {
      refuse_record();
    }
    return true;
  }

 private:
  static constexpr uint32_t kWireBits = 3;

  bool read(uint32_t tag, Field& field, int depth) {
    field.number = tag >> kWireBits;
    field.wire = static_cast<Wire>(tag & 7);
    if (field.number == 0) {
      return false;
    }
    uint32_t word = 0;
    switch (field.wire) {
      case Wire::kVarint:
        return in_.ReadVarint64(&field.value);
      case Wire::kEight:
        return in_.ReadLittleEndian64(&field.value);
      case Wire::kFour: {
        const bool there = in_.ReadLittleEndian32(&word);
        field.value = word;
        return there;
      }
      case Wire::kBytes: {
        if (!in_.ReadVarint32(&word)) {
          return false;
        }
        const auto at = static_cast<size_t>(in_.CurrentPosition());
        if (word > message_.size() - at) {
          return false;
        }
        field.bytes = message_.subspan(at, word);
        return in_.Skip(static_cast<int>(word));
      }
      case Wire::kGroup:
        return skip_group(field.number, depth + 1);
      case Wire::kEnd:
        break;
    }
    return false;
  }

  // The format has no groups: they are fields of a later one. They end with their own number.
  bool skip_group(uint32_t number, int depth) {
    constexpr int kDeepest = 100;  // as protobuf's own readers
    if (depth > kDeepest) {
      return false;
    }
    for (Field inner;;) {
      const uint32_t tag = in_.ReadTag();
      if (static_cast<Wire>(tag & 7) == Wire::kEnd) {
        return tag >> kWireBits == number;
      }
      if (tag == 0 || !read(tag, inner, depth)) {
        return false;
      }
    }
  }

  std::span<const std::byte> message_;
  CodedInputStream in_;
};

// The value of one feature: bytes and packed floats stay where the record has them.
class StoredValue {
 public:
  void clear() {
    there_ = false;
    start(0);
  }
  bool there() const { return there_; }

  // A Feature message; the last list counts, pieces of one list are put together.
  void take(std::span<const std::byte> message) {
    there_ = true;
    Fields fields(message);
    for (Field field; fields.next(field);) {
      if (field.wire == Wire::kBytes && field.number >= kBytesList && field.number <= kInt64List) {
        if (field.number != list_) {
          start(field.number);
        }
        take_list(field.bytes);
      }
    }
  }

  Value value(const Feature& feature) const {
    if (list_ == 0) {
      throw BadExample(
          fmt::format("feature '{}': expected a list of values, found none", feature.name));
    }
    if (list_ == kBytesList && strings_ != 1) {
      throw BadExample(fmt::format("feature '{}': {} strings of bytes; one is expected",
                                   feature.name, strings_));
    }
    const DType type = list_ == kBytesList   ? feature.stored_type.value_or(DType::kU8)
                       : list_ == kFloatList ? DType::kF32
                                             : DType::kI64;
    return {type, in_record_ ? record_ : std::span<const std::byte>(made_)};
  }

 private:
  void start(uint32_t list) {
    list_ = list;
    strings_ = 0;
    in_record_ = true;
    record_ = {};
    made_.clear();
  }

  void take_list(std::span<const std::byte> list) {
    Fields fields(list);
    for (Field field; fields.next(field);) {
      if (field.number != kListValue) {
        continue;
      }
      if (list_ == kBytesList && field.wire == Wire::kBytes) {
        ++strings_;
        record_ = field.bytes;
      } else if (list_ == kFloatList && field.wire == Wire::kBytes) {
        if (field.bytes.size() % sizeof(float) != 0) {
          refuse_record();
        }
        add(field.bytes);
      } else if (list_ == kFloatList && field.wire == Wire::kFour) {
        const auto bits = static_cast<uint32_t>(field.value);
        make();
        append(&bits, sizeof(bits));
      } else if (list_ == kInt64List && field.wire == Wire::kBytes) {
        add_integers(field.bytes);
      } else if (list_ == kInt64List && field.wire == Wire::kVarint) {
        make();
        append(&field.value, sizeof(field.value));
      }
    }
  }

  // A copy that more can be put behind.
  void make() {
    if (in_record_) {
      made_.assign(record_.begin(), record_.end());
      in_record_ = false;
    }
  }

  void append(const void* bytes, size_t size) {
    const size_t used = made_.size();
    made_.resize(used + size);
    std::memcpy(made_.data() + used, bytes, size);
  }

  void add(std::span<const std::byte> floats) {
    if (in_record_ && record_.empty()) {
      record_ = floats;
      return;
    }
    make();
    append(floats.data(), floats.size());
  }

  // Packed; each takes at least one byte.
  void add_integers(std::span<const std::byte> packed) {
    make();
    size_t used = made_.size();
    made_.resize(used + packed.size() * sizeof(uint64_t));
    CodedInputStream in(reinterpret_cast<const uint8_t*>(packed.data()),
                        static_cast<int>(packed.size()));
    while (in.CurrentPosition() < static_cast<int>(packed.size())) {
      uint64_t value = 0;
      if (!in.ReadVarint64(&value)) {
        refuse_record();
      }
      std::memcpy(made_.data() + used, &value, sizeof(value));
      used += sizeof(value);
    }
    made_.resize(used);
  }

  bool there_ = false;
  uint32_t list_ = 0;  // number in Feature; 0: none
  size_t strings_ = 0;
  bool in_record_ = true;
  std::span<const std::byte> record_;
  std::vector<std::byte> made_;
};

// Calls `take` with name and Feature message of all features.
template <typename Take>
void each_feature(std::span<const std::byte> record, const Take& take) {
  if (record.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    refuse_record();
  }
  Fields example(record);
  for (Field features; example.next(features);) {
    if (features.number != kExampleFeatures || features.wire != Wire::kBytes) {
      continue;
    }
    Fields entries(features.bytes);
    for (Field entry; entries.next(entry);) {
      if (entry.number != kFeaturesEntry || entry.wire != Wire::kBytes) {
        continue;
      }
      std::string_view name;
      std::span<const std::byte> value;
      Fields parts(entry.bytes);
      for (Field part; parts.next(part);) {
        if (part.number == kEntryKey && part.wire == Wire::kBytes) {
          name = {reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size()};
        } else if (part.number == kEntryValue && part.wire == Wire::kBytes) {
          value = part.bytes;
        }
      }
      take(name, value);
    }
  }
}

std::string names_of(std::span<const std::byte> record) {
  std::string names;
  each_feature(record, [&](std::string_view name, std::span<const std::byte>) {
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", name);
  });
  return names.empty() ? "none" : names;
}

}  // namespace

struct ExampleParser::State {
  std::vector<Feature> features;
  std::vector<StoredValue> stored;  // keep their memory from record to record
};

ExampleParser::ExampleParser(std::vector<Feature> features) : state_(std::make_unique<State>()) {
  state_->stored.resize(features.size());
  state_->features = std::move(features);
}

ExampleParser::~ExampleParser() = default;

std::vector<Feature> features_of(std::span<const std::byte> record) {
  std::vector<Feature> features;
  each_feature(record, [&](std::string_view name, std::span<const std::byte> message) {
    Feature feature{.name = std::string(name)};
    StoredValue stored;
    stored.take(message);
    const Value value = stored.value(feature);
    feature.type = value.type;
    const uint64_t elements = value.bytes.size() / driver::dtype_bytes(value.type);
    if (elements != 1) {
      feature.shape = {static_cast<int64_t>(elements)};
    }
    features.push_back(std::move(feature));
  });
  return features;
}

void ExampleParser::parse(std::span<const std::byte> record, std::span<Value> values) {
  State& state = *state_;
  for (StoredValue& stored : state.stored) {
    stored.clear();
  }
  each_feature(record, [&](std::string_view name, std::span<const std::byte> message) {
    for (size_t i = 0; i < state.features.size(); ++i) {
      if (name == state.features[i].name) {
        state.stored[i].clear();  // the last of a name, as in a map
        state.stored[i].take(message);
      }
    }
  });
  for (size_t i = 0; i < state.features.size(); ++i) {
    if (!state.stored[i].there()) {
      throw BadExample(fmt::format("it has no feature '{}'; it has {}", state.features[i].name,
                                   names_of(record)));
    }
    values[i] = state.stored[i].value(state.features[i]);
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
