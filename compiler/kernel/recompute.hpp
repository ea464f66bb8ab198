// Values that are cheaper to compute again than to keep in HBM (runs on kernels, behind fusion).
//   before   0: loop  c = convert(x); sums of c          c: f32, written for kernel 1
//            1: loop  y = (c - mean) * scale             reads c
//   after    0: loop  c = convert(x); sums of c          c is not written
//            1: loop  c = convert(x); y = (c - mean) * scale
// A loop kernel takes over the cheap elementwise ops between a large value of another loop kernel
// and values that lie in memory anyway, if that moves fewer bytes in all. The bits stay, since the
// ops are the same. A kernel also writes the one value that several of its results are made of in
// place of these where that is less (a gradient, not its scaled copies). Normalisation layers live
// on it: their gradients want the centred input in f32 and masks, which the graph keeps from the
// forward pass.
#pragma once

#include "kernel/kernels.hpp"
#include "pass/pass_log.hpp"

namespace tpu::compiler {

// Where HBM does not suffice: the traffic that not to keep a byte is worth. What is read once is
// written once too, so this lets the kernel that computes it again read about twice as much.
constexpr double kPriceOfScarceBytes = 2;

// Needs `reads` and `writes` of the kernels (find_buffers) and keeps them right.
// For the kernels of `main` itself: those of its regions read and keep what they did.
// `byte_price`: traffic that it is worth not to keep a byte, beside the traffic that this saves.
void recompute_values(KernelProgram& program, const Function& main, const spec::BoardParams& board,
                      double byte_price = 0, PassLog* log = nullptr);

}  // namespace tpu::compiler
