// Options against their rows.
#include "options/option_check.hpp"

#include <fmt/format.h>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "options/option_values.hpp"
#include "sim/option_names.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/option_table.hpp"

namespace tpu::driver {
namespace {

using spec::kBoardOptionMembers;
using spec::kBoardOptions;
using spec::OptionInfo;
using spec::OptionType;
using Member = spec::OptionMember<BoardArguments>;

std::string field_of(const OptionInfo& option) {
  return option_name(option, spec::OptionDoor::kStruct);
}

[[noreturn]] void reject(const std::string& text) {
  throw Error(ErrorCode::kInvalidArgument, text);
}

// Whether two boards have the same value of an option. Kept texts are not options of a board.
bool same(const Member& member, BoardArguments& a, BoardArguments& b) {
  const auto equal = [&](auto* get) { return get == nullptr || get(a) == get(b); };
  return (member.flag != nullptr || equal(member.text)) && equal(member.flag) &&
         equal(member.integer) && equal(member.count) && equal(member.second_count) &&
         equal(member.seconds) && equal(member.interval) && equal(member.texts) &&
         equal(member.units);
}

template <class Number>
void check_number(const OptionInfo& option, Number number, const std::string& name) {
  const auto min = static_cast<Number>(option.min);
  const auto max = static_cast<Number>(option.max);
  if (!(number >= min) || number > max) {
    reject(fmt::format("{}: invalid value {}: expected {} from {} to {}", name, number,
                       std::is_floating_point_v<Number> ? "a number" : "an integer", option.min,
                       option.max));
  }
}

void check_text(const OptionInfo& option, const std::string& text, const std::string& name) {
  try {
    if (option.type == OptionType::kChoice) {
      choice_value(text, option.values);
    } else if (option.type == OptionType::kFst) {
      fst_value(text);
    }
  } catch (const OptionError& error) {
    reject(fmt::format("{}: {}", name, error.what()));
  }
}

// A value that differs from the default.
void check_value(const OptionInfo& option, const Member& member, BoardArguments& at) {
  const std::string name = field_of(option);
  const auto counts = [&] { return std::pair(member.count(at), member.second_count(at)); };
  switch (option.type) {
    case OptionType::kInteger:
      check_number(option, member.integer(at), name);
      break;
    case OptionType::kCount:
      check_number(option, member.count(at), name);
      break;
    case OptionType::kSeconds:  // infinity is as good as no limit
      if (const double seconds = member.seconds(at).value_or(0); !(seconds >= 0)) {
        check_number(option, seconds, name);
      }
      break;
    case OptionType::kInterval:
      check_number(option, member.interval(at), name);
      break;
    case OptionType::kUnits:
      for (const auto& [glob, mode] : member.units(at)) {
        if (!is_unit_mode(option, mode)) {
          reject(fmt::format("{}: invalid value {}={}: expected a mode of {}", name, glob, mode,
                             option.expected));
        }
      }
      break;
    case OptionType::kRange:
    case OptionType::kLength:
      if (counts().second == 0 || (option.type == OptionType::kLength && counts().first == 0)) {
        const size_t wrong = counts().second == 0 ? 1 : 0;
        reject(fmt::format("{}::{}: invalid value 0: expected a number of at least 1", option.owner,
                           option.members[wrong]));
      }
      break;
    default:
      if (member.text != nullptr) {
        check_text(option, member.text(at), name);
      }
  }
}

void check_excluded(const BoardArguments& arguments) {
  for (const std::string_view name : arguments.given) {
    const OptionInfo& option = spec::board_option(name);
    for (const std::string_view other : option.excludes) {
      if (arguments.given.contains(other)) {
        reject(fmt::format("{} and {} exclude each other", field_of(option),
                           field_of(spec::board_option(other))));
      }
    }
  }
}

// Values that differ from their defaults, checked; which they are.
BoardArguments differing(const OpenOptions& options) {
  BoardArguments arguments;
  arguments.open = options;
  if (options.factory) {
    arguments.open.transport = OpenOptions().transport;  // not used
  }
  BoardArguments defaults;
  for (size_t i = 0; i < kBoardOptions.size(); ++i) {
    const Member& member = kBoardOptionMembers<BoardArguments>[i];
    if (!same(member, arguments, defaults)) {
      check_value(kBoardOptions[i], member, arguments);
      arguments.given.insert(kBoardOptions[i].name);
    }
  }
  return arguments;
}

}  // namespace

void check_given(const BoardArguments& arguments) {
  for (const std::string_view name : arguments.given) {
    const OptionInfo& option = spec::board_option(name);
    for (const std::string_view other : option.needs) {
      if (!arguments.given.contains(other)) {
        reject(fmt::format("{} needs {}", field_of(option), field_of(spec::board_option(other))));
      }
    }
  }
  check_excluded(arguments);
}

void check_options(const OpenOptions& options) { check_given(differing(options)); }

std::vector<std::string> given_simulation_options(const OpenOptions& options) {
  std::vector<std::string> names;
  for (const std::string_view name : differing(options).given) {
    const OptionInfo& option = spec::board_option(name);
    if (option.owner == "SimOptions" && option.command_line) {  // commands set the others
      names.push_back(field_of(option));
    }
  }
  return names;
}

void check_changed_options(const SimOptions& sim) {
  OpenOptions options;
  options.sim = sim;
  check_excluded(differing(options));
}

}  // namespace tpu::driver
