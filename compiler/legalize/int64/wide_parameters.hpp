// The facts of arguments and results of main when 64-bit integers have two values each.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// As many facts as there will be values: low words, then high ones. An argument is donated to a
// result of its type, so that words go to words.
void split_parameters(Function& main);

}  // namespace tpu::compiler
