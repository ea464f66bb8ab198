// jax.profiler: the profile of the simulated board (Board::take_xspace()) beside that of the host.
#pragma once

#include "abi/profiler.h"

namespace tpu::pjrt {

/// The functions that the extension leads to.
extern PLUGIN_Profiler_Api profiler_table;

}  // namespace tpu::pjrt
