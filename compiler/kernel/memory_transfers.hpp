// Kernel pass `host_transfers`: kernels run beside transfers with the host's memory.
//
//   send %1                                   multiply ..
//   multiply ..                         =>    send %1, start
//   ..                                        ..
//   %3 = recv                                 %3 = recv, start
//   dot_general %3                            ..
//                                             send %1, finish
//                                             %3 = recv, finish
//                                             dot_general %3
//
// A core has one transfer at a time. At most four of one direction are under way or wait, so that a
// program needs few bytes of HBM more than with transfers that it waits for. Transfers shorter than
// a call of the host stay whole, and so do those that a handler answers.
#pragma once

#include <cstdint>

#include "kernel/kernels.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

// For the kernels of one program or region, not of the regions in it. `cores`: of the program.
void transfer_beside_kernels(KernelProgram& program, const spec::BoardParams& board, int64_t cores);

}  // namespace tpu::compiler
