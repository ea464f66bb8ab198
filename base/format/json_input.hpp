// JSON that another process or another version wrote, with errors for people: which member of it is
// wrong, what was expected there and what was found. `cores[2].chip: expected an integer, found
// "x"`.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tpu::driver {

/// Names the member, and no file: whoever reads the file adds its name.
struct JsonInputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A value of the text and the path to it, or a member that is missing. Refers to the JSON.
class JsonInput {
 public:
  /// The whole text. Throws JsonInputError with the byte where it is not JSON.
  static nlohmann::ordered_json parse(std::string_view text);

  explicit JsonInput(const nlohmann::ordered_json& json) : json_(&json) {}

  /// A member of an object. It may be missing; as() and the others of it throw then.
  JsonInput at(const std::string& key) const;
  bool there() const { return json_ != nullptr; }
  bool is_null() const { return there() && json_->is_null(); }
  /// Of an array.
  std::vector<JsonInput> elements() const;
  /// Of an object, in its order.
  std::vector<std::pair<std::string, JsonInput>> members() const;

  /// A text, a number of any kind, or an integer that fits into the type.
  template <typename T>
  T as() const {
    if constexpr (std::same_as<T, std::string>) {
      return text();
    } else if constexpr (std::floating_point<T>) {
      return static_cast<T>(number());
    } else {
      static_assert(std::integral<T> && !std::same_as<T, bool>);
      if (there() && json_->is_number_unsigned()) {
        if (const auto value = json_->template get<uint64_t>(); std::in_range<T>(value)) {
          return static_cast<T>(value);
        }
      } else if (there() && json_->is_number_integer()) {
        if (const auto value = json_->template get<int64_t>(); std::in_range<T>(value)) {
          return static_cast<T>(value);
        }
      }
      fail(std::unsigned_integral<T> ? "an integer of at least 0" : "an integer");
    }
  }

 private:
  JsonInput(const nlohmann::ordered_json* json, std::string path)
      : json_(json), path_(std::move(path)) {}
  [[noreturn]] void fail(std::string_view expected) const;
  std::string text() const;
  double number() const;

  const nlohmann::ordered_json* json_;
  std::string path_;
};

}  // namespace tpu::driver
