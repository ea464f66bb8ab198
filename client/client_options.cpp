// Options of the board and of programs of a framework from environment variables, as
// spec/sim/options.toml has them.
#include "client_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "check/near_names.hpp"
#include "file/files.hpp"
#include "options/option_check.hpp"
#include "options/option_values.hpp"
#include "sim/option_names.hpp"
#include "tpu/spec/option_table.hpp"

namespace tpu::client {
namespace {

using spec::kBoardOptions;
using spec::kClientOptions;
using spec::OptionInfo;
using spec::OptionType;

constexpr std::string_view kPrefix = "TPUBOARD_";

// Options of programs of a framework, as they are written.
struct ClientTexts {
  std::string platform = "tpu";
  std::string style = "best";
  std::string fit = "auto";
  std::string roll_layers = "auto";
  std::string call_log;
  std::string cache;
  uint64_t cache_mib = 1024;
  double replica_seconds = ClientOptions().replica_seconds;
  bool monitor = true;
  int process = -1;
  int processes = 0;
  std::string process_folder;
};

struct Reading : driver::BoardArguments {
  ClientTexts client;
};

[[noreturn]] void refuse(const std::string& text) {
  throw driver::Error(driver::ErrorCode::kInvalidArgument, text);
}

std::string variable_of(const OptionInfo& option) {
  return fmt::format("{}{}", kPrefix, option.variable);
}

std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(';', begin), text.size());
    if (end > begin) {
      parts.push_back(text.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  return parts;
}

// "a=1,b=2" behind the name of the variable is not one setting with a strange value.
void need_one_setting(const OptionInfo& option, const std::string& part) {
  std::string separated = part;
  size_t comma = part.find(',', std::min(part.find('='), part.size()));
  while (comma != std::string::npos) {
    const size_t next = part.find(',', comma + 1);
    if (part.substr(comma, next - comma).find('=') != std::string::npos) {
      separated[comma] = ';';
    }
    comma = next;
  }
  if (separated != part) {
    refuse(
        fmt::format("environment variable {}: '{}' is more than one setting: separate settings "
                    "by ; as in \"{}\"",
                    variable_of(option), part, separated));
  }
}

void read_value(const OptionInfo& option, const spec::OptionMember<Reading>& member,
                const std::string& text, Reading& to) {
  try {
    for (const std::string& part :
         driver::is_list(option.type) ? list_of(text) : std::vector{text}) {
      if (option.type == OptionType::kAssignments || option.type == OptionType::kUnits) {
        need_one_setting(option, part);
      }
      set_option(option, member, part, to);
    }
  } catch (const driver::OptionError& error) {
    refuse(fmt::format("environment variable {}: {}", variable_of(option), error.what()));
  }
}

// What an unknown name may stand for: "; the closest name is ..", or nothing.
std::string closest_text(std::string_view name, const std::vector<std::string>& names) {
  const size_t most_edits = std::min<size_t>(3, (name.size() - kPrefix.size()) / 3);
  const auto edits = [&](const std::string& other) { return spec::edit_distance(name, other); };
  const auto closest = std::ranges::min_element(names, {}, edits);
  return closest == names.end() || edits(*closest) > most_edits
             ? ""
             : fmt::format("; the closest name is {}", *closest);
}

// The row of a variable; the end of the table: it has none.
template <class Table>
size_t row_of(const Table& table, std::string_view variable) {
  const auto* const found = std::ranges::find(table, variable, &OptionInfo::variable);
  return static_cast<size_t>(found - table.begin());
}

void read_variable(const std::string& name, const std::string& text, Reading& to) {
  const std::string_view variable = std::string_view(name).substr(kPrefix.size());
  if (const size_t row = row_of(kBoardOptions, variable);
      row < kBoardOptions.size() && !variable.empty()) {
    read_value(kBoardOptions[row], spec::kBoardOptionMembers<Reading>[row], text, to);
    if (kBoardOptions[row].type != OptionType::kFlag || text == "1") {
      to.given.insert(kBoardOptions[row].name);
    }
    return;
  }
  if (const size_t row = row_of(kClientOptions, variable); row < kClientOptions.size()) {
    return read_value(kClientOptions[row], spec::kClientOptionMembers<Reading>[row], text, to);
  }
  std::vector<std::string> names;
  const auto add = [&](const OptionInfo& option) {
    if (!option.variable.empty()) {
      names.push_back(variable_of(option));
    }
  };
  std::ranges::for_each(kBoardOptions, add);
  std::ranges::for_each(kClientOptions, add);
  refuse(fmt::format("unknown environment variable {}{}: expected one of {}", name,
                     closest_text(name, names), fmt::join(names, ", ")));
}

// Names of variables that an open board can change.
std::vector<std::string> live_variables() {
  std::vector<std::string> names;
  for (const OptionInfo& option : kBoardOptions) {
    if (option.live && !option.variable.empty()) {
      names.push_back(variable_of(option));
    }
  }
  return names;
}

// Without a file, nothing that is said of it.
void drop_what_needs_it(Environment& environment, const Environment& changes) {
  for (const OptionInfo& option : kBoardOptions) {
    for (const std::string_view other : option.needs) {
      const bool gone = environment[variable_of(spec::board_option(other))].empty();
      if (gone && !option.variable.empty() && !changes.contains(variable_of(option))) {
        environment[variable_of(option)].clear();
      }
    }
  }
}

}  // namespace

std::string text_of(const std::exception& error) {
  return spec::name_options(error.what(), spec::OptionDoor::kEnvironment);
}

Environment environment_of_process() {
  Environment found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (text.starts_with(kPrefix) && equals != std::string_view::npos) {
      found.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return found;
}

Environment changed_environment(Environment environment, const Environment& changes) {
  const std::vector<std::string> live = live_variables();
  for (const auto& [name, text] : changes) {
    if (std::ranges::find(live, name) == live.end()) {
      throw driver::Error(
          driver::ErrorCode::kFailedPrecondition,
          fmt::format("{} cannot change while the board is open; expected one of {}", name,
                      fmt::join(live, ", ")));
    }
    environment[name] = text;
  }
  if (changes.contains("TPUBOARD_WAVES") && !changes.contains("TPUBOARD_WAVES_STEPS")) {
    const bool by_event = !environment["TPUBOARD_WAVES_TRIGGER"].empty() ||
                          !environment["TPUBOARD_WAVES_BEFORE"].empty();
    environment["TPUBOARD_WAVES_STEPS"] = "";
    if (!changes.at("TPUBOARD_WAVES").empty() && !by_event) {
      environment["TPUBOARD_WAVES_STEPS"] = "0.." + std::to_string(UINT64_MAX - 1);
    }
  }
  drop_what_needs_it(environment, changes);
  std::erase_if(environment, [](const auto& variable) { return variable.second.empty(); });
  return environment;
}

ClientOptions read_client_options(const Environment& environment) {
  Reading reading;
  reading.client.cache = driver::default_cache_folder();
  for (const auto& [name, text] : environment) {
    read_variable(name, text, reading);
  }
  try {
    check_given(reading);
  } catch (const driver::Error& error) {
    refuse(spec::name_options(error.message(), spec::OptionDoor::kEnvironment));
  }
  ClientOptions options;
  options.platform = reading.client.platform;
  options.call_log = reading.client.call_log;
  options.style = compiler::style_names().at(reading.client.style);
  options.fit = reading.client.fit == "auto";
  options.roll_layers = reading.client.roll_layers == "on"    ? compiler::RollLayers::kOn
                        : reading.client.roll_layers == "off" ? compiler::RollLayers::kOff
                                                              : compiler::RollLayers::kAuto;
  options.cache = reading.client.cache != "off";
  options.cache_folder = reading.client.cache;
  options.cache_mib = reading.client.cache_mib;
  options.replica_seconds = reading.client.replica_seconds;
  options.monitor = reading.client.monitor;
  options.process = reading.client.process;
  options.processes = reading.client.processes;
  options.process_folder = reading.client.process_folder;
  options.open = reading.open;
  // A program of JAX is one step, whatever it loops over; Verilog may take any time by default, and
  // so may who sits at a debugger.
  constexpr double kTimeLimitSeconds = 3600;
  driver::OpenOptions& open = options.open;
  if (!open.time_limit && open.sim.mxu.empty() && open.sim.verilog.empty() &&
      open.sim.gdb.empty()) {
    open.time_limit = kTimeLimitSeconds;
  }
  return options;
}

}  // namespace tpu::client
