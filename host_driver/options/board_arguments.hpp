// A board as it was asked for: its options, and which of them were given.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "tpu/board.hpp"

namespace tpu::driver {

/// Seconds between reports on a launch that takes long, where people see standard error.
constexpr double kProgressSeconds = 60;

/// What the command line or the environment asked for.
struct BoardArguments {
  BoardArguments() { open.progress_seconds = kProgressSeconds; }

  OpenOptions open;
  std::string xprof;                 // folder that whoever read the option writes; empty: none
  std::string record;                // file, likewise
  std::set<std::string_view> given;  // names of options
};

}  // namespace tpu::driver
