// Pass `random_bits`: shorter forms of the code around counter-based random bits. All bits stay.
//
// Counters. The 64-bit position of an element, as jax.random computes it, is a sum of iotas times
// strides. Where no value of it passes 32 bits, its upper half is 0, its lower half one iota:
//
//   %1 = iota {dim=0} : ui64[8,4]
//   %2 = iota {dim=1} : ui64[8,4]
//   %3 = multiply %1, 4                           %1 = iota {dim=0} : ui32[32]
//   %4 = add %3, %2                        =>     %5 = reshape %1 : ui32[8,4]
//   %5 = convert %4 : ui32[8,4]                   %6 = 0
//   %6 = shift_right_logical %4, 32
//
// Keys. A word that is sliced out of a pair of words is read where it was made.
//
// Thresholds. `uniform < p` compares a number that grows with the bits it is made of, so the bits
// are compared in place of it:
//
//   %2 = shift_right_logical %bits, 9
//   %3 = or %2, 0x3f800000
//   %4 = bitcast_convert %3 : f32          =>     %6 = compare %bits, 0x80000000 {lt}
//   %5 = subtract %4, 1
//   %6 = compare %5, 0.5 {lt}
//
// Between the bits and the comparison may be any steps that never descend: sums and products with
// constants, minimum, maximum, conversions. The bound is found by bisection with the board's own
// arithmetic, so the result is exact.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// True if anything was changed.
bool shorten_random_bits(Module& module);

}  // namespace tpu::compiler
