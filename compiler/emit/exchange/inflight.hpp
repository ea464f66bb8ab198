// The exchange in flight: a streamed all_reduce (reduce-scatter, then all-gather) whose rounds
// stand between the commands of the kernels beside it.
#pragma once

#include "emit/context.hpp"
#include "emit/exchange/halving.hpp"
#include "plan/exchange/stream_plan.hpp"

namespace tpu::compiler {

struct InflightExchange {
  InflightExchange(EmitContext& ctx, StreamPlan planned, uint32_t id)
      : plan(std::move(planned)), run(ctx.sink, ctx.channels, plan, *plan.kernel->ops[0], id) {}
  InflightExchange(const InflightExchange&) = delete;
  InflightExchange& operator=(const InflightExchange&) = delete;

  StreamPlan plan;
  HalvingRun run;
  // Of the listing, what advance_inflight() has seen: items, busy cycles of the queues.
  size_t seen_items = 0;
  std::array<uint64_t, spec::kQueueCount> busy{};
};

void start_inflight(EmitContext& ctx, const Step& step, const StreamPlan& plan);
// Lets the exchange in flight go on by as many rounds as the commands since the last call take.
void advance_inflight(EmitContext& ctx);
void finish_inflight(EmitContext& ctx);
// True if the kernel reads what the exchange makes, or writes memory that it uses.
bool needs_inflight(EmitContext& ctx, const Kernel& k);

}  // namespace tpu::compiler
