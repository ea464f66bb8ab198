#include "options/option_wire.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "sim/option_names.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/option_table.hpp"

namespace tpu::driver {
namespace {

using spec::kBoardOptionMembers;
using spec::kBoardOptions;
using spec::OptionInfo;
using Member = spec::OptionMember<BoardArguments>;
using Texts = std::vector<std::string>;
using Units = std::vector<std::pair<std::string, std::string>>;

// Each with a row of SimOptions. Texts of kept files are not options of a board.
template <class Visit>
void for_each_row(const Visit& visit) {
  for (size_t i = 0; i < kBoardOptions.size(); ++i) {
    if (kBoardOptions[i].owner == "SimOptions") {
      visit(kBoardOptions[i], kBoardOptionMembers<BoardArguments>[i]);
    }
  }
}

bool has_text(const Member& member) { return member.text != nullptr && member.flag == nullptr; }

// Calls with each accessor that the row has.
template <class Visit>
void for_each_field(const Member& member, const Visit& visit) {
  const auto see = [&](auto* get) {
    if (get != nullptr) {
      visit(get);
    }
  };
  if (has_text(member)) {
    visit(member.text);
  }
  see(member.flag);
  see(member.integer);
  see(member.count);
  see(member.second_count);
  see(member.texts);
  see(member.units);
}

bool equal_values(const Member& member, BoardArguments& a, BoardArguments& b) {
  bool equal = true;
  for_each_field(member, [&](auto* get) { equal = equal && get(a) == get(b); });
  return equal;
}

void copy_value(const Member& member, BoardArguments& from, BoardArguments& to) {
  for_each_field(member, [&](auto* get) { get(to) = get(from); });
}

std::string value_of(const Member& member, BoardArguments& from) {
  std::string text;
  const auto add = [&](const std::string& value) { text += (text.empty() ? "" : ", ") + value; };
  for_each_field(member, [&](auto* get) {
    const auto& value = get(from);
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, Texts>) {
      std::ranges::for_each(value, add);
    } else if constexpr (std::is_same_v<Value, Units>) {
      for (const auto& [glob, mode] : value) {
        add(fmt::format("{}={}", glob, mode));
      }
    } else if constexpr (std::is_same_v<Value, bool>) {
      add(value ? "1" : "0");
    } else {
      add(fmt::format("{}", value));
    }
  });
  return text.empty() ? "none" : text;
}

// What belongs to the host of the board: paths and ports there, its processors.
bool belongs_to_the_host(const OptionInfo& option, const Member& member) {
  return has_text(member) || option.name == "threads";
}

BoardArguments arguments_of(const SimOptions& sim) {
  BoardArguments arguments;
  arguments.open.sim = sim;
  return arguments;
}

}  // namespace

void visit_options(spec::Archive& archive, SimOptions& sim) {
  BoardArguments arguments = arguments_of(sim);
  for_each_row([&](const OptionInfo& /*option*/, const Member& member) {
    for_each_field(member, [&](auto* get) {
      auto& value = get(arguments);
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Units>) {
        value.resize(archive.size(value.size(), 1));
        for (auto& [glob, mode] : value) {
          archive(glob, mode);
        }
      } else {
        archive(value);
      }
    });
  });
  sim = arguments.open.sim;
}

SimOptions merged_options(const SimOptions& board, const SimOptions& user) {
  BoardArguments merged = arguments_of(board);
  BoardArguments asked = arguments_of(user);
  BoardArguments defaults;
  for_each_row([&](const OptionInfo& option, const Member& member) {
    if (equal_values(member, asked, defaults) || equal_values(member, asked, merged)) {
      return;
    }
    const std::string name = option_name(option, spec::OptionDoor::kStruct);
    if (!equal_values(member, merged, defaults)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: the worker was started with {}, this program asks for {}; use "
                              "one value, or none here",
                              name, value_of(member, merged), value_of(member, asked)));
    }
    if (belongs_to_the_host(option, member)) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: this program asks for {}, the worker was started with {}; files, "
                      "ports and threads belong to the worker: give it the option",
                      name, value_of(member, asked), value_of(member, merged)));
    }
    copy_value(member, asked, merged);
  });
  return merged.open.sim;
}

void check_nothing_added(const SimOptions& board, const SimOptions& user) {
  BoardArguments has = arguments_of(board);
  BoardArguments asked = arguments_of(user);
  for_each_row([&](const OptionInfo& option, const Member& member) {
    if (!equal_values(member, has, asked)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: the worker was started with {}, this program asks for {}; use "
                              "one value in both",
                              option_name(option, spec::OptionDoor::kStruct), value_of(member, has),
                              value_of(member, asked)));
    }
  });
}

std::string option_of_one_process(const SimOptions& sim) {
  // They belong to single commands, cores or processes.
  constexpr std::array<std::string_view, 12> kSpread = {
      "mxu",           "verilog", "threads",  "simd",   "no-data",    "tiles",
      "schedule-seed", "profile", "op-times", "faults", "fault-seed", "fault-log"};
  BoardArguments arguments = arguments_of(sim);
  BoardArguments defaults;
  std::string name;
  for_each_row([&](const OptionInfo& option, const Member& member) {
    if (name.empty() && std::ranges::find(kSpread, option.name) == kSpread.end() &&
        !equal_values(member, arguments, defaults)) {
      name = option_name(option, spec::OptionDoor::kStruct);
    }
  });
  return name;
}

bool names_launches(const SimOptions& sim) {
  // They change what is computed or when, and record nothing.
  constexpr std::array<std::string_view, 9> kNameless = {"mxu",           "verilog", "threads",
                                                         "simd",          "no-data", "check",
                                                         "schedule-seed", "profile", "op-times"};
  BoardArguments arguments = arguments_of(sim);
  BoardArguments defaults;
  bool names = false;
  for_each_row([&](const OptionInfo& option, const Member& member) {
    names |= std::ranges::find(kNameless, option.name) == kNameless.end() &&
             !equal_values(member, arguments, defaults);
  });
  return names;
}

}  // namespace tpu::driver
