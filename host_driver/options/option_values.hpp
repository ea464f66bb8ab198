// Values of options from texts: one reader for the command line and the environment. What is
// accepted stands in spec/sim/options.toml.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "tpu/spec/option_table.hpp"

namespace tpu::driver {

/// "invalid value 'x': expected ..", without the name of the option.
class OptionError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Each throws OptionError for a text that is no such value.
bool flag_value(const std::string& text);  ///< 0 or 1
uint64_t integer_value(const std::string& text, uint64_t min, uint64_t max);
double seconds_value(const std::string& text, double min, double max);
const std::string& choice_value(const std::string& text, const spec::OptionTexts& values);
const std::string& fst_value(const std::string& text);
const std::string& assignment_value(const std::string& text);  ///< KEY=VALUE
/// Glob and mode of GLOB=MODE.
std::pair<std::string, std::string> unit_value(const std::string& text,
                                               const spec::OptionInfo& option);
/// First and number of A..B, both included.
std::pair<uint64_t, uint64_t> range_value(const std::string& text);
/// Number of Ncycles or Nsteps, and whether it counts steps.
std::pair<uint64_t, bool> length_value(const std::string& text);
/// Whether options of the type take several values: set_option() adds one.
bool is_list(spec::OptionType type);
/// Whether `mode` is one of a unit of the option: of matrix units, or of other blocks.
bool is_unit_mode(const spec::OptionInfo& option, std::string_view mode);

/// Gives the option the value that the text says; of lists, one more. Throws OptionError.
template <class A>
void set_option(const spec::OptionInfo& option, const spec::OptionMember<A>& member,
                const std::string& text, A& to) {
  using enum spec::OptionType;
  switch (option.type) {
    case kFlag:
      member.flag(to) = flag_value(text);
      break;
    case kInteger:
      member.integer(to) = static_cast<int>(integer_value(text, option.min, option.max));
      break;
    case kCount:
      member.count(to) = integer_value(text, option.min, option.max);
      break;
    case kSeconds:
      member.seconds(to) =
          seconds_value(text, static_cast<double>(option.min), static_cast<double>(option.max));
      break;
    case kInterval:
      member.interval(to) =
          seconds_value(text, static_cast<double>(option.min), static_cast<double>(option.max));
      break;
    case kChoice:
      member.text(to) = choice_value(text, option.values);
      break;
    case kFst:
      member.text(to) = fst_value(text);
      break;
    case kTexts:
      member.texts(to).push_back(text);
      break;
    case kAssignments:
      member.texts(to).push_back(assignment_value(text));
      break;
    case kUnits:
      member.units(to).push_back(unit_value(text, option));
      break;
    case kRange:
      std::tie(member.count(to), member.second_count(to)) = range_value(text);
      break;
    case kLength: {
      const auto [number, in_steps] = length_value(text);
      (in_steps ? member.second_count(to) : member.count(to)) = number;
      break;
    }
    case kKeptOutput:
    case kKeptFolder:
      member.text(to) = text;
      member.flag(to) = !text.empty();
      break;
    case kText:
    case kInput:
    case kOutput:
    case kFolder:
      member.text(to) = text;
      break;
  }
}

}  // namespace tpu::driver
