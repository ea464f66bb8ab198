// The exchange in flight: a streamed all_reduce (reduce-scatter, then all-gather) whose rounds
// stand between the commands of the kernels beside it.
#pragma once

#include <memory>

#include "emit/context.hpp"
#include "emit/exchange/halving.hpp"
#include "plan/exchange/stream_plan.hpp"

namespace tpu::compiler {

struct InflightExchange {
  InflightExchange(EmitContext& ctx, StreamPlan planned, uint32_t op_id)
      : plan(std::move(planned)), id(op_id) {
    begin(ctx, plan);
  }
  InflightExchange(const InflightExchange&) = delete;
  InflightExchange& operator=(const InflightExchange&) = delete;

  bool done() const { return run->done() && phase == plan.phases.size(); }
  void next_round(EmitContext& ctx);  // of the next phase, if one has ended

  StreamPlan plan;
  std::unique_ptr<HalvingRun> run;
  size_t phase = 0;  // the next one of plan.phases
  const uint32_t id;
  // Of the listing, what advance_inflight() has seen: items, busy cycles of the queues.
  size_t seen_items = 0;
  std::array<uint64_t, spec::kQueueCount> busy{};

 private:
  void begin(EmitContext& ctx, const HalvingPlan& part);
};

void start_inflight(EmitContext& ctx, const Step& step, const StreamPlan& plan);
// Lets the exchange in flight go on by as many rounds as the commands since the last call take.
void advance_inflight(EmitContext& ctx);
void finish_inflight(EmitContext& ctx);
// True if the kernel reads what the exchange makes, or writes memory that it uses.
bool needs_inflight(EmitContext& ctx, const Kernel& k);

}  // namespace tpu::compiler
