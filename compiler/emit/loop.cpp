// Loop kernels: their tiles one after the other, each loaded, computed and stored.
#include "emit/loop.hpp"

namespace tpu::compiler {

void emit_loop(EmitContext& ctx, const Step& step, const LoopPlan& plan) {
  const Kernel& k = *step.kernel;
  TileState state;
  int64_t number = 0;
  for_each_tile(k, plan, [&](const Dims& start, const Dims& count, bool first, bool last) {
    emit_tile(ctx, k, plan, step.places, state, start, count, first, last, number++, step.op_id);
  });
}

}  // namespace tpu::compiler
