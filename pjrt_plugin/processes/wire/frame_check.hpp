// What FlatBuffers' verifier does not look at: alignment of the elements of vectors, and parts that
// several offsets share, each of which becomes a copy.
#pragma once

#include <cstddef>

#include "process_wire_generated.h"

namespace tpu::pjrt {

bool is_aligned(const wire::Frame& frame);
/// Of strings and vectors of numbers in lists, which is where parts can be shared without end.
size_t listed_bytes(const wire::Frame& frame);

}  // namespace tpu::pjrt
