// Command-line options that commands share, and their checks.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/usage_error.hpp"
#include "options/board_arguments.hpp"

namespace CLI {
class App;
}

namespace tpu::driver {

/// Adds the options of the board, --board, --set, --mxu, .., to a subcommand.
void add_board_options(CLI::App& command, BoardArguments& arguments);

/// Adds `--json [FILE]` to a subcommand that prints a list, and sets what it runs. `file` is "-"
/// (standard output) without FILE; it must live as long as the subcommand.
void add_list_json_option(CLI::App& command, std::string& file, std::function<void()> run);

/// A check for CLI::Option::check(): a number of seconds from `least` to `most`. Neither nan, which
/// CLI::Range takes, nor infinity is one.
std::function<std::string(const std::string& text)> seconds_between(double least, double most);

/// A check for CLI::Option::check(): the path of a folder, which "" (a variable of the shell that
/// is not set) is not.
std::string folder_named(const std::string& text);

/// Splits "KEY=VALUE" at the first '='; throws UsageError that names `option`.
std::pair<std::string, std::string> split_assignment(const std::string& text,
                                                     const std::string& option);

/// Throws InvalidArgument when writing `output` would replace one of the files `inputs`, by any
/// name or link.
void refuse_overwrite(const std::string& output, const std::vector<std::string>& inputs);

/// Throws InvalidArgument when a file that options of the board name to be written, or one of
/// `outputs`, is one of `inputs`, or one that options of the board name to be read; and
/// FailedPrecondition when what is written at the end of the run, as `outputs` are (empty: none; -:
/// standard output), could not be.
void keep_inputs(const BoardArguments& arguments, const std::vector<std::string>& outputs,
                 std::vector<std::string> inputs);

}  // namespace tpu::driver
