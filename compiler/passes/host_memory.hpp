// Pass `host_memory`: arrays that the program puts into the host's memory and brings back.
//
//   %1 = custom_call %0 {.., "pinned_host"}         send %0 {channel=1, memory=host}
//   ...                                       =>    ...
//   %2 = custom_call %1 {.., "device"}              %2 = recv {channel=1, memory=host}
//
// Between the two the array needs no HBM. The driver keeps the bytes; each direction is a transfer
// over PCIe. Results that end in the host's memory are written there behind the launch, and
// arguments in it are read in front of the launch: such placements are dropped here. What an op
// other than a placement reads of the host's memory stays in HBM; Module::notes names it.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// Expects a module without calls.
void keep_in_host_memory(Module& module);

}  // namespace tpu::compiler
