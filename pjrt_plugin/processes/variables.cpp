#include "processes/variables.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <sstream>

#include "errors.hpp"

namespace tpu::pjrt {
namespace {

constexpr int kMost = 1 << 20;

}  // namespace

Variable variable_of_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

std::optional<std::string> value_of(const Variable& variable, const char* name) {
  auto text = variable(name);
  return text && !text->empty() ? text : std::nullopt;
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream from(text);
  for (std::string part; std::getline(from, part, ',');) {
    parts.push_back(part);
  }
  return parts;
}

std::vector<int> numbers_of(const char* name, const std::string& text) {
  std::vector<int> numbers;
  for (const std::string& part : parts_of(text)) {
    int number = -1;
    const auto end = std::from_chars(part.data(), part.data() + part.size(), number);
    if (end.ec != std::errc() || end.ptr != part.data() + part.size() || number < 0 ||
        number > kMost) {
      throw_invalid(
          fmt::format("environment variable {}: expected numbers with commas, as 2,2,1; "
                      "found '{}'",
                      name, text));
    }
    numbers.push_back(number);
  }
  return numbers;
}

int number_of(const char* name, const std::string& text) {
  const std::vector<int> numbers = numbers_of(name, text);
  if (numbers.size() != 1) {
    throw_invalid(
        fmt::format("environment variable {}: expected one number, found '{}'", name, text));
  }
  return numbers[0];
}

int product_of(const char* name, const std::string& text) {
  int product = 1;
  for (const int number : numbers_of(name, text)) {
    if (number == 0 || product > kMost / number) {
      throw_invalid(
          fmt::format("environment variable {}: '{}' does not multiply to a size", name, text));
    }
    product *= number;
  }
  return product;
}

}  // namespace tpu::pjrt
