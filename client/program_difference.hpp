// Whether two executables run the same. Those of one program may differ in what is said of them:
// names and lines of the source that it was traced from.
#pragma once

#include <optional>
#include <string>

#include "exe/executable.hpp"

namespace tpu::client {

// What one has otherwise than the other ("arguments", "results", "constants", "code", ...), the
// first of what a reader would look for; nothing: they run the same.
std::optional<std::string> program_difference(const exe::ExecutableT& one,
                                              const exe::ExecutableT& other);

}  // namespace tpu::client
