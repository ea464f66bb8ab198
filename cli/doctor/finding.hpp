// What `tpuboard doctor` has found, and those that look.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tpu::driver {

enum class Level : uint8_t {
  kOk,
  kNote,     ///< works, and some users have to know it
  kWarning,  ///< something does not work, such as a framework of another version, or is slow
  kProblem   ///< the board does not run, or a variable or package keeps frameworks from it
};

struct Finding {
  Level level = Level::kOk;
  std::string topic;
  std::string text;
  std::string advice;  ///< what to do; empty: nothing
};
using Findings = std::vector<Finding>;

/// Of an environment variable; empty: it is not set.
std::string value_of(const char* name);

/// This program, and others of its name on the PATH.
void look_at_program(Findings& found);
/// Processor, cores, memory, kernel and limits of the process.
void look_at_host(Findings& found);
/// Home, cache, temporary and shared folders; locale.
void look_at_folders(Findings& found);
/// Environment variables of the board and of frameworks.
void look_at_variables(Findings& found);
/// Frameworks and packages of a Python. `python`: empty for the usual one.
void look_at_python(const std::string& python, Findings& found);
/// Opens a board, which boots its firmware.
void look_at_board(Findings& found);

}  // namespace tpu::driver
