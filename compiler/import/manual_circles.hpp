// Manual parts that depend on themselves by way of the program around them. Private to the import.
#pragma once

#include "import/bytecode.hpp"
#include "import/manual_ops.hpp"

namespace tpu::compiler::frontend {

// Cuts such parts of the region where the program of all devices lies between. What a later part
// reads of an earlier one goes through that program: as a stack, of which each device has an
// element. Left as they are: parts that are manual along some axes only, and tokens.
void cut_manual_circles(bytecode::RawRegion& region, ManualProgram& program);

}  // namespace tpu::compiler::frontend
