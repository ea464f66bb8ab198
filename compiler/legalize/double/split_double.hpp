// Pass `split_double`: f64 arrays become pairs of f32 arrays, the nearest f32 and the rest.
//   before   y = add(x, c) : f64[4]
//   after    y_hi, y_lo = sum of pairs (double_math.hpp) : f32[4] each
// It runs on the global graph, so that shardings, loops and bodies are those of f32 arrays. In
// memory an array is IEEE binary64: an argument or a result f64[4] is its bits, ui64[4], behind
// this pass; what the host sees is in ArgInfo::is_double. Regions take two values for each f64.
#pragma once

#include "legalize/pair_splitter.hpp"

namespace tpu::compiler {

// True if anything was split.
bool split_double(Module& module, SplitBorder border = SplitBorder::kMemory);

}  // namespace tpu::compiler
