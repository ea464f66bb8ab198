// Assembler: text of a whole executable to the executable. The text has one statement a line;
// `;` or `#` start a comment. Numbers are decimal or 0x hexadecimal, strings are in quotes.
//
//   .program "add"                       name of the executable
//   .partitions 1                        cores that run it together
//   .slot argument bytes=512             binding slots, in order (argument, result, constant,
//   scratch) .slot result bytes=512 alias_of=0    `index` counts per kind unless given .arg "x"
//   elem=f32 global=[128] slot=0            local and offsets default to the whole array .result
//   "y" elem=f32 global=[128] slot=1 .constant hex=00000080 .op "add" file="model.py" line=3     op
//   table: what op= of commands refers to .stat estimated_cycles=100 loop: labels are targets of
//   branches
//     li r5, 3
//     dma_in.dma op=0 signal=0:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,128] ...
//     vpu.vpu_kernel wait=0:1:take program=@p0 row_loop=255 col_loop=3 loops=[1,1,1,1] cols=128 ...
//     .access addr=vmem+0 loop=[0,0,0,4096] lane=4 type=f32       operands of the command above
//     halt
//   .vpu p0 registers=2                  vector programs; sections pre .. post
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

// Throws Error with "<name>:<line>: ..." in its message. `board` gives name and hash unless the
// text has a .board statement with them.
exe::ExecutableT assemble(const std::string& text, const std::string& name,
                          const spec::BoardParams& board);

}  // namespace tpu::compiler
