// Graphs through the compiler's library: the command links it, the driver's library does not.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "exe/executable.hpp"

namespace tpu::driver {

/// Compiles a StableHLO portable artifact for a board. Throws Error (InvalidArgument) with the
/// compiler's text.
std::vector<std::byte> compile_file(const std::string& path, const std::string& board,
                                    const std::vector<std::string>& overrides);

/// Assembly text of a program. Throws Error (InvalidArgument).
std::string disassemble_program(const exe::ExecutableT& program);

}  // namespace tpu::driver
