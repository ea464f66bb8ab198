// Start, progress and end of a streamed exchange.
#include "emit/exchange/inflight.hpp"

#include <algorithm>

#include "program/estimate.hpp"

namespace tpu::compiler {

static void run_round(EmitContext& ctx, InflightExchange& r) {
  if (r.run.round < static_cast<int64_t>(r.plan.pieces.size())) {
    find_operand(ctx.memory, r.plan, r.run.round);
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
  end_streamed(ctx.memory, ctx.inflight->plan);
  ctx.inflight = nullptr;
}

bool needs_inflight(EmitContext& ctx, const Kernel& k) {
  return ctx.inflight != nullptr &&
         must_follow(k, *ctx.inflight->plan.kernel, ctx.slots, ctx.memory);
}

static std::optional<StreamPlan> plan_here(EmitContext& ctx, const Kernel& k) {
  StreamSite site;
  site.exchange = exchange_of(*k.ops[0], ctx.module.num_cores);
  site.piece_bytes = ctx.kernels.piece;
  site.overlaps = ctx.regions == 0;
  const auto next = std::find_if(ctx.kernels.kernels.begin(), ctx.kernels.kernels.end(),
                                 [&](const Kernel& other) { return other.order > k.order; });
  site.next = site.overlaps && next != ctx.kernels.kernels.end() ? &*next : nullptr;
  return plan_streamed(k, site, ctx.slots, ctx.memory, ctx.ops.id(k));
}

bool start_inflight(EmitContext& ctx, const Kernel& k) {
  auto plan = plan_here(ctx, k);
  if (!plan) {
    return false;
  }
  ctx.run_moves();
  auto started = std::make_unique<InflightExchange>(ctx, std::move(*plan), ctx.ops.id(k));
  InflightExchange& r = *started;
  r.run.set_registers();
  r.seen_items = ctx.sink.listing.items.size();
  if (r.plan.overlaps) {
    ctx.inflight = std::move(started);
    return true;
  }
  while (!r.run.done()) {
    r.run.next_round();
  }
  return true;
}

}  // namespace tpu::compiler
