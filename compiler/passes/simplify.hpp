// Pass `simplify`: canonicalise, fold, cse and dce until nothing changes.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

void simplify(Module& module);

}  // namespace tpu::compiler
