// Steps of kernels that move windows by a list, and of slices at computed places.
#include "plan/plan.hpp"

namespace tpu::compiler {

// The plan's moves go before it; results that must be at home go there behind it.
template <typename Plan>
static std::optional<Step> finished_step(PlanContext& ctx, const Kernel& k,
                                         std::optional<Plan> plan) {
  if (!plan) {
    return std::nullopt;
  }
  Step step = begin_step(ctx, k);
  step.plan = std::move(*plan);
  for (size_t i = 0; i < k.ops[0]->results.size(); ++i) {
    finish_result(ctx.memory, ctx.memory.at(k.ops[0]->result(i)), step.op_id);
  }
  end_step(ctx, step);
  ctx.memory.pins().clear();
  return step;
}

std::optional<Step> plan_indexed_kernel(PlanContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  if (k.ops[0]->kind == Kind::kIndexedCombine) {
    return finished_step(ctx, k, plan_combine(k, ctx.board, ctx.memory, id));
  }
  return finished_step(ctx, k, plan_indexed(k, ctx.board, ctx.memory, id));
}

std::optional<Step> plan_dynamic(PlanContext& ctx, const Kernel& k) {
  const bool slice = k.kind == KernelClass::kDynamicSlice;
  if (slice && read_in_place(ctx, k)) {
    return begin_step(ctx, k);
  }
  if (slice && !k.move().arguments.empty()) {
    copy_argument(ctx, k);
    return finished_step(ctx, k, std::optional(MovesOnly{}));
  }
  return finished_step(ctx, k,
                       std::optional(slice ? plan_dynamic_slice(k, ctx.memory)
                                           : plan_dynamic_update(k, ctx.memory, ctx.ops.id(k))));
}

}  // namespace tpu::compiler
