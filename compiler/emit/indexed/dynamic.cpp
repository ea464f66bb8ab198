// dynamic_slice and dynamic_update_slice: one DMA whose address the sequencer computes. Starts are
// clamped to [0, size of the operand - size of the slice].
#include "emit/context.hpp"
#include "plan/indexed/dynamic_plan.hpp"

namespace tpu::compiler {

using spec::ScalarOp;

// kAddressRegister = bytes from the starts that are known to the box.
static void start_address(EmitContext& ctx, const DynamicPlan& p, uint32_t id) {
  const auto fetched = fetch_scalars(ctx, p.scalars, id);
  ctx.sink.insn(ScalarOp::kLi, kAddressRegister, 0, 0, 0);
  for (const DynamicStart& start : p.starts) {
    if (start.scalar < 0) {
      scalar(ctx, start.value, kScalarRegister);
    } else {
      read_scalar(ctx.sink, fetched.at(static_cast<size_t>(start.scalar)), start.value->type.elem,
                  kScalarRegister);
    }
    ctx.sink.insn(ScalarOp::kMax, kScalarRegister, kScalarRegister, 0, 0);
    ctx.sink.load_immediate(kLimitRegister, start.limit);
    ctx.sink.insn(ScalarOp::kMin, kScalarRegister, kScalarRegister, kLimitRegister, 0);
    ctx.sink.load_immediate(kLimitRegister, start.stride);
    ctx.sink.insn(ScalarOp::kMul, kScalarRegister, kScalarRegister, kLimitRegister, 0);
    ctx.sink.insn(ScalarOp::kAdd, kAddressRegister, kAddressRegister, kScalarRegister, 0);
  }
}

void emit_dynamic(EmitContext& ctx, const Step& step, const DynamicPlan& p) {
  if (p.nothing) {
    return;
  }
  start_address(ctx, p, step.op_id);
  spec::Addr src = p.src, dst = p.dst;
  (p.update ? dst : src).reg = kAddressRegister;
  ctx.sink.copy_window(src, dst, p.unit, p.dims, p.window, step.op_id);
}

}  // namespace tpu::compiler
