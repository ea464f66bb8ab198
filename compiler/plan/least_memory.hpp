// The least HBM that a program needs, found on its kernels before a tile is planned or a command
// made: what is too large by far is refused at once, whatever the planner would make of it.
//   slots (arguments, results, constants)
//   + the most bytes of values at one time that one kernel has made and a later one reads; loops
//     and contractions make theirs beside what they read
//   - VMEM, where some of them may lie
// Not counted, so that a program which fits is never refused: values that are copied to a result or
// yielded by a region (they may lie in their target), virtual pads, what planning adds.
#pragma once

#include "plan/slots.hpp"
#include "plan/virtual_pad.hpp"

namespace tpu::compiler {

// Throws HbmExhausted, with the largest values alive at that time, when that is more than
// `hbm_bytes`.
void check_least_memory(const KernelProgram& kernels, const Slots& slots, const VirtualPads& pads,
                        const spec::BoardParams& board, int64_t hbm_bytes);

}  // namespace tpu::compiler
