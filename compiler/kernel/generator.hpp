// Loop kernels of counter-based random bits, such as Threefry's: a chain of some hundred ops on two
// 32-bit words and a key.
#pragma once

#include "kernel/kernels.hpp"

namespace tpu::compiler {

inline constexpr size_t kGeneratorWeight = 128;  // of such a chain, see loop_weight()

bool is_word_step(const Op& op);  // one of its ops

// The place in `program`, so far, where the vector unit makes the bits of a block while the matrix
// units work on the next one: the last loop over `domain` that reads a contraction and has room for
// a generator, or a new kernel at the end if the last contraction has no reader yet. -1: none.
int behind_contraction(const KernelProgram& program, const Dims& domain);

}  // namespace tpu::compiler
