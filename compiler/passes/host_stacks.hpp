// Arrays in the host's memory that one loop fills entry by entry and another reads: activations of
// layers in a scan under jax.checkpoint. A part of the pass `host_memory`.
//
//   while (.., %s = zeros):                                  while (.., %s = zeros):
//     %h = custom_call %x {.., "pinned_host"}                  send %i {channel=1, memory=index}
//     %t = dynamic_update_slice %s, [%h], %i            =>     send %x {channel=1, memory=host}
//     return .., %t                                            return .., %s
//   while (.., %r = the stack):                              while (.., %r = zeros):
//     %g = dynamic_slice %r, %j                                send %j {channel=1, memory=index}
//     %y = custom_call %g {.., "device"}                       %y = recv {channel=1, memory=host}
//
// The loops then carry zeros, which later passes take out.
#pragma once

#include <limits>

#include "ir/graph.hpp"

namespace tpu::compiler {

inline constexpr int64_t kMostTransferBytes = std::numeric_limits<uint32_t>::max();

// The kind of memory that a placement puts its operand into; nothing: another op, or null.
std::optional<MemoryKind> placement(const Op* op);

// Takes channels from `next_channel` on, one for each stack.
void keep_stacks_in_host_memory(Module& module, int64_t& next_channel);

}  // namespace tpu::compiler
