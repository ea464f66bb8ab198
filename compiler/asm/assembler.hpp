// Assembler: text of a whole executable to the executable. The text has one statement a line;
// docs/assembler.md is its manual. Fields of a command that are not named are zero; `words` and
// `accesses` are counted.
#pragma once

#include <string>

#include "exe/executable.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

// Throws Error with "<name>:<line>:<column>: ..." in its message. `board` gives name and hash
// unless the text has a .board statement with them.
exe::ExecutableT assemble(const std::string& text, const std::string& name,
                          const spec::BoardParams& board);

}  // namespace tpu::compiler
