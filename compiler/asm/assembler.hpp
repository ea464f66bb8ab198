// Assembler: text of a whole executable to the executable. One statement a line, `;` or `#` start a
// comment; docs/assembler.md is the manual.
//
//   .program "add"                            name of the executable
//   .partitions 1                             cores that run it together; cores=[5]: these ones
//   .slot argument bytes=512                  binding slots, in order
//   .slot result bytes=512
//   .arg "x" elem=f32 global=[128] slot=0     local and offsets default to the whole array
//   .result "y" elem=f32 global=[128] slot=1
//   .op "add" file="model.py" line=3          what `op=` of a command refers to
//     li r5, 3
//   loop:                                     labels are targets of branches
//     dma_in.dma op=0 signal=0:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,128] ...
//     vpu.vpu_kernel wait=0:1:take program=@add row_loop=255 col_loop=3 loops=[1,1,1,1] ...
//     .access addr=vmem+0 loop=[0,0,0,4096] lane=4 type=f32     operand of the command above
//     halt
//   .vpu add registers=2                      a vector program: sections pre .. post
//   body:
//     load r0, a0
//   .end
//
// Fields of a command that are not named are zero; `words` and `accesses` are counted.
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
