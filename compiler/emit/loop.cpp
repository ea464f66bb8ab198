// Loop kernels: their tiles one after the other, each loaded, computed and stored.
#include "emit/loop.hpp"

namespace tpu::compiler {

void emit_loop(EmitContext& ctx, const Step& step, const LoopPlan& plan) {
  const TileSite site{*step.kernel, plan, step.places, step.op_id};
  TileState state;
  int64_t number = 0;
  for_each_tile(site.kernel, plan,
                [&](const Dims& start, const Dims& count, bool first, bool last) {
                  emit_tile(ctx, site, state, {start, count, first, last, number++});
                });
}

}  // namespace tpu::compiler
