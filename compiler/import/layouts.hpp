// How arguments and results of a program lie in memory, where it asks for another order of their
// dimensions than theirs (jax.experimental.layout). Private to the import.
#pragma once

#include <string_view>

#include "ir/graph.hpp"

namespace tpu::compiler::frontend {

// Of a layout as XLA writes it, "{0,1}": the dimensions from minor to major, or "default", "auto".
// The result says which dimension of the array each dimension in memory is, major first; empty: in
// order. Throws Error without a place; Unsupported for tiles, which the board's memory has none of.
Dims read_layout(std::string_view text, size_t rank);

// Gives arguments and results of main with a layout the order in memory, with transposes behind and
// in front of them.
void lay_out(Function& main);

}  // namespace tpu::compiler::frontend
