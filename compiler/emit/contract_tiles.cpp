// Blocks of a contraction's operands in VMEM: loaded as boxes; rows that are not dense along k are
// gathered by a DMA inside VMEM or transposed by the transpose unit.
#include "emit/contract.hpp"

namespace tpu::compiler {

using CDim = Contraction::Dim;

void transpose(CommandSink& sink, int64_t src, int64_t dst, int64_t bytes, int64_t rows,
               int64_t cols, int64_t src_pitch, int64_t dst_pitch, uint32_t id) {
  auto c = make_command<spec::TransposeCommand>(spec::Opcode::kTranspose, spec::Queue::kXlu, id);
  c.src = vmem_addr(src);
  c.dst = vmem_addr(dst);
  c.elem_bytes = static_cast<uint32_t>(bytes);
  c.rows = static_cast<uint32_t>(rows);
  c.cols = static_cast<uint32_t>(cols);
  c.batch = 1;
  c.src_pitch = static_cast<int32_t>(src_pitch);
  c.dst_pitch = static_cast<int32_t>(dst_pitch);
  Command command;
  command.body = c;
  sink.append(std::move(command));
}

Tile operand_tile(EmitContext& ctx, const Places& places, const Value* v, int64_t base, bool whole,
                  int64_t slot, const std::vector<BoxLoop>& loops, size_t free, uint32_t id) {
  const int64_t bytes = elem_bytes(v->type.elem);
  Tile t;
  const auto put = [&](size_t i, int64_t stride) {
    (i < free ? t.free : t.k).push_back(stride * bytes);
  };
  if (whole) {
    t.address = places.at(v).vmem + base * bytes;
    for (size_t i = 0; i < loops.size(); ++i) {
      put(i, loops[i].stride);
    }
    return t;
  }
  const TileBox box = make_box(loops, false);
  load_box(ctx, places, v, base + box.first, box.dims, slot, id);
  t.address = slot + box.origin * bytes;
  for (size_t i = 0; i < loops.size(); ++i) {
    put(i, box.stride[i]);
  }
  return t;
}

// The block's box in `slot[0]`, from HBM or VMEM, transposed from [k][others] to [others][k] in
// `slot[1]`; k is the last of the loops.
static Tile transposed_box(EmitContext& ctx, const Places& places, const Value* v, int64_t base,
                           std::array<int64_t, 2> slot, const std::vector<BoxLoop>& loops,
                           size_t free, uint32_t id) {
  const int64_t bytes = elem_bytes(v->type.elem);
  const TileBox box = make_box(loops, false);
  load_box(ctx, places, v, base + box.first, box.dims, slot[0], id);
  const int64_t depth = loops.back().n, others = box.elements / depth;
  transpose(ctx.sink, slot[0], slot[1], bytes, depth, others, others * bytes, depth * bytes, id);
  Tile t;
  t.address = slot[1] + box.origin * depth * bytes;
  for (size_t i = 0; i + 1 < loops.size(); ++i) {
    (i < free ? t.free : t.k).push_back(box.stride[i] * depth * bytes);
  }
  t.k.push_back(bytes);
  return t;
}

// Rows packed densely by a DMA inside VMEM: [M][K], or [K][M] for the transpose unit.
static Tile gather_tile(CommandSink& sink, const Tile& from, const Block& m, const Block& k,
                        bool k_inside, int64_t bytes, int64_t slot, uint32_t id) {
  Tile t;
  t.address = slot;
  t.free.assign(m.count.size(), 0);
  t.k.assign(k.count.size(), 0);
  std::vector<CopyDim> dims;
  int64_t pitch = bytes;
  const auto pack = [&](const Block& b, const Dims& src, Dims& dst) {
    for (size_t i = b.count.size(); i-- > 0;) {
      dst[i] = pitch;
      dims.insert(dims.begin(), {b.count[i], src[i], pitch});
      pitch *= b.count[i];
    }
  };
  if (k_inside) {
    pack(k, from.k, t.k);
    pack(m, from.free, t.free);
  } else {
    pack(m, from.free, t.free);
    pack(k, from.k, t.k);
  }
  sink.copy(vmem_addr(from.address), vmem_addr(slot), bytes, dims, id);
  return t;
}

// [K][M] to [M][K]; m dims outside of k one by one.
static Tile transpose_tile(CommandSink& sink, const Tile& from, const Block& m, const Block& k,
                           int64_t bytes, int64_t slot, uint32_t id) {
  const int64_t depth = k.iterations();
  Tile t;
  t.address = slot;
  t.free.assign(m.count.size(), 0);
  t.k.assign(k.count.size(), 0);
  int64_t pitch = bytes;
  for (size_t i = k.count.size(); i-- > 0;) {
    t.k[i] = pitch;
    pitch *= k.count[i];
  }
  for (size_t i = m.count.size(); i-- > 0;) {
    t.free[i] = pitch;
    pitch *= m.count[i];
  }
  int64_t k_pitch = bytes;  // between rows of the source: the innermost k dim with iterations
  for (size_t i = k.count.size(); i-- > 0;) {
    if (k.count[i] > 1) {
      k_pitch = from.k[i];
      break;
    }
  }
  int64_t inner = 1;  // m inside of k
  size_t first = m.count.size();
  while (first > 0 && (m.count[first - 1] == 1 || from.free[first - 1] == inner * bytes)) {
    inner *= m.count[--first];
  }
  std::vector<CDim> outer;
  for (size_t i = 0; i < first; ++i) {
    outer.push_back({m.count[i], from.free[i], 0, t.free[i]});
  }
  for (const Block& b : blocks_of(outer, {outer.empty() ? 0 : outer.size() - 1, 1})) {
    transpose(sink, from.address + offset_of(outer, b, &CDim::lhs),
              slot + offset_of(outer, b, &CDim::out), bytes, depth, inner, k_pitch, depth * bytes,
              id);
  }
  return t;
}

Tile group_tile(EmitContext& ctx, const DotPlan& p, const Places& places, const Value* v,
                int64_t base, int64_t slot, std::vector<BoxLoop> loops, size_t free,
                int64_t batch_stride, uint32_t id) {
  loops.insert(loops.begin(), {p.group.n, batch_stride});
  Tile t = operand_tile(ctx, places, v, base, false, slot, loops, free + 1, id);
  t.batch = t.free.front();
  t.free.erase(t.free.begin());
  return t;
}

Tile left_tile(EmitContext& ctx, const DotPlan& p, const Places& places, int64_t base, size_t slot,
               const Block& m, const Block& k, const Tile* loaded, uint32_t id) {
  const Contraction& c = p.w.c;
  const int64_t bytes = elem_bytes(c.lhs->type.elem);
  const std::vector<BoxLoop> loops = box_loops(c.m, m, c.k, k, &CDim::lhs);
  if (p.w.transposes_box()) {
    return transposed_box(ctx, places, c.lhs, base, {slot_of(p.lhs, slot), p.transposed[slot & 1]},
                          loops, c.m.size(), id);
  }
  Tile t = loaded != nullptr ? *loaded
                             : operand_tile(ctx, places, c.lhs, base, p.limits.lhs_whole,
                                            slot_of(p.lhs, slot), loops, c.m.size(), id);
  if (p.w.gathers()) {
    t = gather_tile(ctx.sink, t, m, k, !p.w.transposes(), bytes, p.gathered[slot & 1], id);
  }
  return p.w.transposes() ? transpose_tile(ctx.sink, t, m, k, bytes, p.transposed[slot & 1], id)
                          : t;
}

}  // namespace tpu::compiler
