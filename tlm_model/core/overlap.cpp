// Overlap of a command's operands.
#include "core/overlap.hpp"

#include <algorithm>

#include "command/stride_pattern.hpp"

namespace tpu::model {
namespace {

bool apart(const Operand& a, int64_t at_a, const Operand& b, int64_t at_b) {
  return at_a + a.extent.high <= at_b + b.extent.low || at_b + b.extent.high <= at_a + a.extent.low;
}

}  // namespace

bool matmul_overlaps(const MatmulPlan& plan, int64_t out, int64_t lhs, int64_t rhs) {
  const auto& [result, rows, weights] = plan.bytes;
  return (!apart(plan.out, out, plan.lhs, lhs) &&
          spec::share_bytes(result.at(out), rows.at(lhs))) ||
         (!apart(plan.out, out, plan.rhs, rhs) &&
          spec::share_bytes(result.at(out), weights.at(rhs)));
}

bool transpose_overlaps(const TransposePlan& plan, int64_t src, int64_t dst) {
  return !apart(plan.src, src, plan.dst, dst) &&
         spec::share_bytes(plan.bytes[0].at(src), plan.bytes[1].at(dst));
}

BoxOverlap box_overlap(const StridedBox& box, int64_t src, int64_t dst) {
  const ByteExtent from = spec::box_extent(box, BoxSide::kSrc),
                   to = spec::box_extent(box, BoxSide::kDst);
  if (src + from.high <= dst + to.low || dst + to.high <= src + from.low) {
    return BoxOverlap::kNone;
  }
  const auto levels = static_cast<size_t>(box.levels);
  if (src == dst && std::equal(box.src.begin(), box.src.begin() + levels, box.dst.begin())) {
    return BoxOverlap::kSame;
  }
  return spec::share_bytes(spec::box_pattern(box, BoxSide::kSrc, src),
                           spec::box_pattern(box, BoxSide::kDst, dst))
             ? BoxOverlap::kSome
             : BoxOverlap::kNone;
}

}  // namespace tpu::model
