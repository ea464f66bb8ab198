// One row a variable; texts that describe the board are read by the code of the command `tpuboard`.
#include "client_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <vector>

#include "cli/board_arguments.hpp"

namespace tpu::client {
namespace {

constexpr std::string_view kPrefix = "TPUBOARD_";

struct Reading {
  ClientOptions options;
  driver::BoardArguments board;
};

[[noreturn]] void refuse(const std::string& text) {
  throw driver::Error(driver::ErrorCode::kInvalidArgument, text);
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

std::string one_of(const std::string& text, const std::vector<std::string>& choices) {
  for (const std::string& choice : choices) {
    if (text == choice) {
      return text;
    }
  }
  refuse(fmt::format("'{}' is none of {}", text, fmt::join(choices, ", ")));
}

double number_of(const std::string& text, double most) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(number >= 0) || number > most) {
    refuse(fmt::format("'{}' is no number from 0 to {}", text, most));
  }
  return number;
}

int whole_number_of(const std::string& text, int most) {
  const double number = number_of(text, most);
  if (number != static_cast<int>(number)) {
    refuse(fmt::format("'{}' is no whole number", text));
  }
  return static_cast<int>(number);
}

bool flag_of(const std::string& text) { return one_of(text, {"0", "1"}) == "1"; }

struct Variable {
  std::string_view name;  // without the prefix
  void (*read)(const std::string& text, Reading& to);
};

// In the order of docs/jax.md.
constexpr Variable kVariables[] = {
    {"PLATFORM",
     [](const std::string& text, Reading& to) {
       to.options.platform = one_of(text, {"tpu", "tpuboard"});
     }},
    {"BOARD", [](const std::string& text, Reading& to) { to.board.open.preset = text; }},
    {"SET", [](const std::string& text, Reading& to) { to.board.open.overrides = list_of(text); }},
    {"STYLE",
     [](const std::string& text, Reading& to) {
       std::vector<std::string> names;
       for (const auto& [name, style] : compiler::style_names()) {
         names.push_back(name);
       }
       to.options.style = compiler::style_names().at(one_of(text, names));
     }},
    {"THREADS", [](const std::string& text,
                   Reading& to) { to.board.open.sim.threads = whole_number_of(text, 1024); }},
    {"SIMD",
     [](const std::string& text, Reading& to) {
       to.board.open.sim.simd = one_of(text, {"scalar", "avx2", "avx512", "avx512_bf16", "amx"});
     }},
    {"TIME_LIMIT",
     [](const std::string& text, Reading& to) { to.board.open.time_limit = number_of(text, 1e9); }},
    {"PROGRESS", [](const std::string& text,
                    Reading& to) { to.board.open.progress_seconds = number_of(text, 1e9); }},
    {"CHECK",
     [](const std::string& text, Reading& to) { to.board.open.sim.check = flag_of(text); }},
    {"SCHEDULE_SEED",
     [](const std::string& text, Reading& to) {
       to.board.open.sim.schedule_seed =
           static_cast<uint64_t>(whole_number_of(text, std::numeric_limits<int>::max()));
     }},
    {"HANG_REPORT", [](const std::string& text, Reading& to) { to.board.open.hang_report = text; }},
    {"OP_TIMES",
     [](const std::string& text, Reading& to) { to.board.open.sim.op_times = flag_of(text); }},
    {"MXU", [](const std::string& text, Reading& to) { to.board.mxu = list_of(text); }},
    {"VERILOG", [](const std::string& text, Reading& to) { to.board.verilog = list_of(text); }},
    {"TRACE", [](const std::string& text, Reading& to) { to.board.open.sim.trace_path = text; }},
    {"WAVES", [](const std::string& text, Reading& to) { to.board.open.sim.waves_path = text; }},
    {"WAVES_STEPS", [](const std::string& text, Reading& to) { to.board.waves_steps = text; }},
    {"WAVES_SCOPE",
     [](const std::string& text, Reading& to) { to.board.open.sim.waves_scopes = list_of(text); }},
    {"WAVES_TRIGGER",
     [](const std::string& text, Reading& to) { to.board.open.sim.waves_trigger = text; }},
    {"WAVES_FOR", [](const std::string& text, Reading& to) { to.board.waves_for = text; }},
    {"WAVES_BEFORE",
     [](const std::string& text, Reading& to) {
       to.board.open.sim.waves_before_cycles =
           static_cast<uint64_t>(whole_number_of(text, std::numeric_limits<int>::max()));
     }},
    {"TIMELINE",
     [](const std::string& text, Reading& to) { to.board.open.sim.timeline_path = text; }},
    {"TIMELINE_STEPS",
     [](const std::string& text, Reading& to) { to.board.timeline_steps = text; }},
    {"MXU_WAVES",
     [](const std::string& text, Reading& to) { to.board.open.sim.mxu_waves_path = text; }},
    {"MXU_WAVES_TILES",
     [](const std::string& text, Reading& to) { to.board.mxu_waves_tiles = text; }},
    {"TILES", [](const std::string& text, Reading& to) { to.board.open.sim.tile_folder = text; }},
    {"GDB", [](const std::string& text, Reading& to) { to.board.open.sim.gdb = text; }},
    {"FIRMWARE", [](const std::string& text, Reading& to) { to.board.open.firmware_file = text; }},
    {"FIRMWARE_LOG",
     [](const std::string& text, Reading& to) { to.board.open.sim.firmware_log = text; }},
    {"TRACE_MMIO",
     [](const std::string& text, Reading& to) { to.board.open.sim.mmio_trace_path = text; }},
    {"GDB_WAIT",
     [](const std::string& text, Reading& to) { to.board.open.sim.gdb_wait = flag_of(text); }},
    {"LOG", [](const std::string& text, Reading& to) { to.options.call_log = text; }},
    {"CACHE",
     [](const std::string& text, Reading& to) {
       to.options.cache = text != "off";
       to.options.cache_folder = text;
     }},
    {"CACHE_SIZE",
     [](const std::string& text, Reading& to) {
       to.options.cache_mib = static_cast<uint64_t>(number_of(text, 1 << 24));
     }},
    {"MONITOR", [](const std::string& text, Reading& to) { to.options.monitor = flag_of(text); }},
};

std::string default_cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && *cache == '/') {
    return std::string(cache) + "/tpuboard";
  }
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/tpuboard" : std::string();
}

void read_variable(const std::string& name, const std::string& text, Reading& to) {
  for (const Variable& variable : kVariables) {
    if (name == std::string(kPrefix) + std::string(variable.name)) {
      try {
        return variable.read(text, to);
      } catch (const driver::Error& error) {
        refuse(fmt::format("environment variable {}: {}", name, error.message()));
      }
    }
  }
  std::vector<std::string> names;
  for (const Variable& variable : kVariables) {
    names.push_back(std::string(kPrefix) + std::string(variable.name));
  }
  refuse(fmt::format("environment variable {} is not known; there are {}", name,
                     fmt::join(names, ", ")));
}

// Which of the variables of a wave file's window go together, as options of the command line do.
void check_waves_window(const Environment& environment) {
  const auto set = [&](const char* name) {
    return environment.contains(std::string(kPrefix) + name);
  };
  const auto refuse_both = [&](const char* one, const char* other) {
    if (set(one) && set(other)) {
      refuse(fmt::format("environment variables {0}{1} and {0}{2} exclude each other", kPrefix, one,
                         other));
    }
  };
  refuse_both("WAVES_STEPS", "WAVES_TRIGGER");
  refuse_both("WAVES_STEPS", "WAVES_BEFORE");
  if (set("WAVES_FOR") && !set("WAVES_TRIGGER")) {
    refuse(fmt::format("environment variable {0}WAVES_FOR: needs {0}WAVES_TRIGGER", kPrefix));
  }
}

}  // namespace

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
  static constexpr std::array<std::string_view, 11> kChanging = {
      "MXU",       "TRACE",        "WAVES",    "WAVES_STEPS",    "WAVES_SCOPE", "WAVES_TRIGGER",
      "WAVES_FOR", "WAVES_BEFORE", "TIMELINE", "TIMELINE_STEPS", "OP_TIMES"};
  for (const auto& [name, text] : changes) {
    const std::string_view rest = std::string_view(name).substr(
        std::min(name.size(), name.starts_with(kPrefix) ? kPrefix.size() : name.size()));
    if (std::ranges::find(kChanging, rest) == kChanging.end()) {
      throw driver::Error(
          driver::ErrorCode::kFailedPrecondition,
          fmt::format("{} is read when the board opens, which it has; of an open board {}{} can "
                      "change",
                      name, kPrefix, fmt::join(kChanging, fmt::format(", {}", kPrefix))));
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
  std::erase_if(environment, [](const auto& variable) { return variable.second.empty(); });
  return environment;
}

ClientOptions read_client_options(const Environment& environment) {
  Reading reading;
  reading.options.cache_folder = default_cache_folder();
  for (const auto& [name, text] : environment) {
    read_variable(name, text, reading);
  }
  check_waves_window(environment);
  try {
    reading.options.open = driver::open_options(reading.board);
  } catch (const driver::UsageError& error) {
    refuse(fmt::format("environment variables TPUBOARD_* (as options of `tpuboard run`): {}",
                       error.what()));
  }
  // A program of JAX is one step, whatever it loops over; Verilog may take any time by default, and
  // so may who sits at a debugger.
  constexpr double kTimeLimitSeconds = 3600;
  driver::OpenOptions& open = reading.options.open;
  if (!open.time_limit && open.sim.mxu.empty() && open.sim.verilog.empty() &&
      open.sim.gdb.empty()) {
    open.time_limit = kTimeLimitSeconds;
  }
  return reading.options;
}

}  // namespace tpu::client
