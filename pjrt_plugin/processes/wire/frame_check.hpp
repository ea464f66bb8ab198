// What FlatBuffers' verifier does not look at: alignment of the elements of vectors.
#pragma once

#include "process_wire_generated.h"

namespace tpu::pjrt {

bool is_aligned(const wire::Frame& frame);

}  // namespace tpu::pjrt
