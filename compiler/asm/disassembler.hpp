// Disassembler: an executable as the text that the assembler reads; assembling it again gives the
// same bytes. Words that are no program (unreferenced data behind the code) appear as .word.
#pragma once

#include <string>

#include "exe/executable.hpp"

namespace tpu::compiler {

// Throws Error if the image is cut short or holds an unknown opcode in its code.
std::string disassemble(const exe::ExecutableT& executable);

}  // namespace tpu::compiler
