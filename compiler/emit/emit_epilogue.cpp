// Contractions with an epilogue: every block of sums passes through the loop kernel's program in
// VMEM, and only what that writes goes to HBM.
#include <algorithm>

#include "kernel/epilogue.hpp"
#include "plan/loop_plan.hpp"

namespace tpu::compiler {

// False: nothing is done; the two kernels must run one after the other.
bool Emitter::emit_fused(const Kernel& k) {
  const Kernel& loop = *k.after;
  const bool stores_sums = std::find(k.writes.begin(), k.writes.end(), k.out) != k.writes.end();
  if (Contraction::count(k.dot.k) == 0 ||
      (stores_sums && buffer(k.out).bytes <= resident_limit())) {
    return false;  // small sums stay in VMEM for their other readers
  }
  const uint32_t id = op_id(k);
  LoopPlan plan;
  choose_roles(loop.nest, plan.options);
  plan.order = choose_order(loop.nest, plan.options);
  for (size_t n = 0; n < loop.nest.nodes.size(); ++n) {
    if (std::find(loop.writes.begin(), loop.writes.end(), loop.nest.nodes[n].op->result()) !=
        loop.writes.end()) {
      plan.options.stores.push_back(static_cast<int>(n));
    }
  }
  plan.from_tile = k.out;
  if (plan.options.stores.empty() || !plan_loop(loop, plan)) {
    return false;
  }
  DotPlan p;
  p.w = map_contraction(k.dot, board_);
  p.epilogue = &plan;
  p.stores_sums = stores_sums;
  if (!place_fused(k, p, id)) {
    pinned_.clear();
    return false;
  }
  all_batches(k, p, id);
  for (const Value* v : loop.writes) {
    Buffer& b = buffer(v);
    if (b.vmem >= 0 && b.must_store) {
      store(b, id);
    } else if (b.vmem < 0) {
      b.in_hbm = true;  // block by block
    }
  }
  if (stores_sums) {
    buffer(k.out).in_hbm = true;
  }
  for (const int64_t address : p.temporary) {
    give(address);
  }
  release_loop(plan);
  return true;
}

// Tiles of the contraction and buffers of the epilogue. False if they do not fit together.
bool Emitter::place_fused(const Kernel& k, DotPlan& p, uint32_t id) {
  LoopPlan& plan = *p.epilogue;
  // As they are mapped: the operands of the dot may have changed places.
  Buffer &lhs = buffer(p.w.c.lhs), &rhs = buffer(p.w.c.rhs);
  const int64_t vmem = board_.core.vmem_kib * 1024, limit = resident_limit();
  TileLimits& t = p.limits;
  t.lhs_whole = !p.w.turns_box() && (lhs.vmem >= 0 || lhs.bytes <= limit);
  t.rhs_whole = rhs.vmem >= 0 || rhs.bytes <= limit;
  t.narrow_out = k.out->type.elem == Elem::kBf16;
  t.whole_vectors = k.after->nest.has_reduce;
  int64_t whole = (t.lhs_whole ? lhs.bytes : 0) + (t.rhs_whole && &rhs != &lhs ? rhs.bytes : 0);
  for (const Value* v : plan.whole) {
    whole += buffer(v).bytes;
  }
  for (const Stream& s : plan.streams) {
    t.epilogue_bytes += elem_bytes(s.value->type.elem);
  }
  t.budget = std::min(vmem * 3 / 4, vmem * 15 / 16 - whole);
  const auto choice = choose_tiles(p.w, t, board_);
  if (!choice) {
    return false;
  }
  p.choice = *choice;
  p.m = blocks_of(p.w.c.m, p.choice.m);
  p.n = blocks_of(p.w.c.n, p.choice.n);
  if (!fused_boxes(k, p)) {
    return false;
  }
  try {
    pinned_ = {&lhs, &rhs};
    place_tiles(k, p, id);
    place_loop_buffers(*k.after, plan, id);
    return true;
  } catch (const VmemFull&) {
    for (const int64_t address : p.temporary) {
      give(address);
    }
    for (const Value* v : k.after->writes) {  // taken, but nothing is in it
      Buffer& b = buffer(v);
      if (b.vmem >= 0) {
        give(b.vmem);
        b.vmem = -1;
      }
    }
    release_loop(plan);
    return false;
  }
}

// The box of every block, in the order of the blocks, and the largest of them.
bool Emitter::fused_boxes(const Kernel& k, DotPlan& p) {
  LoopPlan& plan = *p.epilogue;
  const Nest& nest = k.after->nest;
  plan.tile.assign(nest.loops.size(), 1);
  const bool rows_outside = p.choice.rows_outside;
  for (const Block& o : rows_outside ? p.m : p.n) {
    for (const Block& i : rows_outside ? p.n : p.m) {
      const Block &m = rows_outside ? o : i, &n = rows_outside ? i : o;
      Dims m_at, n_at;
      final_strides(p, sum_tile(k, p, m, n, 0), m, n, m_at, n_at);
      const auto box = nest_block(nest, p.w.c, m, n, m_at, n_at);
      if (!box) {
        return false;
      }
      for (size_t l = 0; l < plan.tile.size(); ++l) {
        plan.tile[l] = std::max(plan.tile[l], box->count[l]);
      }
      p.boxes.push_back(*box);
    }
  }
  return carries_reductions(nest, p.boxes);
}

void Emitter::finish_fused(const Kernel& k, DotPlan& p, int64_t tile, uint32_t id) {
  LoopPlan& plan = *p.epilogue;
  const Nest& nest = k.after->nest;
  const NestBlock& box = p.boxes[p.out_count];
  plan.tile_at = tile;
  plan.tile_stride = box.stride;
  bool first = true, last = true;
  for (size_t l = 0; l < nest.loops.size(); ++l) {
    if (nest.loops[l].reduced) {
      first = first && box.start[l] == 0;
      last = last && box.start[l] + box.count[l] == nest.loops[l].n;
    }
  }
  emit_tile(*k.after, plan, box.start, box.count, first, last, static_cast<int64_t>(p.out_count),
            id);
}

}  // namespace tpu::compiler
