// Options of the board on the command line, as spec/sim/options.toml has them.
#include "cli/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <map>
#include <utility>

#include "file/files.hpp"
#include "file/whole_file.hpp"
#include "options/option_values.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/option_table.hpp"

namespace tpu::driver {
namespace {

using spec::kBoardOptionMembers;
using spec::kBoardOptions;
using spec::OptionInfo;
using spec::OptionType;
using Member = spec::OptionMember<BoardArguments>;

// What is wrong with a value; empty: nothing.
std::string check_value(const OptionInfo& option, const Member& member, const std::string& text) {
  try {
    BoardArguments scratch;
    set_option(option, member, text, scratch);
    return "";
  } catch (const OptionError& error) {
    return error.what();
  }
}

CLI::Option* add_option(CLI::App& command, const OptionInfo& option, const Member& member,
                        BoardArguments& arguments) {
  const std::string name = fmt::format("--{}", option.name);
  const std::string help(option.help);
  if (option.type == OptionType::kFlag) {
    return command.add_flag(name, member.flag(arguments), help);
  }
  const auto set = [&option, &member, &arguments](const std::string& text) {
    set_option(option, member, text, arguments);
  };
  CLI::Option* added = nullptr;
  if (is_list(option.type)) {
    const std::function<void(const std::vector<std::string>&)> set_all =
        [set](const std::vector<std::string>& texts) { std::ranges::for_each(texts, set); };
    added = command.add_option_function(name, set_all, help)->allow_extra_args(false);
  } else {
    added = command.add_option_function(name, std::function<void(const std::string&)>(set), help);
  }
  added->check(
      [&option, &member](const std::string& text) { return check_value(option, member, text); });
  if (!option.values.empty()) {
    added->type_name(
        fmt::format("{{{}}}", fmt::join(option.values.begin(), option.values.end(), ",")));
  } else if (!option.unit.empty()) {
    added->type_name(std::string(option.unit));
  }
  if (!option.shown.empty()) {
    added->default_str(std::string(option.shown));
  }
  return added;
}

}  // namespace

void add_board_options(CLI::App& command, BoardArguments& arguments) {
  std::map<std::string_view, CLI::Option*> by_name;
  for (size_t i = 0; i < kBoardOptions.size(); ++i) {
    if (kBoardOptions[i].command_line) {
      by_name[kBoardOptions[i].name] =
          add_option(command, kBoardOptions[i], kBoardOptionMembers<BoardArguments>[i], arguments);
    }
  }
  for (const OptionInfo& option : kBoardOptions) {
    const auto added = by_name.find(option.name);
    if (added == by_name.end()) {
      continue;
    }
    for (const std::string_view other : option.needs) {
      added->second->needs(by_name.at(other));
    }
    for (const std::string_view other : option.excludes) {
      added->second->excludes(by_name.at(other));
    }
  }
}

std::function<std::string(const std::string& text)> seconds_between(double least, double most) {
  return [least, most](const std::string& text) {
    try {
      seconds_value(text, least, most);
      return std::string();
    } catch (const OptionError& error) {
      return std::string(error.what());
    }
  };
}

void add_list_json_option(CLI::App& command, std::string& file, std::function<void()> run) {
  CLI::Option* json =
      command.add_option("--json", file, "The list as JSON; without FILE to standard output")
          ->expected(0, 1)
          ->type_name("FILE");
  command.callback([json, &file, run = std::move(run)] {
    if (json->count() > 0 && file.empty()) {
      file = "-";
    }
    run();
  });
}

std::string folder_named(const std::string& text) {
  return text.empty() ? "invalid value '': expected the path of a folder; . is the current one"
                      : "";
}

std::pair<std::string, std::string> split_assignment(const std::string& text,
                                                     const std::string& option) {
  try {
    const size_t equals = assignment_value(text).find('=');
    return {text.substr(0, equals), text.substr(equals + 1)};
  } catch (const OptionError& error) {
    throw UsageError(fmt::format("{}: {}", option, error.what()));
  }
}

void refuse_overwrite(const std::string& output, const std::vector<std::string>& inputs) {
  try {
    spec::refuse_overwrite(output, inputs);
  } catch (const spec::FileError& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
}

void keep_inputs(const BoardArguments& arguments, const std::vector<std::string>& outputs,
                 std::vector<std::string> inputs) {
  BoardArguments of = arguments;  // the members of the table are not const
  std::vector<std::string> late = outputs;
  std::vector<std::string> early;
  for (size_t i = 0; i < kBoardOptions.size(); ++i) {
    const auto text = [&] { return kBoardOptionMembers<BoardArguments>[i].text(of); };
    switch (kBoardOptions[i].type) {
      case OptionType::kInput:
        inputs.push_back(text());
        break;
      case OptionType::kOutput:
      case OptionType::kFst:
        // The board opens its files when it is opened itself.
        (kBoardOptions[i].owner == "SimOptions" ? early : late).push_back(text());
        break;
      case OptionType::kKeptOutput:
        late.push_back(text());
        break;
      default:
        break;
    }
  }
  for (const std::string& output : early) {
    refuse_overwrite(output, inputs);
  }
  for (const std::string& output : late) {
    if (!output.empty() && output != "-") {
      refuse_overwrite(output, inputs);
      need_writable(output);
    }
  }
}

}  // namespace tpu::driver
