// Whether the tables of an executable agree with each other and with the program image; part of
// read_executable().
#pragma once

#include "exe/executable.hpp"

namespace tpu::exe {

/// Throws ExecutableError that names the first entry that cannot be right. What passes can be used
/// without any further check of indices, shapes and sizes.
void check_tables(const ExecutableT& exe);

}  // namespace tpu::exe
