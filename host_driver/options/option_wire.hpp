// Options of the simulation for a board in another process.
#pragma once

#include <string>

#include "file/archive.hpp"
#include "options/board_arguments.hpp"

namespace tpu::driver {

/// Names all fields of the options.
void visit_options(spec::Archive& archive, SimOptions& sim);

/// What a board has of which both its own process and the one that uses it asked for options.
/// Throws Error (InvalidArgument) for an option with two values, which the text has, and for one
/// that names a file, a port or threads and that only the user asked for.
SimOptions merged_options(const SimOptions& board, const SimOptions& user);

/// Throws Error (InvalidArgument) for an option of the board that the user has not asked for, with
/// both values.
void check_nothing_added(const SimOptions& board, const SimOptions& user);

/// Whether files or profiles want to know what launches run.
bool names_launches(const SimOptions& sim);

/// The name of an option that looks at all boards of a pod at once, or writes a file for all of
/// them, if one is given; else empty.
std::string option_of_one_process(const SimOptions& sim);

}  // namespace tpu::driver
