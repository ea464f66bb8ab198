// Whether options of a board hold together, however they were given.
#pragma once

#include <string>
#include <vector>

#include "options/board_arguments.hpp"

namespace tpu::driver {

/// Throws Error (InvalidArgument) for an option in `given` that needs one that is not given, or
/// excludes one that is. Errors name fields.
void check_given(const BoardArguments& arguments);

/// The same for options in a struct, where those are given that differ from their defaults, and for
/// values out of their range.
void check_options(const OpenOptions& options);

/// The same for an open board, except that the window of a file may stay when the file goes.
void check_changed_options(const SimOptions& sim);

/// Names of the fields of SimOptions that differ from their defaults; of those that users set.
std::vector<std::string> given_simulation_options(const OpenOptions& options);

}  // namespace tpu::driver
