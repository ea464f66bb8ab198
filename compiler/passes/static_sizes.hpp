// Pass `static_sizes`: ops that take sizes as operands, where these are constants, as the ops that
// have them as attributes.
//   before   %n = constant [1,2]
//            %y = dynamic_pad %x, %v, %n, %n, %zero
//   after    %y = pad %x, %v {low=[1,2], high=[1,2], interior=[0,0]}
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// Of a module without calls. Throws Error where a size is not known before the program runs. True
// if there were any such ops.
bool make_sizes_static(Module& module);

}  // namespace tpu::compiler
