// Whether what a started command writes shares bytes with what it reads
// (spec/command/stride_pattern.hpp), at the addresses that it has. No SystemC.
#pragma once

#include <cstdint>

#include "core/program.hpp"

namespace tpu::model {

// Whether the result shares a byte with an operand; addresses of the operands, which lie in one
// memory. Extents that are apart cost nothing.
bool matmul_overlaps(const MatmulPlan& plan, int64_t out, int64_t lhs, int64_t rhs);
bool transpose_overlaps(const TransposePlan& plan, int64_t src, int64_t dst);

enum class BoxOverlap {
  kNone,
  kSame,  // every element is copied onto itself
  kSome,
};
// Source and destination of a copy inside one memory.
BoxOverlap box_overlap(const StridedBox& box, int64_t src, int64_t dst);

}  // namespace tpu::model
