// Pass `split_complex`: complex64 arrays become pairs of f32 arrays, real and imaginary parts.
//   before   y = multiply(x, c) : complex64[4]
//   after    re = x_re * c_re - x_im * c_im; im = x_re * c_im + x_im * c_re : f32[4] each
// It runs on the global graph, so that shardings, sums over cores and bodies of loops are those of
// f32 arrays. In memory an element is two numbers, real part first: an argument or a result
// complex64[4] is f32[4,2] behind this pass; what the host sees is in ArgInfo::is_complex. Regions
// take two values for each complex one.
#pragma once

#include "legalize/pair_splitter.hpp"

namespace tpu::compiler {

// True if anything was split.
bool split_complex(Module& module, SplitBorder border = SplitBorder::kMemory);

}  // namespace tpu::compiler
