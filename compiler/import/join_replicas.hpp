// Programs of replicas that differ by their number, as one program. PyTorch/XLA's replica r writes
// its number into its program: as a constant, as the padding or the start of a slice.
//   replica 0        replica 1         all
//     %c = 5           %c = 7            %t = [5, 7]; %c = %t[replica]
//     pad x low=0      pad x low=4       %p = pad x low=4 high=4; %p[4 - [0, 4][replica] ..]
//     slice x [0:4]    slice x [4:8]     x[[0, 4][replica] ..]
//     %c = 1           %arg1             %arg1; replica 0 is given 1 as that argument
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.hpp"

namespace tpu::compiler {

// What a replica passes as an argument of the joined program.
struct JoinedArgument {
  size_t own = 0;                 // its own argument of that number
  std::optional<Dense> constant;  // or this
};

struct JoinedReplicas {
  Module module;
  std::vector<std::vector<JoinedArgument>> arguments;  // by replica and argument of the module
};

// Programs of one partition a replica, by replica, as the import makes them: each is for all
// replicas. Throws Contradiction with the first difference that one program cannot
// have.
JoinedReplicas join_replicas(const std::vector<Module>& programs);

}  // namespace tpu::compiler
