// The contiguous byte runs that a command reads and writes, for the happens-before checker.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/program.hpp"

namespace tpu::model {

// (address, bytes, write); addresses relative to the memory of the operand.
using RunVisitor = std::function<void(uint64_t address, uint64_t bytes, bool write)>;

// `out`, `lhs`, `rhs`: VMEM addresses of the operands.
void visit_matmul(const MatmulPlan& plan, uint64_t out, uint64_t lhs, uint64_t rhs,
                  const RunVisitor& visit);
// `bases`: VMEM address of each access.
void visit_vpu(const VpuPlan& plan, std::span<const int64_t> bases, const RunVisitor& visit);
void visit_transpose(const TransposePlan& plan, uint64_t src, uint64_t dst,
                     const RunVisitor& visit);
// One side of a transfer; `base` is the address of offset 0 of the box.
void visit_box(const StridedBox& box, BoxSide side, uint64_t base, const RunVisitor& visit);

}  // namespace tpu::model
