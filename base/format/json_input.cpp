// Members of JSON by path.
#include "format/json_input.hpp"

#include <fmt/format.h>

namespace tpu::driver {
namespace {

using Json = nlohmann::ordered_json;

std::string shown(const Json& json) {
  if (json.is_object()) {
    return "an object";
  }
  if (json.is_array()) {
    return "an array";
  }
  constexpr size_t kMost = 40;
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

}  // namespace

Json JsonInput::parse(std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw JsonInputError(
        error.byte > text.size()
            ? fmt::format("expected JSON, found the end of the text after {} bytes", text.size())
            : fmt::format("expected JSON, found a syntax error at byte {} of {}", error.byte,
                          text.size()));
  } catch (const Json::out_of_range&) {
    throw JsonInputError(
        "expected JSON, found a number that is too large for 64-bit floating point");
  }
}

JsonInput JsonInput::at(const std::string& key) const {
  if (!there() || !json_->is_object()) {
    fail("an object");
  }
  const auto found = json_->find(key);
  return {found == json_->end() ? nullptr : &*found, path_.empty() ? key : path_ + "." + key};
}

std::vector<JsonInput> JsonInput::elements() const {
  if (!there() || !json_->is_array()) {
    fail("an array");
  }
  std::vector<JsonInput> all;
  for (const Json& element : *json_) {
    all.push_back({&element, fmt::format("{}[{}]", path_, all.size())});
  }
  return all;
}

std::vector<std::pair<std::string, JsonInput>> JsonInput::members() const {
  if (!there() || !json_->is_object()) {
    fail("an object");
  }
  std::vector<std::pair<std::string, JsonInput>> all;
  for (const auto& [key, value] : json_->items()) {
    all.emplace_back(key, at(key));
  }
  return all;
}

std::string JsonInput::text() const {
  if (!there() || !json_->is_string()) {
    fail("a string");
  }
  return json_->get<std::string>();
}

double JsonInput::number() const {
  if (!there() || !json_->is_number()) {
    fail("a number");
  }
  return json_->get<double>();
}

void JsonInput::fail(std::string_view expected) const {
  throw JsonInputError(fmt::format("{}{}expected {}, found {}", path_, path_.empty() ? "" : ": ",
                                   expected, there() ? shown(*json_) : "no such member"));
}

}  // namespace tpu::driver
