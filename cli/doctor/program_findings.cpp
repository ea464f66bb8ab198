// The program itself, variables of its environment, and a board.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "check/near_names.hpp"
#include "cli/doctor/finding.hpp"
#include "cli/own_files.hpp"
#include "sim/option_names.hpp"
#include "terminal/counted.hpp"
#include "tpu/board.hpp"
#include "tpu/spec/option_table.hpp"
#include "tpu/version.hpp"

namespace tpu::driver {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "TPUBOARD_";
constexpr char kPlugin[] = "libtpuboard_pjrt.so";

// A console script of a wheel is text that starts the program of its package.
bool is_script(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return file.get() == '#' && file.get() == '!';
}

// Programs of this name in the order of the PATH.
std::vector<fs::path> on_the_path() {
  std::vector<fs::path> programs;
  std::istringstream folders(value_of("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path program = fs::path(folder) / "tpuboard";
    std::error_code none;
    const fs::path real = fs::canonical(program, none);
    if (!none && fs::is_regular_file(real, none) && ::access(real.c_str(), X_OK) == 0 &&
        std::find(programs.begin(), programs.end(), real) == programs.end()) {
      programs.push_back(real);
    }
  }
  return programs;
}

// The script of this wheel is beside its Python.
bool is_ours(const fs::path& program, const fs::path& self) {
  const std::string python = python_of_wheel();
  return program == self || (is_script(program) && python.find('/') != std::string::npos &&
                             program.parent_path() == fs::path(python).parent_path());
}

std::vector<std::string> known_variables() {
  std::vector<std::string> names;
  const auto add = [&](const spec::OptionInfo& option) {
    if (!option.variable.empty()) {
      names.push_back(fmt::format("{}{}", kPrefix, option.variable));
    }
  };
  std::ranges::for_each(spec::kBoardOptions, add);
  std::ranges::for_each(spec::kClientOptions, add);
  return names;
}

void look_at_own_variables(Findings& found) {
  const std::vector<std::string> known = known_variables();
  std::vector<std::string> set;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const std::string name(entry.substr(0, entry.find('=')));
    if (!name.starts_with(kPrefix)) {
      continue;
    }
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      found.push_back({Level::kProblem, "variables",
                       fmt::format("unknown environment variable {}", name),
                       fmt::format("frameworks cannot open the board; unset it, or correct it: {}",
                                   spec::near_names(name, known))});
    } else {
      set.emplace_back(entry);
    }
  }
  std::sort(set.begin(), set.end());
  found.push_back(
      {Level::kOk, "variables",
       set.empty() ? "no TPUBOARD_ variable is set" : fmt::format("{}", fmt::join(set, ", ")), ""});
}

void look_at_library(Findings& found) {
  const fs::path named = value_of("TPU_LIBRARY_PATH");
  if (named.empty()) {
    return;
  }
  const fs::path beside = plugin_library();
  const std::string text = "TPU_LIBRARY_PATH is " + named.string();
  std::error_code none;
  if (!fs::exists(named, none)) {
    found.push_back({Level::kProblem, "library", text + ", which does not exist",
                     "frameworks find no board; unset it"});
  } else if (named.filename() != kPlugin) {
    found.push_back(
        {Level::kWarning, "library", text + ", which is another library",
         fmt::format("frameworks use it, and not the board; unset it, or let it name {}",
                     beside.string())});
  } else if (!beside.empty() && !fs::equivalent(named, beside, none)) {
    found.push_back({Level::kWarning, "library", text + ", which belongs to another installation",
                     fmt::format("unset it, or let it name {}", beside.string())});
  } else {
    found.push_back({Level::kOk, "library", text, ""});
  }
}

}  // namespace

std::string value_of(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

void look_at_program(Findings& found) {
  const fs::path self = fs::read_symlink("/proc/self/exe");
  const std::string origin = !python_of_wheel().empty() ? "of a wheel"
                             : source_tree().empty()    ? "installed"
                                                        : "of a build";
  found.push_back({Level::kOk, "program",
                   fmt::format("tpuboard {} {}: {}", kVersion, origin, self.string()), ""});
  for (const fs::path& other : on_the_path()) {
    if (!is_ours(other, self)) {
      found.push_back({Level::kWarning, "program",
                       fmt::format("another tpuboard is on the PATH: {}", other.string()),
                       "remove one of them, or put the wanted one first"});
    }
  }
}

void look_at_variables(Findings& found) {
  look_at_own_variables(found);
  look_at_library(found);
  const std::string platforms = value_of("JAX_PLATFORMS");
  if (!platforms.empty() && platforms.find("tpu") == std::string::npos) {
    found.push_back({Level::kWarning, "JAX", "JAX_PLATFORMS is " + platforms,
                     "JAX does not look for the board; unset it, or JAX_PLATFORMS=tpu"});
  }
  if (const std::string preload = value_of("LD_PRELOAD"); !preload.empty()) {
    found.push_back({Level::kNote, "variables", "LD_PRELOAD is " + preload,
                     "if a program crashes, try without it"});
  }
}

void look_at_board(Findings& found) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    const Board board = Board::open({});
    const size_t devices = board.devices().size();
    const std::string name = board.name();
    board.close();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    found.push_back({Level::kOk, "board",
                     fmt::format("{} with {}, opened and booted in {:.2f} s", name,
                                 spec::counted(devices, "device"), took.count()),
                     ""});
  } catch (const std::exception& error) {
    found.push_back({Level::kProblem, "board",
                     spec::name_options(error.what(), spec::OptionDoor::kCommandLine),
                     "see the warnings above"});
  }
}

}  // namespace tpu::driver
