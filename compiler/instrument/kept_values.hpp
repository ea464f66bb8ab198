// What each op of a program makes, as results of the program: for a debugger, which reads them when
// the program has run and compares them with what the op should have made (value_reference.hpp).
//
//   %1 = log %0                   %1 = log %0
//   %2 = add %1, %0         =>    %2 = add %1, %0
//   return %2                     return %2, reshape %1, reshape %2
//
// Each kept value is written to HBM, and kernels may be fused otherwise than without. Values in the
// bodies of loops and branches are not kept, but what comes out of them is.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace tpu::compiler {

struct KeptValue {
  std::string op;                     // StableHLO name
  std::string where;                  // source line
  Type type;                          // on one core
  std::vector<std::string> operands;  // "%3": kept value 3; "arg2": argument 2; "constant"
};

struct KeptValues {
  size_t results = 0;             // of the program itself: value i is its result `results` + i
  std::vector<KeptValue> values;  // in program order
};

// The values that are kept of a graph of one core, in program order: all but constants and what has
// no elements.
std::vector<Value*> values_to_keep(const Module& module);

// What is said of them.
KeptValues describe_kept(const Module& module);

// Adds the results to the graph of one core; the array of a core is a row of the global one.
void keep_values(Module& module);

}  // namespace tpu::compiler
