// --folded: one board is simulated in place of all boards of a pod (docs/pods.md).
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tpu/board.hpp"

namespace CLI {
class App;
}

namespace tpu::driver {

/// Adds --folded to a subcommand.
void add_folded_option(CLI::App& command, bool& folded);

/// What a command opens and loads with --folded: options of one board, without data, that stands
/// for the pod, and the program with the arguments and results of the cores of that board.
using FoldedProgram = std::pair<OpenOptions, std::vector<std::byte>>;

/// `options`: of the pod, for which `program`, from the file `path`, was made. Throws Error:
/// InvalidArgument for a board that is alone, options that need all boards, and a program whose
/// boards do not all do the same.
FoldedProgram fold(const OpenOptions& options, const std::vector<std::byte>& program,
                   const std::string& path);

}  // namespace tpu::driver
