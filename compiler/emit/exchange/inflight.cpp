// Start, progress and end of a streamed exchange.
#include "emit/exchange/inflight.hpp"

#include <algorithm>

#include "program/estimate.hpp"

namespace tpu::compiler {

static void run_round(EmitContext& ctx, InflightExchange& r) {
  if (r.run.round < static_cast<int64_t>(r.plan.pieces.size())) {
    find_operand(ctx.plan.memory, r.plan, r.run.round);
  }
  r.run.next_round();
}

void advance_inflight(EmitContext& ctx) {
  if (ctx.inflight == nullptr) {
    return;
  }
  InflightExchange& r = *ctx.inflight;
  for (; r.seen_items < ctx.sink.listing.items.size(); ++r.seen_items) {
    if (const auto* c = std::get_if<Command>(&ctx.sink.listing.items[r.seen_items])) {
      r.busy[static_cast<size_t>(c->queue())] += busy_cycles(*c, ctx.sink.listing, ctx.board);
    }
  }
  // A round sends a piece less its last part, twice, through the port of the core.
  const uint64_t round = port_cycles(ctx.board, 2 * (r.plan.bytes - r.plan.part_bytes()));
  while (*std::max_element(r.busy.begin(), r.busy.end()) >= round && !r.run.done()) {
    for (uint64_t& busy : r.busy) {
      busy -= std::min(busy, round);
    }
    run_round(ctx, r);
    r.seen_items = ctx.sink.listing.items.size();
  }
  if (r.run.done()) {
    finish_inflight(ctx);
  }
}

void finish_inflight(EmitContext& ctx) {
  if (ctx.inflight == nullptr) {
    return;
  }
  while (!ctx.inflight->run.done()) {
    run_round(ctx, *ctx.inflight);
  }
  end_streamed(ctx.plan.memory, ctx.inflight->plan);
  ctx.inflight = nullptr;
}

bool needs_inflight(EmitContext& ctx, const Kernel& k) {
  return ctx.inflight != nullptr && must_follow(k, *ctx.inflight->plan.kernel, ctx.plan.memory);
}

void start_inflight(EmitContext& ctx, const Step& step, const StreamPlan& plan) {
  auto started = std::make_unique<InflightExchange>(ctx, plan, step.op_id);
  HalvingRun& run = started->run;
  run.set_registers();
  if (plan.overlaps) {
    started->seen_items = ctx.sink.listing.items.size();
    ctx.inflight = std::move(started);
    return;
  }
  while (!run.done()) {
    run.next_round();
  }
}

}  // namespace tpu::compiler
