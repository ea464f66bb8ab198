// Start, progress and end of a streamed exchange.
#include "emit/exchange/inflight.hpp"

#include <algorithm>

#include "program/estimate.hpp"

namespace tpu::compiler {

void InflightExchange::begin(EmitContext& ctx, const HalvingPlan& part) {
  run = std::make_unique<HalvingRun>(ctx.sink, ctx.channels, part, *plan.kernel->ops[0], id);
  run->set_registers();
}

void InflightExchange::next_round(EmitContext& ctx) {
  if (run->done()) {
    begin(ctx, plan.phases[phase++]);
  }
  if (phase == 0 && plan.overlaps && run->round < static_cast<int64_t>(plan.pieces.size())) {
    find_operand(ctx.plan.memory, plan, run->round);
  }
  run->next_round();
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
  while (*std::max_element(r.busy.begin(), r.busy.end()) >= round && !r.done()) {
    for (uint64_t& busy : r.busy) {
      busy -= std::min(busy, round);
    }
    r.next_round(ctx);
    r.seen_items = ctx.sink.listing.items.size();
  }
  if (r.done()) {
    finish_inflight(ctx);
  }
}

void finish_inflight(EmitContext& ctx) {
  if (ctx.inflight == nullptr) {
    return;
  }
  while (!ctx.inflight->done()) {
    ctx.inflight->next_round(ctx);
  }
  end_streamed(ctx.plan.memory, ctx.inflight->plan);
  ctx.inflight = nullptr;
}

bool needs_inflight(EmitContext& ctx, const Kernel& k) {
  return ctx.inflight != nullptr && must_follow(k, *ctx.inflight->plan.kernel, ctx.plan.memory);
}

void start_inflight(EmitContext& ctx, const Step& step, const StreamPlan& plan) {
  auto started = std::make_unique<InflightExchange>(ctx, plan, step.op_id);
  if (plan.overlaps) {
    started->seen_items = ctx.sink.listing.items.size();
    ctx.inflight = std::move(started);
    return;
  }
  while (!started->done()) {
    started->next_round(ctx);
  }
}

}  // namespace tpu::compiler
