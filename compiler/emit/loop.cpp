// Loop kernels: their tiles one after the other, each loaded, computed and stored.
#include "emit/loop.hpp"

#include <algorithm>

#include "emit/exchange/inflight.hpp"

namespace tpu::compiler {

static bool emit_empty(EmitContext& ctx, const Kernel& k, uint32_t id) {
  for (const Value* v : k.writes) {
    if (v->type.count() == 0) {
      continue;
    }
    const Operand* init = nullptr;
    for (const Node& n : k.loop().nest.nodes) {
      if (n.op->result() == v && n.op->kind == Kind::kReduce) {
        init = &n.in[1];
      }
    }
    if (init == nullptr || init->kind != Operand::Kind::kImmediate) {
      throw Error("an empty reduction needs a constant init value", source_name(v->def->kind),
                  v->def->loc);
    }
    Buffer& b = ctx.memory.at(v);
    if (!ctx.memory.place(b)) {
      return false;
    }
    ctx.run_moves();
    const bool half = v->type.elem == Elem::kBf16;
    ctx.sink.fill(vmem_addr(b.vmem), elem_bytes(v->type.elem), v->type.count(),
                  half ? init->immediate >> 16 : init->immediate, id);
    if (b.must_store) {
      ctx.memory.store(b, id);
      ctx.run_moves();
    }
  }
  return true;
}

bool emit_loop(EmitContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  if (k.loop().nest.elements() == 0) {
    return emit_empty(ctx, k, id);
  }
  if (stored_nodes(k).empty()) {
    return true;
  }
  auto plan = plan_beside_inflight(ctx, [&] { return plan_loop(k, ctx.memory, ctx.board, id); });
  ctx.run_moves();
  if (!plan) {
    return false;
  }
  TileState state;
  int64_t number = 0;
  for_each_tile(k, *plan, [&](const Dims& start, const Dims& count, bool first, bool last) {
    emit_tile(ctx, k, *plan, state, start, count, first, last, number++, id);
  });
  finish_loop(ctx, k, id);
  release_loop(ctx.memory, *plan);
  return true;
}

void finish_loop(EmitContext& ctx, const Kernel& k, uint32_t id) {
  for (const Value* v : k.writes) {
    Buffer& b = ctx.memory.at(v);
    if (b.vmem >= 0 && b.must_store) {
      ctx.memory.store(b, id);
    } else if (b.vmem < 0) {
      b.in_hbm = true;  // the tiles went home one by one
    }
  }
  ctx.run_moves();
}

}  // namespace tpu::compiler
