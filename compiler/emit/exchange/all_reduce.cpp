// all_reduce by pairwise exchange: partner = core id xor mask, own value plus the partner's.
// Small buckets: doubling, masks ascending (core, x, y), the whole bucket every time; the sum of an
// element is ((0+1)+(2+3))+((4+5)+(6+7)). Large ones: halving (halving.cpp). Streamed buckets
// go piece by piece from home to home; packed ones lie in VMEM as a whole.
#include "emit/exchange/inflight.hpp"
#include "plan/exchange/packed_plan.hpp"

namespace tpu::compiler {

static void exchange_doubling(EmitContext& ctx, const PackedPlan& p, const Exchange& exchange,
                              const SumProgram& sum, uint32_t id) {
  std::vector<int> granted;
  for (size_t s = 0; s < exchange.stages(); ++s) {
    granted.push_back(ctx.channels.grant(ctx.channels.mask_link(exchange.masks[s]),
                                         vmem_range(p.landing[s], p.bytes, true), id));
  }
  int64_t own = p.area;
  for (size_t s = 0; s < exchange.stages(); ++s) {
    const int64_t there = p.landing[s];
    ctx.channels.send(ctx.channels.mask_link(exchange.masks[s]), vmem_addr(own), vmem_addr(there),
                      p.bytes, p.unit, vmem_range(own, p.bytes, false), id);
    ctx.channels.receive(ctx.channels.mask_link(exchange.masks[s]),
                         vmem_range(there, p.bytes, true), granted[s], id);
    // The sum replaces what arrived: the bucket may still be sent.
    combine(ctx.sink, sum, vmem_addr(own), vmem_addr(there), vmem_addr(there), p.bytes, {}, id);
    own = there;
  }
}

static void emit_packed(EmitContext& ctx, const PackedPlan& p, const Exchange& exchange,
                        const Op& op, uint32_t id) {
  ctx.sink.run(p.before);
  if (p.used < p.bytes) {
    ctx.sink.fill(vmem_addr(p.area + p.used), p.unit, (p.bytes - p.used) / p.unit, 0, id);
  }
  if (p.halves) {
    HalvingRun run(ctx.sink, ctx.channels, p.halving, op, id);
    run.set_registers();
    while (!run.done()) {
      run.next_round();
    }
  } else {
    exchange_doubling(ctx, p, exchange, sum_program(ctx.sink, op), id);
  }
  ctx.sink.run(p.after);
}

bool emit_all_reduce(EmitContext& ctx, const Kernel& k) {
  finish_inflight(ctx);  // exchanges use the same channels, one after the other
  if (k.exchange().streamed) {
    return start_inflight(ctx, k);
  }
  const uint32_t id = ctx.ops.id(k);
  const Exchange exchange = exchange_of(*k.ops[0], ctx.module.num_cores);
  const auto plans = plan_packed(k, exchange, ctx.kernels.piece, ctx.board, ctx.memory, id);
  if (!plans) {
    return false;
  }
  for (const PackedPlan& p : *plans) {
    emit_packed(ctx, p, exchange, *k.ops[0], id);
  }
  return true;
}

}  // namespace tpu::compiler
