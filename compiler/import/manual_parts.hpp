// Manual parts of a program in GSPMD's language that are no functions, as PyTorch/XLA writes them.
// Private to the import.
#pragma once

#include "import/bytecode.hpp"

namespace tpu::compiler::frontend {

// What lies between SPMDFullToShardShape and SPMDShardToFullShape becomes a function and a call,
// the form of jax.shard_map (gspmd.hpp), and each SPMDFullToShardShape gets a `Sharding` in front.
// Programs that have this form stay as they are. `partitions`: how many devices run it; 0: as the
// program says. Throws Error where a value of one device has no place in the program of all.
void outline_manual_parts(bytecode::RawModule& module, int64_t partitions);

}  // namespace tpu::compiler::frontend
