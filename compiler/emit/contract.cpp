// Contractions: blocks of rows x columns x depth on both matrix units. Operands lie in VMEM as a
// whole or come in blocks through two slots (a block holds overlapping windows once); rows that are
// not dense along k pass the transpose unit or a DMA inside VMEM. Sums stay in VMEM over all blocks
// of k, in an order that follows from shapes alone (contraction.hpp).
#include "emit/contract.hpp"

#include <algorithm>
#include <array>

#include "emit/exchange/inflight.hpp"

namespace tpu::compiler {

using CDim = Contraction::Dim;

// A block of sums passes through the program of the loop kernel in VMEM; only what that writes goes
// to HBM.
static void run_epilogue(EmitContext& ctx, const Step& step, const DotPlan& p, BlockState& state,
                         int64_t sums) {
  const Kernel& k = *step.kernel;
  const Nest& nest = k.contract().after->loop().nest;
  const NestBlock& box = p.boxes[state.out];
  state.epilogue.block = sums;
  state.epilogue.block_stride = box.stride;
  bool first = true, last = true;
  for (size_t l = 0; l < nest.loops.size(); ++l) {
    if (nest.loops[l].reduced) {
      first = first && box.start[l] == 0;
      last = last && box.start[l] + box.count[l] == nest.loops[l].n;
    }
  }
  emit_tile(ctx, {*k.contract().after, *p.epilogue, step.places, step.op_id}, state.epilogue,
            {box.start, box.count, first, last, static_cast<int64_t>(state.out)});
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
  const size_t slot = state.out & 1;
  const int64_t bytes = elem_bytes(k.out->type.elem);
  int64_t from = sums.address;
  if (p.limits.narrow_out) {
    convert_tile(ctx.sink, from, p.narrow[slot], rows * cols, id);
    from = p.narrow[slot];
  }
  if (p.w.transpose_out) {  // [rows][cols] to [cols][rows]
    transpose(ctx.sink, from, p.transposed_out[slot], bytes, rows, cols, cols * bytes, rows * bytes,
              id);
    from = p.transposed_out[slot];
  }
  if (p.epilogue) {
    run_epilogue(ctx, step, p, state, from);
    if (!p.stores_sums) {
      return;
    }
  }
  Dims m_at, n_at;
  final_strides(p, sums, m, n, m_at, n_at);
  std::vector<CopyDim> dims;
  for (size_t i = 0; i < c.m.size(); ++i) {
    dims.push_back({m.count[i], m_at[i] * bytes, c.m[i].out * bytes});
  }
  for (size_t i = 0; i < c.n.size(); ++i) {
    dims.push_back({n.count[i], n_at[i] * bytes, c.n[i].out * bytes});
  }
  std::stable_sort(dims.begin(), dims.end(),
                   [](const CopyDim& a, const CopyDim& b) { return a.dst > b.dst; });
  const Placement& out = step.places.at(k.out);
  const int64_t at = (base + offset_of(c.m, m, &CDim::out) + offset_of(c.n, n, &CDim::out)) * bytes;
  const spec::Addr to = p.limits.out_whole ? vmem_addr(out.vmem + at) : home_of(out, at);
  ctx.sink.copy(vmem_addr(from), to, bytes, dims, id);
}

// All blocks of one batch element.
static void dot_batch(EmitContext& ctx, const Step& step, const DotPlan& p, BlockState& state,
                      const Block& batch) {
  const uint32_t id = step.op_id;
  const Contraction& c = p.w.c;
  const int64_t lhs_base = c.lhs_offset + offset_of(c.batch, batch, &CDim::lhs);
  const int64_t rhs_base = c.rhs_offset + offset_of(c.batch, batch, &CDim::rhs);
  const int64_t out_base = offset_of(c.batch, batch, &CDim::out);
  std::array<const Block*, 2> left_of{nullptr, nullptr}, right_of{nullptr, nullptr};
  Tile left, right;
  const bool rows_outside = p.choice.rows_outside;
  const std::vector<Block>&outside = rows_outside ? p.m : p.n, &inside = rows_outside ? p.n : p.m;
  for (const Block& o : outside) {
    for (const Block& i : inside) {
      const Block &m = rows_outside ? o : i, &n = rows_outside ? i : o;
      const Tile out = sum_tile(p, state.out, m, n, out_base);
      for (const Block& d : p.k) {
        if (left_of != std::array{&m, &d}) {
          left_of = {&m, &d};
          const size_t slot = state.lhs++ & 1;
          const int64_t at =
              lhs_base + offset_of(c.m, m, &CDim::lhs) + offset_of(c.k, d, &CDim::lhs);
          left = left_tile(ctx, p, step.places, at, slot, m, d, id);
        }
        if (right_of != std::array{&n, &d}) {
          right_of = {&n, &d};
          const size_t slot = state.rhs++ & 1;
          const int64_t at =
              rhs_base + offset_of(c.n, n, &CDim::rhs) + offset_of(c.k, d, &CDim::rhs);
          right = operand_tile(ctx, step.places, c.rhs, at, p.limits.rhs_whole, p.rhs[slot],
                               box_loops(c.n, n, c.k, d, &CDim::rhs), c.n.size(), id);
        }
        matmul(ctx, p, left, right, out, m, n, d, &d != &p.k.front(), id);
      }
      finish_block(ctx, step, p, state, out, m, n, out_base);
      ++state.out;
    }
  }
}

void emit_contraction(EmitContext& ctx, const Step& step, const DotPlan& plan) {
  const std::vector<CDim>& batch = plan.w.c.batch;
  BlockState state;
  for (const Block& b : blocks_of(batch, {batch.empty() ? 0 : batch.size() - 1, 1})) {
    dot_batch(ctx, step, plan, state, b);
  }
}

}  // namespace tpu::compiler
