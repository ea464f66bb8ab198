// Kernels of ops that move data, between cores too, formed while the region that holds the op is
// walked.
#pragma once

#include "kernel/fusion.hpp"

namespace tpu::compiler {

// Operands and results lie dense in buffers.
void place_packed(const Op& op, KernelClass kind, Fusion& fusion);

// send and recv.
void place_host(const Op& op, Fusion& fusion);

// The collectives of a bucket. The streamed kernel of a value, if any, stands before the one with
// its rest. `piece`: bytes of a streamed piece.
void place_all_reduce(const Bucket& bucket, int64_t piece, Fusion& fusion);

// Reads the operand through its views as long as one move can follow them in long runs. An
// operand without elements is not read; neither is a constant padding value.
void place_pad(const Op& op, Fusion& fusion);

}  // namespace tpu::compiler
