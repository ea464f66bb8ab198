// The options are asked of the command itself, so that every one that it ever gets is there.
#include "cli/sweep/row_command.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <sstream>

#include "board/board_loader.hpp"
#include "check/refuse.hpp"
#include "cli/commands.hpp"
#include "loop/train_config.hpp"

namespace tpu::driver {
namespace {

// Thrown where a command would run.
struct Parsed {};

// As a configuration file has it.
std::string toml_text(const toml::node& value) {
  std::ostringstream out;
  out << toml::toml_formatter(value, toml::format_flags::none);
  return out.str();
}

bool given_by_the_sweep(const std::string& name) {
  constexpr std::array<std::string_view, 5> kOwn = {"out", "out-dir", "json", "resume",
                                                    "accept-changes"};
  return std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end();
}

bool is_flag(const CLI::Option& option) { return option.get_items_expected_max() == 0; }

}  // namespace

std::string value_text(const toml::node& value) {
  if (const auto text = value.value_exact<std::string>()) {
    return *text;
  }
  if (const auto number = value.value_exact<double>()) {
    return fmt::format("{}", *number);
  }
  if (const auto number = value.value_exact<int64_t>()) {
    return fmt::format("{}", *number);  // also of 0x10 and 1_000
  }
  return toml_text(value);
}

RowCommand::RowCommand(const std::string& name) : app_(std::make_unique<CLI::App>()) {
  constexpr std::array<std::pair<const char*, void (*)(CLI::App&)>, 3> kCommands = {
      {{"train", add_train_command}, {"run", add_run_command}, {"bench", add_bench_command}}};
  for (const auto& [known, add] : kCommands) {
    if (known == name) {
      add(*app_);
      command_ = app_->get_subcommand(name);
    }
  }
  if (command_ == nullptr) {
    refuse(fmt::format("sweep.command: invalid value '{}': expected train, run or bench", name));
  }
  app_->parse_complete_callback([] { throw Parsed(); });  // before the command's own
}

RowCommand::~RowCommand() = default;

const CLI::Option& RowCommand::option(const std::string& name) const {
  if (given_by_the_sweep(name)) {
    refuse(fmt::format("'{}' is given by the sweep, which keeps each row in a folder of its own",
                       name));
  }
  const bool is_known = name != "help" && name != "version";
  if (const CLI::Option* named = command_->get_option_no_throw("--" + name); named && is_known) {
    return *named;
  }
  const CLI::Option* positional = command_->get_option_no_throw(name);
  if (positional != nullptr && positional->get_positional()) {
    return *positional;
  }
  std::vector<std::string> known;
  for (const CLI::Option* each : command_->get_options()) {
    const std::string word = each->get_positional() ? each->get_name() : each->get_lnames().front();
    if (!given_by_the_sweep(word) && word != "help" && word != "version") {
      known.push_back(word);
    }
  }
  refuse(fmt::format("tpuboard {} has no '{}'; known: {}", command_->get_name(), name,
                     fmt::join(known, ", ")));
}

std::vector<std::string> RowCommand::words(const std::string& key, const toml::node& value) const {
  const size_t dot = key.find('.');
  const std::string name = key.substr(0, dot);
  const CLI::Option& taken = option(name);
  if (is_flag(taken)) {
    const auto on = value.value_exact<bool>();
    if (!on || dot != std::string::npos) {
      refuse(fmt::format("'{}': expected true or false", name));
    }
    return *on ? std::vector<std::string>{"--" + name} : std::vector<std::string>();
  }
  // A key of a configuration has the value as it stands there; elsewhere a list is several options.
  const bool is_config = name == "with";
  const std::string front = dot == std::string::npos ? "" : key.substr(dot + 1) + "=";
  std::vector<std::string> words;
  const auto add = [&](const toml::node& each) {
    if (each.is_boolean() && !is_config) {
      refuse(fmt::format("'{}' takes a value, not true or false", key));
    }
    if (!each.is_value() && !(is_config && each.is_array())) {
      refuse(fmt::format("'{}': expected a string, a number or a list of them", key));
    }
    if (!taken.get_positional()) {
      words.push_back("--" + name);
    }
    words.push_back(front +
                    (is_config && dot != std::string::npos ? toml_text(each) : value_text(each)));
  };
  const toml::array* list = value.as_array();
  if (list == nullptr || is_config) {
    add(value);
  } else {
    for (const toml::node& each : *list) {
      add(each);
    }
  }
  return words;
}

// What no option checks by itself: a row would end with it, perhaps hours later.
void RowCommand::check_values(const std::filesystem::path& folder) const {
  const auto board = command_->get_option("--board")->as<std::string>();
  const std::filesystem::path board_file = folder / board;
  std::error_code none;
  try {
    spec::load_board(
        std::filesystem::is_regular_file(board_file, none) ? board_file.string() : board,
        command_->get_option("--set")->results());
  } catch (const spec::BoardError& error) {
    refuse(error.what());
  }
  if (command_->get_name() != "train") {
    return;
  }
  const std::filesystem::path config = folder / command_->get_option("config")->as<std::string>();
  if (std::filesystem::is_regular_file(config, none)) {
    training::load_train_config(config.string(), command_->get_option("--with")->results());
  }
}

void RowCommand::check(const std::vector<std::string>& words, const std::string& folder) const {
  std::vector<std::string> backwards(words.rbegin(), words.rend());  // as CLI11 takes them
  backwards.push_back(command_->get_name());
  try {
    app_->parse(std::move(backwards));
  } catch (const Parsed&) {
    check_values(folder);
  } catch (const CLI::ParseError& error) {
    refuse(error.what());
  }
}

}  // namespace tpu::driver
