// Command-line options that `run`, `train` and `bench` share, and their checks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/board_arguments.hpp"

namespace CLI {
class App;
}

namespace tpu::driver {

/// Adds --board, --set, --mxu, ... to a subcommand.
void add_board_options(CLI::App& command, BoardArguments& arguments);

/// A check for CLI::Option::check(): a number of seconds from `least` to `most`. Neither nan, which
/// CLI::Range takes, nor infinity is one.
std::function<std::string(const std::string& text)> seconds_between(double least, double most);

/// A check for CLI::Option::check(): the path of a folder, which "" (a variable of the shell that
/// is not set) is not.
std::string folder_named(const std::string& text);

/// Throws InvalidArgument when writing `output` would replace one of the files `inputs`, by any
/// name or link.
void refuse_overwrite(const std::string& output, const std::vector<std::string>& inputs);

/// Throws InvalidArgument when a file that the options name to be written, or one of `outputs`, is
/// one of `inputs`, or the description of the board; and FailedPrecondition when what is written at
/// the end of the run, as `outputs` are (empty: none; -: standard output), could not be.
void keep_inputs(const OpenOptions& options, const std::vector<std::string>& outputs,
                 std::vector<std::string> inputs);

}  // namespace tpu::driver
