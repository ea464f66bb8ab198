// Texts to values.
#include "options/option_values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "check/checked.hpp"

namespace tpu::driver {
namespace {

[[noreturn]] void invalid(std::string_view text, const std::string& expected) {
  throw OptionError(fmt::format("invalid value '{}': expected {}", text, expected));
}

std::optional<std::pair<uint64_t, uint64_t>> range_of(std::string_view text) {
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    return std::nullopt;
  }
  const auto first = whole_number(text.substr(0, dots));
  const auto last = whole_number(text.substr(dots + 2));
  // How many there are, last - first + 1, must fit too.
  if (!first || !last || *first > *last || *last == std::numeric_limits<uint64_t>::max()) {
    return std::nullopt;
  }
  return std::pair(*first, *last - *first + 1);
}

std::pair<std::string, std::string> split(const std::string& text, const std::string& expected) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == text.size()) {
    invalid(text, expected);
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

bool is_mxu_mode(std::string_view mode) {
  const size_t at = mode.find('@');
  if (at != std::string_view::npos) {
    const std::string_view when = mode.substr(at + 1);
    if (when != "waves" && !range_of(when) && !whole_number(when)) {
      return false;
    }
    mode = mode.substr(0, at);
  }
  constexpr std::string_view kSampled = "lockstep:1/";
  if (mode.starts_with(kSampled)) {
    return whole_number(mode.substr(kSampled.size())).value_or(0) > 0;
  }
  return mode == "fast" || mode == "scalar" || mode == "rtl" || mode == "lockstep";
}

}  // namespace

bool flag_value(const std::string& text) {
  if (text != "0" && text != "1") {
    invalid(text, "0 or 1");
  }
  return text == "1";
}

uint64_t integer_value(const std::string& text, uint64_t min, uint64_t max) {
  const auto number = whole_number(text);
  if (!number || *number < min || *number > max) {
    invalid(text, fmt::format("an integer from {} to {}", min, max));
  }
  return *number;
}

double seconds_value(const std::string& text, double min, double max) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(number >= min) || number > max) {
    invalid(text, fmt::format("a number of seconds from {} to {}", min, max));
  }
  return number;
}

const std::string& choice_value(const std::string& text, const spec::OptionTexts& values) {
  if (std::ranges::find(values, text) == values.end()) {
    invalid(text, fmt::format("one of {}", fmt::join(values.begin(), values.end(), ", ")));
  }
  return text;
}

const std::string& fst_value(const std::string& text) {
  if (!text.empty() && !text.ends_with(".fst")) {
    invalid(text,
            "a name that ends in .fst: waves are written as FST, which GTKWave and Surfer "
            "open (fst2vcd, which comes with GTKWave, makes a VCD of it)");
  }
  return text;
}

const std::string& assignment_value(const std::string& text) {
  split(text, "KEY=VALUE");
  return text;
}

bool is_list(spec::OptionType type) {
  return type == spec::OptionType::kTexts || type == spec::OptionType::kAssignments ||
         type == spec::OptionType::kUnits;
}

bool is_unit_mode(const spec::OptionInfo& option, std::string_view mode) {
  return option.name == "mxu" ? is_mxu_mode(mode)
                              : mode == "model" || mode == "rtl" || mode == "lockstep";
}

std::pair<std::string, std::string> unit_value(const std::string& text,
                                               const spec::OptionInfo& option) {
  const std::string expected = fmt::format("GLOB=MODE, a MODE of {}; for example 'board.*.{}=rtl'",
                                           option.expected, option.name == "mxu" ? "mxu0" : "sem");
  std::pair<std::string, std::string> unit = split(text, expected);
  if (!is_unit_mode(option, unit.second)) {
    invalid(text, expected);
  }
  return unit;
}

std::pair<uint64_t, uint64_t> range_value(const std::string& text) {
  const auto range = range_of(text);
  if (!range) {
    invalid(text, "A..B with A <= B");
  }
  return *range;
}

std::pair<uint64_t, bool> length_value(const std::string& text) {
  std::string_view digits = text;
  const bool in_steps = digits.ends_with("steps");
  const std::string_view unit = in_steps ? "steps" : "cycles";
  digits.remove_suffix(digits.ends_with(unit) ? unit.size() : digits.size());
  const auto count = whole_number(digits);
  if (!count || *count == 0) {
    invalid(text, "a number of cycles or steps, for example 5000cycles or 3steps");
  }
  return {*count, in_steps};
}

}  // namespace tpu::driver
