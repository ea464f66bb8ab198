// all_reduce of a packed area by pairwise exchange: partner = core id xor mask, own value plus the
// partner's. Small areas: doubling, stages as in exchange.hpp (of a board: core, x, y; of a pod: x
// and y take turns), the whole area every time; the sum of an element is
// ((0+1)+(2+3))+((4+5)+(6+7)). Large ones: halving (halving.cpp).
#include "emit/context.hpp"
#include "emit/exchange/halving.hpp"

namespace tpu::compiler {

static void exchange_doubling(EmitContext& ctx, const PackedPlan& p, const SumProgram& sum,
                              uint32_t id) {
  std::vector<int> granted;
  for (size_t s = 0; s < p.masks.size(); ++s) {
    granted.push_back(ctx.channels.grant(ctx.channels.mask_link(p.masks[s]),
                                         vmem_range(p.landing[s], p.bytes, true), id));
  }
  int64_t own = p.area;
  for (size_t s = 0; s < p.masks.size(); ++s) {
    const int64_t there = p.landing[s];
    const int64_t mask = p.masks[s];
    ctx.channels.send(ctx.channels.mask_link(mask), vmem_addr(own), vmem_addr(there), p.bytes,
                      p.unit, vmem_range(own, p.bytes, false), id);
    ctx.channels.receive(ctx.channels.mask_link(mask), {vmem_range(there, p.bytes, true)},
                         granted[s], id);
    // The sum replaces what arrived: the area may still be sent.
    combine(ctx.sink, sum, vmem_addr(own), vmem_addr(there), vmem_addr(there), p.bytes, {}, id);
    own = there;
  }
}

static void emit_area(EmitContext& ctx, const PackedPlan& p, const Op& op, uint32_t id) {
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
    exchange_doubling(ctx, p, sum_program(ctx.sink, op), id);
  }
  ctx.sink.run(p.after);
}

void emit_packed(EmitContext& ctx, const Step& step, const std::vector<PackedPlan>& plans) {
  for (const PackedPlan& p : plans) {
    emit_area(ctx, p, *step.kernel->ops[0], step.op_id);
  }
}

}  // namespace tpu::compiler
