// Kernels that only move data: concatenation, and results that could not be written where they are
// made.
#include <algorithm>

#include "emit/context.hpp"

namespace tpu::compiler {

void emit_concatenate(EmitContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  const Op& op = *k.ops[0];
  Buffer& out = ctx.memory.at(k.out);
  if (ctx.pads.contains(k.out)) {
    out.in_hbm = true;  // as far as its readers see
    return;
  }
  const int64_t bytes = elem_bytes(op.type().elem);
  const auto dim = static_cast<size_t>(op.as<DimAttrs>().dim);
  int64_t outer = 1, inner = bytes;
  for (size_t d = 0; d < op.type().dims.size(); ++d) {
    (d < dim ? outer : inner) *= d == dim ? 1 : op.type().dims[d];
  }
  ctx.memory.pin({&out});
  place_result(ctx, out);
  int64_t at = 0;
  for (size_t i = 0; i < k.reads.size(); ++i) {
    Buffer& b = ctx.memory.at(k.reads[i]);
    const int64_t run = op.operand_type(i).dims[dim] * inner;
    if (run > 0 && outer > 0) {
      const spec::Addr src = place_of(b);
      const spec::Addr dst = place_of(out, at);
      ctx.sink.copy(src, dst, bytes,
                    {{outer, run, op.type().dims[dim] * inner}, {run / bytes, bytes, bytes}}, id);
    }
    at += run;
  }
  finish_result(ctx, out, id);
  ctx.memory.unpin();
}

// Arguments that are results too, in slots that other results will take, move to scratch first.
void save_overwritten_arguments(EmitContext& ctx, uint32_t id) {
  if (ctx.arguments_saved) {
    return;
  }
  ctx.arguments_saved = true;
  for (const Kernel& k : ctx.kernels.kernels) {
    if (k.kind != KernelClass::kCopyOut || ctx.result_home[k.move().result] != nullptr) {
      continue;
    }
    Buffer& b = ctx.memory.at(k.reads[0]);
    if (b.slot < 0 || b.scratch || b.vmem >= 0) {
      continue;
    }
    for (const Kernel& w : ctx.kernels.kernels) {
      const int target = ctx.slots.first_result + static_cast<int>(w.move().result);
      if (w.kind != KernelClass::kCopyOut || w.order == k.order ||
          ctx.slots.root(target) != ctx.slots.root(b.slot) ||
          ctx.result_home[w.move().result] == k.reads[0]) {
        continue;
      }
      const spec::Addr from = home_of(b);
      b.slot = -1;
      ctx.memory.give_home(b);
      ctx.sink.copy_bytes(from, home_of(b), b.bytes, elem_bytes(b.value->type.elem), id);
      break;
    }
  }
}

void emit_copy_out(EmitContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  save_overwritten_arguments(ctx, id);
  Buffer& b = ctx.memory.at(k.reads[0]);
  const int slot = ctx.slots.first_result + static_cast<int>(k.move().result);
  if (b.bytes == 0 || ctx.result_home[k.move().result] == k.reads[0]) {
    return;
  }
  const bool same_place = b.slot >= 0 && !b.scratch && b.in_hbm && b.offset == 0 &&
                          ctx.slots.root(slot) == ctx.slots.root(b.slot);
  if (same_place) {
    return;
  }
  const spec::Addr src = place_of(b);
  ctx.sink.copy_bytes(src, hbm_addr(slot, 0), b.bytes, elem_bytes(b.value->type.elem), id);
}

}  // namespace tpu::compiler
