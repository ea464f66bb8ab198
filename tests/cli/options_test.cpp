// Every option of spec/sim/options.toml through the three places where options are given: the
// command line, the environment, the struct. What is wrong is said with the name it has there.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "client_options.hpp"
#include "options/option_check.hpp"
#include "options/option_values.hpp"
#include "options/option_wire.hpp"
#include "sim/option_names.hpp"
#include "tests/cli/cli_fixture.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

using spec::kBoardOptionMembers;
using spec::kBoardOptions;
using spec::kClientOptions;
using spec::OptionDoor;
using spec::OptionInfo;
using spec::OptionType;
using testing::HasSubstr;

std::string variable_of(const OptionInfo& option) {
  return fmt::format("TPUBOARD_{}", option.variable);
}

// Texts that are no value of an option.
std::vector<std::string> bad_texts(const OptionInfo& option) {
  switch (option.type) {
    case OptionType::kInteger:
    case OptionType::kCount: {
      std::vector<std::string> texts = {"-1", "x", "", "1.5", std::to_string(option.max + 1)};
      if (option.min > 0) {
        texts.push_back(std::to_string(option.min - 1));
      }
      return texts;
    }
    case OptionType::kSeconds:
    case OptionType::kInterval:
      return {"-1", "nan", "inf", "soon", "", std::to_string(option.max + 1)};
    case OptionType::kChoice:
      return {"nothing", ""};
    case OptionType::kFst:
      return {"w.vcd"};
    case OptionType::kAssignments:
      return {"speed", "=1", "speed="};
    case OptionType::kUnits:
      return {"a", "a=slow", "=rtl"};
    case OptionType::kRange:
      return {"3", "3..1", "..", "0..18446744073709551615"};
    case OptionType::kLength:
      return {"3", "0steps", "steps", "-1cycles"};
    default:
      return {};
  }
}

// One that is, and that differs from the default.
std::string good_text(const OptionInfo& option) {
  switch (option.type) {
    case OptionType::kInteger:
    case OptionType::kCount:
      return std::to_string(option.min + 1);
    case OptionType::kSeconds:
    case OptionType::kInterval:
    case OptionType::kFlag:
      return "1";
    case OptionType::kChoice:
      return std::string(*(option.values.end() - 1));
    case OptionType::kUnits:
      return "board.*=rtl";
    case OptionType::kAssignments:
      return "core.clock_mhz=700";
    case OptionType::kRange:
      return "2..3";
    case OptionType::kLength:
      return "5cycles";
    default:
      return "file.fst";
  }
}

std::string said_by(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.message();
  }
  return "no error";
}

std::string said_of(const client::Environment& environment) {
  return said_by([&] { client::read_client_options(environment); });
}

std::string said_of(const BoardArguments& arguments) {
  return said_by([&] { check_options(arguments.open); });
}

// Arguments with one option, as good_text() has it.
BoardArguments with(size_t row) {
  BoardArguments arguments;
  set_option(kBoardOptions[row], kBoardOptionMembers<BoardArguments>[row],
             good_text(kBoardOptions[row]), arguments);
  return arguments;
}

// A value of a struct that is none of the option; false: all are.
bool spoil(const OptionInfo& option, size_t row, BoardArguments& arguments) {
  const auto& member = kBoardOptionMembers<BoardArguments>[row];
  switch (option.type) {
    case OptionType::kInteger:
      member.integer(arguments) = static_cast<int>(option.max) + 1;
      return true;
    case OptionType::kCount:
      member.count(arguments) = option.max + 1;
      return true;
    case OptionType::kSeconds:
      member.seconds(arguments) = -1;
      return true;
    case OptionType::kInterval:
      member.interval(arguments) = -1;
      return true;
    case OptionType::kChoice:
      member.text(arguments) = "nothing";
      return true;
    case OptionType::kFst:
      member.text(arguments) = "w.vcd";
      return true;
    case OptionType::kUnits:
      member.units(arguments) = {{"board.*", "slow"}};
      return true;
    case OptionType::kRange:
    case OptionType::kLength:
      member.second_count(arguments) = 0;
      return true;
    default:
      return false;
  }
}

class Options : public test::Cli {};

TEST_F(Options, BadValuesAreNamedOnTheCommandLine) {
  for (const OptionInfo& option : kBoardOptions) {
    for (const std::string& text : bad_texts(option)) {
      if (option.command_line) {
        const std::string name = fmt::format("--{}", option.name);
        EXPECT_EQ(call({"devices", "--no-data", name, text}), 2) << name << text;
        EXPECT_THAT(error_, HasSubstr(name + ": invalid value '" + text + "': expected "));
      }
    }
  }
}

TEST_F(Options, BadValuesAreNamedInTheEnvironment) {
  const auto check = [](const OptionInfo& option) {
    std::vector<std::string> texts = bad_texts(option);
    if (option.type == OptionType::kFlag) {
      texts = {"yes", "", "2"};
    }
    for (const std::string& text : texts) {
      const bool list =
          option.type == OptionType::kUnits || option.type == OptionType::kAssignments;
      if (!option.variable.empty() && !(list && text.empty())) {
        EXPECT_THAT(said_of({{variable_of(option), text}}),
                    HasSubstr(fmt::format("environment variable {}: invalid value '{}': expected ",
                                          variable_of(option), text)));
      }
    }
  };
  std::ranges::for_each(kBoardOptions, check);
  std::ranges::for_each(kClientOptions, check);
}

TEST_F(Options, BadValuesAreNamedInTheStruct) {
  for (size_t row = 0; row < kBoardOptions.size(); ++row) {
    const OptionInfo& option = kBoardOptions[row];
    BoardArguments arguments;
    if (spoil(option, row, arguments)) {
      const bool second = option.type == OptionType::kRange || option.type == OptionType::kLength;
      EXPECT_THAT(said_of(arguments), HasSubstr(fmt::format("{}::{}: invalid value ", option.owner,
                                                            option.members[second ? 1 : 0])));
    }
  }
}

TEST_F(Options, WhatAnOptionNeedsIsNamedWhereItWasGiven) {
  for (size_t row = 0; row < kBoardOptions.size(); ++row) {
    const OptionInfo& option = kBoardOptions[row];
    for (const std::string_view other : option.needs) {
      const auto* const needed = std::ranges::find(kBoardOptions, other, &OptionInfo::name);
      const auto names = [&](OptionDoor door) {
        return std::pair(option_name(option, door), option_name(*needed, door));
      };
      const auto [field, needed_field] = names(OptionDoor::kStruct);
      EXPECT_EQ(said_of(with(row)), field + " needs " + needed_field);
      if (!option.variable.empty()) {
        const auto [variable, needed_variable] = names(OptionDoor::kEnvironment);
        EXPECT_EQ(said_of({{variable, good_text(option)}}), variable + " needs " + needed_variable);
      }
      if (option.command_line) {
        const auto [name, needed_name] = names(OptionDoor::kCommandLine);
        std::vector<std::string> words = {"devices", "--transport", "null", name};
        if (option.type != OptionType::kFlag) {
          words.push_back(good_text(option));
        }
        EXPECT_EQ(call(words), 2);
        EXPECT_THAT(error_, HasSubstr(name + " requires " + needed_name));
      }
    }
  }
}

TEST_F(Options, WhatAnOptionExcludesIsNamedWhereItWasGiven) {
  for (size_t row = 0; row < kBoardOptions.size(); ++row) {
    const OptionInfo& option = kBoardOptions[row];
    for (const std::string_view other : option.excludes) {
      const auto* const excluded = std::ranges::find(kBoardOptions, other, &OptionInfo::name);
      const size_t other_row = static_cast<size_t>(excluded - kBoardOptions.begin());
      BoardArguments both = with(row);
      set_option(*excluded, kBoardOptionMembers<BoardArguments>[other_row], good_text(*excluded),
                 both);
      both.open.sim.waves_path = "w.fst";
      EXPECT_EQ(said_of(both), fmt::format("{} and {} exclude each other",
                                           option_name(option, OptionDoor::kStruct),
                                           option_name(*excluded, OptionDoor::kStruct)));
      EXPECT_EQ(
          said_of({{"TPUBOARD_WAVES", "w.fst"},
                   {variable_of(option), good_text(option)},
                   {variable_of(*excluded), good_text(*excluded)}}),
          fmt::format("{} and {} exclude each other", variable_of(option), variable_of(*excluded)));
      EXPECT_EQ(call({"devices", "--transport", "null", "--waves", "w.fst",
                      fmt::format("--{}={}", option.name, good_text(option)),
                      fmt::format("--{}={}", other, good_text(*excluded))}),
                2);
      EXPECT_THAT(error_, HasSubstr("excludes"));
    }
  }
}

TEST_F(Options, GoodValuesSayTheSameEverywhere) {
  for (size_t row = 0; row < kBoardOptions.size(); ++row) {
    const OptionInfo& option = kBoardOptions[row];
    if (option.variable.empty() || !option.needs.empty()) {
      continue;
    }
    const OpenOptions open =
        client::read_client_options({{variable_of(option), good_text(option)}}).open;
    BoardArguments from_variable;
    from_variable.open = open;
    BoardArguments wanted = with(row);
    const auto& member = kBoardOptionMembers<BoardArguments>[row];
    const auto same = [&](auto* get) {
      return get == nullptr || get(from_variable) == get(wanted);
    };
    EXPECT_TRUE(same(member.text) && same(member.flag) && same(member.integer) &&
                same(member.count) && same(member.seconds) && same(member.texts) &&
                same(member.units))
        << option.name;
    EXPECT_EQ(said_of(wanted), "no error") << option.name;
  }
}

TEST_F(Options, AFlagThatIsOffNeedsNothing) {
  EXPECT_EQ(said_of({{"TPUBOARD_GDB_WAIT", "0"}}), "no error");
  EXPECT_EQ(said_of({{"TPUBOARD_GDB_WAIT", "1"}}), "TPUBOARD_GDB_WAIT needs TPUBOARD_GDB");
}

TEST_F(Options, WhatStructsCouldAlwaysSayIsTaken) {
  BoardArguments arguments;
  arguments.open.time_limit = std::numeric_limits<double>::infinity();
  arguments.open.sim.mxu = {{"board.*", "lockstep@5"}};
  EXPECT_EQ(said_of(arguments), "no error");
}

TEST(OptionNames, AreThoseOfTheirDoor) {
  const std::string text =
      "SimOptions::waves_trigger x: needs SimOptions::waves_first_step, OpenOptions::time_limit "
      "and "
      "SimOptions::no_data; SimOptions::none, SimOptions::";
  EXPECT_EQ(spec::name_options(text, OptionDoor::kStruct),
            "SimOptions::waves_trigger x: needs SimOptions::waves_first_step, "
            "OpenOptions::time_limit and SimOptions::no_data; SimOptions::none, SimOptions::");
  EXPECT_EQ(spec::name_options(text, OptionDoor::kCommandLine),
            "--waves-trigger x: needs --waves-steps, --time-limit and --no-data; SimOptions::none, "
            "SimOptions::");
  EXPECT_EQ(spec::name_options(text, OptionDoor::kEnvironment),
            "TPUBOARD_WAVES_TRIGGER x: needs TPUBOARD_WAVES_STEPS, TPUBOARD_TIME_LIMIT and "
            "SimOptions::no_data; SimOptions::none, SimOptions::");
}

// Workers are told the names of launches only for options that record something.
TEST(OptionWire, LaunchesHaveNamesForWhatIsRecorded) {
  SimOptions sim;
  EXPECT_FALSE(names_launches(sim));
  sim.threads = 3;
  sim.no_data = true;
  sim.schedule_seed = 7;
  EXPECT_FALSE(names_launches(sim));
  sim.timeline_path = "t.pftrace";
  EXPECT_TRUE(names_launches(sim));
}

}  // namespace
}  // namespace tpu::driver
