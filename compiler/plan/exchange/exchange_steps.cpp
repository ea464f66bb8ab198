// Steps of collectives.
#include <algorithm>

#include "plan/plan.hpp"

namespace tpu::compiler {

namespace {

std::optional<StreamPlan> plan_streamed_here(PlanContext& ctx, const Kernel& k,
                                             const Exchange& exchange, uint32_t op_id) {
  StreamSite site;
  site.exchange = exchange;
  site.piece_bytes = ctx.kernels.piece;
  site.overlaps = k.ops[0]->parent->parent == nullptr;
  const auto next = std::find_if(ctx.kernels.kernels.begin(), ctx.kernels.kernels.end(),
                                 [&](const Kernel& other) { return other.order > k.order; });
  site.next = site.overlaps && next != ctx.kernels.kernels.end() ? &*next : nullptr;
  return plan_streamed(k, site, ctx.memory, op_id);
}

template <typename Plan>
std::optional<Step> step_of(PlanContext& ctx, const Kernel& k, std::optional<Plan> plan) {
  if (!plan) {
    return std::nullopt;
  }
  Step step = begin_step(ctx, k);
  step.plan = std::move(*plan);
  return step;
}

}  // namespace

std::optional<Step> plan_all_reduce(PlanContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  const Exchange exchange = exchange_of(*k.ops[0], ctx.module.num_cores, row_cores(ctx.board));
  if (k.exchange().streamed) {
    return step_of(ctx, k, plan_streamed_here(ctx, k, exchange, id));
  }
  return step_of(ctx, k, plan_packed(k, exchange, ctx.kernels.piece, ctx.board, ctx.memory, id));
}

std::optional<Step> plan_exchange(PlanContext& ctx, const Kernel& k) {
  return step_of(ctx, k,
                 plan_direct(k, ctx.module.num_cores, ctx.board, ctx.memory, ctx.ops.id(k)));
}

}  // namespace tpu::compiler
