// Contractions: blocks of rows x columns x depth on both matrix units. Operands lie in VMEM as a
// whole or come in blocks through two slots (a block holds overlapping windows once); rows that are
// not dense along k pass the transpose unit or a DMA inside VMEM. Sums stay in VMEM over all blocks
// of k, in an order that follows from shapes alone (contraction.hpp).
#include "emit/contract.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "emit/exchange/inflight.hpp"

namespace tpu::compiler {

using CDim = Contraction::Dim;

// A block of sums passes through the program of loop kernel `number` in VMEM; only what that writes
// for others goes to HBM.
static void run_epilogue(EmitContext& ctx, const Step& step, const DotPlan& p, BlockState& state,
                         size_t number, int64_t sums) {
  const Kernel& loop = *step.kernel->contract().after[number];
  const Nest& nest = loop.loop().nest;
  const EpiloguePlan& plan = p.epilogues[number];
  const NestBlock& box = plan.boxes[state.out];
  TileState& tile = state.epilogues[number];
  tile.block = sums;
  tile.block_stride = box.stride;
  bool first = true, last = true;
  for (size_t l = 0; l < nest.loops.size(); ++l) {
    if (nest.loops[l].reduced) {
      first = first && box.start[l] == 0;
      last = last && box.start[l] + box.count[l] == nest.loops[l].n;
    }
  }
  emit_tile(ctx, {loop, plan.loop, step.places, step.op_id}, tile,
            {box.start, box.count, first, last, static_cast<int64_t>(state.out)});
}

static bool is_outside(const CopyDim& a, const CopyDim& b) { return a.dst > b.dst; }

// Of the copy of a block of sums to the output, outermost first.
static std::vector<CopyDim> home_dims(const Contraction& c, const Block& m, const Block& n,
                                      const Dims& m_at, const Dims& n_at, int64_t bytes) {
  std::vector<CopyDim> dims;
  for (size_t i = 0; i < c.m.size(); ++i) {
    dims.push_back({m.count[i], m_at[i] * bytes, c.m[i].out * bytes});
  }
  for (size_t i = 0; i < c.n.size(); ++i) {
    dims.push_back({n.count[i], n_at[i] * bytes, c.n[i].out * bytes});
  }
  std::stable_sort(dims.begin(), dims.end(), is_outside);
  return dims;
}

// One run on both sides.
static bool is_dense(const std::vector<CopyDim>& dims, int64_t bytes) {
  const std::vector<CopyDim> one = merged(dims);
  return one.empty() || (one.size() == 1 && one[0].src == bytes && one[0].dst == bytes);
}

// The sums of a block are complete: narrower elements, transposed, home (or to the epilogue).
static void finish_block(EmitContext& ctx, const Step& step, const DotPlan& p, BlockState& state,
                         const Tile& sums, const Block& m, const Block& n, int64_t base) {
  const Kernel& k = *step.kernel;
  const uint32_t id = step.op_id;
  if (p.limits.direct_out) {
    return;
  }
  const Contraction& c = p.w.c;
  const int64_t rows = m.iterations(), cols = n.iterations();
  const int64_t bytes = elem_bytes(k.out->type.elem);
  // Of a group of batches: those before this one lie in the same tile, which goes when it is full.
  const auto group = static_cast<size_t>(p.group.out ? p.group.n : 1);
  const size_t member = state.out % group, filled = state.out / group & 1;
  Dims m_at, n_at;
  const int64_t batch_at = final_strides(p, sums, m, n, m_at, n_at);
  int64_t from = sums.address;
  if (!p.w.transpose_out) {
    if (member + 1 < group) {
      return;
    }
    from -= static_cast<int64_t>(member) * sums.batch;
  }
  std::vector<CopyDim> dims = home_dims(c, m, n, m_at, n_at, bytes);
  const Placement& out = step.places.at(k.out);
  const int64_t block_at =
      (base + offset_of(c.m, m, &CDim::out) + offset_of(c.n, n, &CDim::out)) * bytes;
  if (p.limits.narrow_out && p.limits.out_whole && !p.w.transpose_out && p.epilogues.empty() &&
      group == 1 && is_dense(dims, bytes)) {
    convert_tile(ctx.sink, from, out.vmem + block_at, rows * cols, id);
    return;
  }
  if (p.limits.narrow_out) {
    const size_t slot = p.w.transpose_out ? state.out & 1 : filled;
    const int64_t count = rows * cols * (p.w.transpose_out ? 1 : static_cast<int64_t>(group));
    convert_tile(ctx.sink, from, p.narrow[slot], count, id);
    from = p.narrow[slot];
  }
  if (p.w.transpose_out) {  // [rows][cols] to [cols][rows]
    const int64_t to = p.transposed_out[filled];
    const int64_t pitch = batch_at == rows ? rows * static_cast<int64_t>(group) : rows;
    transpose(ctx.sink, from, to + static_cast<int64_t>(member) * batch_at * bytes, bytes, rows,
              cols, cols * bytes, pitch * bytes, id);
    if (member + 1 < group) {
      return;
    }
    from = to;
  }
  for (size_t i = 0; i < p.epilogues.size(); ++i) {
    run_epilogue(ctx, step, p, state, i, from);
  }
  if (!p.epilogues.empty() && !p.stores_sums) {
    return;
  }
  int64_t at = block_at;
  if (group > 1) {
    const int64_t out_stride = c.batch.back().out * bytes;
    dims.push_back({static_cast<int64_t>(group), batch_at * bytes, out_stride});
    std::stable_sort(dims.begin(), dims.end(), is_outside);
    at -= static_cast<int64_t>(member) * out_stride;
  }
  const spec::Addr to = p.limits.out_whole ? vmem_addr(out.vmem + at) : home_of(out, at);
  ctx.sink.copy(vmem_addr(from), to, bytes, dims, id);
}

// A block of the sums, and of the contraction: what one round of commands on the matrix units works
// on.
struct Round {
  const Block& batch;
  const Block &m, &n, &k;
  int64_t member;  // of its group of batches
};

// In the order in which they run.
static std::vector<Round> rounds_of(const DotPlan& p, const std::vector<Block>& batches) {
  std::vector<Round> rounds;
  const auto blocks = blocks_in_order(p);
  for (const Block& batch : batches) {
    for (const auto& [m, n] : blocks) {
      for (const Block& k : p.k) {
        const int64_t member = (&batch - batches.data()) % p.group.n;
        rounds.push_back({batch, *m, *n, k, member});
      }
    }
  }
  return rounds;
}

// The block of one batch in the tile of its group.
static Tile member_tile(const Tile& group, int64_t member) {
  Tile t = group;
  t.address += member * group.batch;
  return t;
}

// A block of an operand in VMEM, and which one it is.
struct HeldTile {
  Tile tile;
  std::array<const Block*, 3> of{};
  Tile group;  // what holds it and the blocks of other batches

  // False: another one has to be brought.
  bool holds(const Block& batch, const Block& free, const Block& k) {
    return std::exchange(of, {&batch, &free, &k}) == of;
  }
};

static void bring_left(EmitContext& ctx, const Step& step, const DotPlan& p, BlockState& state,
                       const Round& r, HeldTile& left) {
  const Contraction& c = p.w.c;
  if (left.holds(r.batch, r.m, r.k)) {
    return;
  }
  const int64_t at = c.lhs_offset + offset_of(c.batch, r.batch, &CDim::lhs) +
                     offset_of(c.m, r.m, &CDim::lhs) + offset_of(c.k, r.k, &CDim::lhs);
  Tile loaded;
  if (p.group.lhs) {
    if (r.member == 0) {
      left.group = group_tile(ctx, p, step.places, c.lhs, at, slot_of(p.lhs, state.lhs_boxes++),
                              box_loops(c.m, r.m, c.k, r.k, &CDim::lhs), c.m.size(),
                              c.batch.back().lhs, step.op_id);
    }
    loaded = member_tile(left.group, r.member);
  }
  left.tile = left_tile(ctx, p, step.places, at, state.lhs++, r.m, r.k,
                        p.group.lhs ? &loaded : nullptr, step.op_id);
}

static void bring_right(EmitContext& ctx, const Step& step, const DotPlan& p, BlockState& state,
                        const Round& r, HeldTile& right) {
  const Contraction& c = p.w.c;
  if (right.holds(r.batch, r.n, r.k)) {
    return;
  }
  const int64_t at = c.rhs_offset + offset_of(c.batch, r.batch, &CDim::rhs) +
                     offset_of(c.n, r.n, &CDim::rhs) + offset_of(c.k, r.k, &CDim::rhs);
  if (p.group.rhs) {
    if (r.member == 0) {
      right.group = group_tile(ctx, p, step.places, c.rhs, at, slot_of(p.rhs, state.rhs++),
                               box_loops(c.n, r.n, c.k, r.k, &CDim::rhs), c.n.size(),
                               c.batch.back().rhs, step.op_id);
    }
    right.tile = member_tile(right.group, r.member);
    return;
  }
  right.tile =
      operand_tile(ctx, step.places, c.rhs, at, p.limits.rhs_whole, slot_of(p.rhs, state.rhs++),
                   box_loops(c.n, r.n, c.k, r.k, &CDim::rhs), c.n.size(), step.op_id);
}

// Bytes in VMEM between the batches of an operand: of a group, or of the whole.
static int64_t side_stride(bool grouped, const Tile& tile, const Value* v, int64_t stride) {
  return grouped ? tile.batch : stride * elem_bytes(v->type.elem);
}

void emit_contraction(EmitContext& ctx, const Step& step, const DotPlan& p) {
  const std::vector<CDim>& batch = p.w.c.batch;
  const std::vector<Block> batches = blocks_of(batch, {batch.empty() ? 0 : batch.size() - 1, 1});
  const std::vector<Round> rounds = rounds_of(p, batches);
  // The transpose unit works in order, and sums that it turns wait for their matmul. So the rows
  // of the next round pass it before the sums of this one.
  const bool rows_first = p.w.transpose_out && (p.w.transposes() || p.w.transposes_box());
  const auto beside = static_cast<size_t>(p.beside.n);
  BlockState state;
  state.epilogues.resize(p.epilogues.size());
  HeldTile left, right;
  Tile first_left, first_right;
  for (size_t i = 0; i < rounds.size(); ++i) {
    const Round& r = rounds[i];
    bring_left(ctx, step, p, state, r, left);
    bring_right(ctx, step, p, state, r, right);
    const auto base_of = [&](const Round& of) {
      return offset_of(p.w.c.batch, of.batch, &CDim::out);
    };
    if (beside > 1) {
      if (i % beside == 0) {
        first_left = left.tile;
        first_right = right.tile;
        first_left.batch = side_stride(p.group.lhs, left.tile, p.w.c.lhs, batch.back().lhs);
        first_right.batch = side_stride(p.group.rhs, right.tile, p.w.c.rhs, batch.back().rhs);
      }
      if ((i + 1) % beside != 0) {
        continue;
      }
      matmul(ctx, p, first_left, first_right, sum_tile(p, state.out, r.m, r.n, 0), r.m, r.n, r.k,
             false, 0, step.op_id);
      for (size_t member = i + 1 - beside; member <= i; ++member, ++state.out) {
        const Round& of = rounds[member];
        finish_block(ctx, step, p, state, sum_tile(p, state.out, of.m, of.n, 0), of.m, of.n,
                     base_of(of));
      }
      continue;
    }
    const int64_t out_base = base_of(r);
    const Tile out = sum_tile(p, state.out, r.m, r.n, out_base);
    const auto turn = static_cast<size_t>(&r.batch - batches.data());
    matmul(ctx, p, left.tile, right.tile, out, r.m, r.n, r.k, &r.k != &p.k.front(), turn,
           step.op_id);
    if (&r.k != &p.k.back()) {
      continue;
    }
    if (rows_first && i + 1 < rounds.size()) {
      bring_left(ctx, step, p, state, rounds[i + 1], left);
    }
    finish_block(ctx, step, p, state, out, r.m, r.n, out_base);
    ++state.out;
  }
}

}  // namespace tpu::compiler
