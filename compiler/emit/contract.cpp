// Contractions: blocks of rows x columns x depth on both matrix units. Operands lie in VMEM as a
// whole or come in blocks through two slots (a block holds overlapping windows once); rows that are
// not dense along k pass the transpose unit or a DMA inside VMEM. Sums stay in VMEM over all blocks
// of k, in an order that follows from shapes alone (contraction.hpp).
#include "emit/contract.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "emit/exchange/inflight.hpp"

namespace tpu::compiler {

using CDim = Contraction::Dim;

namespace {

// The contraction that is emitted.
struct Site {
  const Kernel& kernel;
  const Places& places;
  uint32_t op_id;
};

}  // namespace

// A block of sums passes through the program of loop kernel `number` in VMEM; only what that writes
// for others goes to HBM.
static void run_epilogue(EmitContext& ctx, const Site& site, const DotPlan& p, BlockState& state,
                         size_t number, int64_t sums) {
  const Kernel& loop = *site.kernel.contract().after[number];
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
  emit_tile(ctx, {loop, plan.loop, site.places, site.op_id}, tile,
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
static void finish_block(EmitContext& ctx, const Site& site, const DotPlan& p, BlockState& state,
                         const Tile& sums, const Block& m, const Block& n, int64_t base) {
  const Kernel& k = site.kernel;
  const uint32_t id = site.op_id;
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
  const Placement& out = site.places.at(k.out);
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
    run_epilogue(ctx, site, p, state, i, from);
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

// An operand in the slot of an epilogue of another contraction.
struct HeldOperand {
  bool left = false, right = false;
  int64_t address = 0;
};

static void bring_left(EmitContext& ctx, const Site& site, const DotPlan& p, BlockState& state,
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
      left.group = group_tile(ctx, p, site.places, c.lhs, at, slot_of(p.lhs, state.lhs_boxes++),
                              box_loops(c.m, r.m, c.k, r.k, &CDim::lhs), c.m.size(),
                              c.batch.back().lhs, site.op_id);
    }
    loaded = member_tile(left.group, r.member);
  }
  left.tile = left_tile(ctx, p, site.places, at, state.lhs++, r.m, r.k,
                        p.group.lhs ? &loaded : nullptr, site.op_id);
}

static void bring_right(EmitContext& ctx, const Site& site, const DotPlan& p, BlockState& state,
                        const Round& r, HeldTile& right) {
  const Contraction& c = p.w.c;
  if (right.holds(r.batch, r.n, r.k)) {
    return;
  }
  const int64_t at = c.rhs_offset + offset_of(c.batch, r.batch, &CDim::rhs) +
                     offset_of(c.n, r.n, &CDim::rhs) + offset_of(c.k, r.k, &CDim::rhs);
  if (p.group.rhs) {
    if (r.member == 0) {
      right.group = group_tile(ctx, p, site.places, c.rhs, at, slot_of(p.rhs, state.rhs++),
                               box_loops(c.n, r.n, c.k, r.k, &CDim::rhs), c.n.size(),
                               c.batch.back().rhs, site.op_id);
    }
    right.tile = member_tile(right.group, r.member);
    return;
  }
  right.tile =
      operand_tile(ctx, site.places, c.rhs, at, p.limits.rhs_whole, slot_of(p.rhs, state.rhs++),
                   box_loops(c.n, r.n, c.k, r.k, &CDim::rhs), c.n.size(), site.op_id);
}

// Bytes in VMEM between the batches of an operand: of a group, or of the whole.
static int64_t side_stride(bool grouped, const Tile& tile, const Value* v, int64_t stride) {
  return grouped ? tile.batch : stride * elem_bytes(v->type.elem);
}

// A contraction round by round: operands and products of a round, then what becomes of its sums.
class Contractor {
 public:
  Contractor(EmitContext& ctx, const Site& site, const DotPlan& p)
      : ctx_(ctx),
        site_(site),
        p_(p),
        batches_(blocks_of(p.w.c.batch, {p.w.c.batch.empty() ? 0 : p.w.c.batch.size() - 1, 1})),
        rounds_(rounds_of(p, batches_)) {
    state_.epilogues.resize(p.epilogues.size());
  }

  Contractor(const Contractor&) = delete;
  Contractor& operator=(const Contractor&) = delete;

  size_t rounds() const { return rounds_.size(); }

  void bring(size_t i, const HeldOperand& held = {}) {
    const Round& r = rounds_[i];
    held.left ? left_from(held, r) : bring_left(ctx_, site_, p_, state_, r, left_);
    held.right ? right_from(held, r) : bring_right(ctx_, site_, p_, state_, r, right_);
  }

  // Its operands have been brought.
  void multiply(size_t i) {
    const Round& r = rounds_[i];
    const Tile out = sum_tile(p_, started_, r.m, r.n, base_of(r));
    const auto turn = static_cast<size_t>(&r.batch - batches_.data());
    matmul(ctx_, p_, left_.tile, right_.tile, out, r.m, r.n, r.k, &r.k != &p_.k.front(), turn,
           site_.op_id);
    started_ += is_last(r) ? 1 : 0;
  }

  void finish(size_t i) {
    const Round& r = rounds_[i];
    if (is_last(r)) {
      const Tile out = sum_tile(p_, state_.out, r.m, r.n, base_of(r));
      finish_block(ctx_, site_, p_, state_, out, r.m, r.n, base_of(r));
      ++state_.out;
    }
  }

  void run() {
    // The transpose unit works in order, and sums that it turns wait for their matmul. So the rows
    // of the next round pass it before the sums of this one.
    const bool rows_first = p_.w.transpose_out && (p_.w.transposes() || p_.w.transposes_box());
    for (size_t i = 0; i < rounds_.size(); ++i) {
      bring(i);
      if (p_.beside.n > 1) {
        take_beside(i);
        continue;
      }
      multiply(i);
      if (rows_first && i + 1 < rounds_.size() && is_last(rounds_[i])) {
        bring_left(ctx_, site_, p_, state_, rounds_[i + 1], left_);
      }
      finish(i);
    }
  }

 private:
  bool is_last(const Round& r) const { return &r.k == &p_.k.back(); }
  int64_t base_of(const Round& r) const { return offset_of(p_.w.c.batch, r.batch, &CDim::out); }

  // The operands of a round have been brought. With the last ones of several batches, the products
  // of all of them are one command.
  void take_beside(size_t i) {
    const Round& r = rounds_[i];
    const Contraction& c = p_.w.c;
    const auto beside = static_cast<size_t>(p_.beside.n);
    if (i % beside == 0) {
      first_left_ = left_.tile;
      first_right_ = right_.tile;
      first_left_.batch = side_stride(p_.group.lhs, left_.tile, c.lhs, c.batch.back().lhs);
      first_right_.batch = side_stride(p_.group.rhs, right_.tile, c.rhs, c.batch.back().rhs);
    }
    if ((i + 1) % beside != 0) {
      return;
    }
    matmul(ctx_, p_, first_left_, first_right_, sum_tile(p_, state_.out, r.m, r.n, 0), r.m, r.n,
           r.k, false, 0, site_.op_id);
    for (size_t member = i + 1 - beside; member <= i; ++member, ++state_.out) {
      const Round& of = rounds_[member];
      finish_block(ctx_, site_, p_, state_, sum_tile(p_, state_.out, of.m, of.n, 0), of.m, of.n,
                   base_of(of));
    }
  }

  // An operand in the slot of an epilogue, where it lies as in its array.
  Tile held_tile(const HeldOperand& held, const std::vector<CDim>& free, int64_t CDim::*stride,
                 const Value* v) const {
    Tile t;
    t.address = held.address;
    for (const CDim& d : free) {
      t.free.push_back(d.*stride * elem_bytes(v->type.elem));
    }
    for (const CDim& d : p_.w.c.k) {
      t.k.push_back(d.*stride * elem_bytes(v->type.elem));
    }
    return t;
  }

  void left_from(const HeldOperand& held, const Round& r) {
    const Contraction& c = p_.w.c;
    const Tile tile = held_tile(held, c.m, &CDim::lhs, c.lhs);
    left_.tile = left_tile(ctx_, p_, site_.places, 0, state_.lhs++, r.m, r.k, &tile, site_.op_id);
  }

  void right_from(const HeldOperand& held, const Round&) {
    right_.tile = held_tile(held, p_.w.c.n, &CDim::rhs, p_.w.c.rhs);
  }

  EmitContext& ctx_;
  const Site site_;
  const DotPlan& p_;
  const std::vector<Block> batches_;
  const std::vector<Round> rounds_;
  BlockState state_;
  HeldTile left_, right_;
  Tile first_left_, first_right_;  // of the batches beside each other
  size_t started_ = 0;             // blocks of sums
};

// Batch by batch, with the products that take what the epilogues make. The matrix units work in
// order: before they wait for the epilogues of a batch, they have the sums of the next one, and the
// vector unit narrows the sums of products when it has passed the next epilogues.
static void emit_together(EmitContext& ctx, Contractor& chain, const Step& step, const DotPlan& p) {
  std::deque<Contractor> products;  // they do not move: rounds refer to batches
  for (const ProductPlan& each : p.products) {
    products.emplace_back(ctx, Site{*each.kernel, step.places, each.op_id}, each.dot);
  }
  const size_t count = chain.rounds();
  chain.bring(0);
  chain.multiply(0);
  for (size_t i = 0; i < count; ++i) {
    if (i + 1 < count) {
      chain.bring(i + 1);
      chain.multiply(i + 1);
    }
    chain.finish(i);
    for (size_t n = 0; n < products.size(); ++n) {
      const ProductPlan& each = p.products[n];
      const Stream& s = p.epilogues[each.epilogue].loop.streams[each.stream];
      if (i > 0) {
        products[n].finish(i - 1);
      }
      products[n].bring(i, {each.held_left, !each.held_left, s.slots[i % s.slots.size()]});
      products[n].multiply(i);
    }
  }
  for (Contractor& each : products) {
    each.finish(count - 1);
  }
}

void emit_contraction(EmitContext& ctx, const Step& step, const DotPlan& p) {
  Contractor contractor(ctx, {*step.kernel, step.places, step.op_id}, p);
  if (p.products.empty()) {
    contractor.run();
  } else {
    emit_together(ctx, contractor, step, p);
  }
}

}  // namespace tpu::compiler
