// Pass `dce`: ops whose results nobody uses are removed, in all regions.
//
//   %1 = add %0, %0          (nobody uses %1)
//   %2 = multiply %0, %0                            =>     %1 = multiply %0, %0
//   return %2                                              return %1
//
// Arguments of main stay, used or not: they are the program's interface.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// Returns the number of removed ops.
size_t remove_dead_ops(Module& module);

}  // namespace tpu::compiler
