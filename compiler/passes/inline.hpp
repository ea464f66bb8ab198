// Pass `inline`: calls and composites are replaced by the ops of the function they name.
//
//   func @main(%0: f32[2]) {              func @main(%0: f32[2]) {
//     %1 = call %0 {callee=@twice}    =>    %1 = add %0, %0
//     return %1                             return %1
//   func @twice(%2: f32[2]) {             }
//     %3 = add %2, %2
//     return %3
//
// A composite becomes its decomposition. Copied ops get the call's path in front of their own, and
// its call stack if they have none. All functions but main are gone afterwards.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

void inline_calls(Module& module);

}  // namespace tpu::compiler
