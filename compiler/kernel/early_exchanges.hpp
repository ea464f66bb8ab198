// Kernel pass `early_exchanges`: exchanges start early, and what reads them runs late.
//
//   contract    s = q . k                    exchange    k1 = collective_permute k
//   loop        p = softmax s                contract    s = q . k
//   exchange    k1 = collective_permute k    loop        p = softmax s
//   contract    t = q . k1                   contract    t = q . k1
//
// Commands of a core begin in the order of the listing, so an exchange that follows a matmul in it
// cannot run beside it. An all_gather, all_to_all or collective_permute goes up to where its
// operand is made, as far as its own time needs. Where that hides less than all of it, elementwise
// kernels that read its result (the additions of a reduce-scatter) go down behind kernels that do
// not need them. Kernels with effects keep their order, and so do all-reduces. The values stay, and
// the order of additions in each of them.
// Small exchanges, which are mostly latency, stay.
// Results of exchanges are alive longer. So that they stay few, an exchange passes at most one
// kernel that reads the result of another one, and none if it is as large as kLargeShare of HBM. An
// all_gather passes elementwise kernels that do so, too. It comes last: additions that went down
// hide nothing where they were.
#pragma once

#include "kernel/kernels.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

// Of the kernels of `program`, not of its regions. `in_pieces`: what is left of an exchange may go
// beside the product that reads or makes its array (pieced_exchanges.hpp).
void start_exchanges_early(KernelProgram& program, const spec::BoardParams& board, bool in_pieces);

}  // namespace tpu::compiler
