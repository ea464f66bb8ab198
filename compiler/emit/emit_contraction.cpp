// Contractions: blocks of rows x columns x depth on both matrix units. Operands lie in VMEM as a
// whole or come in blocks through two slots (a block holds overlapping windows once); rows that are
// not dense along k pass the transpose unit or a DMA inside VMEM. Sums stay in VMEM over all blocks
// of k, in an order that follows from shapes alone (contraction.hpp).
#include <algorithm>
#include <array>

#include "plan/contraction_plan.hpp"

namespace tpu::compiler {

namespace {

using CDim = Contraction::Dim;

}  // namespace

void Emitter::emit_dot(const Kernel& k) {
  if (k.after == nullptr) {
    emit_sums(k);
    return;
  }
  // If nobody else reads the sums, they take memory only if the epilogue cannot work on blocks.
  k.after->order = k.order;
  Buffer& sums = new_buffer(k.out);
  sums.reads.insert(sums.reads.begin(), k.order);
  if (!emit_fused(k)) {
    emit_sums(k);
    emit_loop(*k.after);
  }
}

void Emitter::emit_sums(const Kernel& k) {
  const uint32_t id = op_id(k);
  Buffer& out = buffer(k.out);
  if (out.bytes == 0) {
    return;
  }
  DotPlan p;
  p.w = map_contraction(k.dot, board_);
  pinned_ = {&buffer(k.dot.lhs), &buffer(k.dot.rhs), &out};
  if (Contraction::count(k.dot.k) == 0) {  // an empty sum
    fill_result(out, id);
    pinned_.clear();
    return;
  }
  place_dot(k, p, id);
  all_batches(k, p, id);
  if (!p.limits.out_whole) {
    out.in_hbm = true;
  } else if (out.must_store) {
    store(out, id);
  }
  for (const int64_t address : p.temporary) {
    give(address);
  }
  pinned_.clear();
}

void Emitter::all_batches(const Kernel& k, DotPlan& p, uint32_t id) {
  const std::vector<CDim>& batch = p.w.c.batch;
  for (const Block& b : blocks_of(batch, {batch.empty() ? 0 : batch.size() - 1, 1})) {
    dot_batch(k, p, b, id);
  }
  matmul_flops +=
      static_cast<uint64_t>(2 * Contraction::count(k.dot.batch) * Contraction::count(k.dot.m) *
                            Contraction::count(k.dot.n) * Contraction::count(k.dot.k) * times_);
}

void Emitter::fill_result(Buffer& out, uint32_t id) {
  const int64_t bytes = elem_bytes(out.value->type.elem);
  give_home(out);
  fill(hbm(out), bytes, out.value->type.count(), 0, id);
  out.in_hbm = true;
}

// What stays whole, the tiles, and their places. With little VMEM: the largest whole operand goes
// through blocks, then smaller blocks.
void Emitter::place_dot(const Kernel& k, DotPlan& p, uint32_t id) {
  const Mapping& w = p.w;
  Buffer &lhs = buffer(w.c.lhs), &rhs = buffer(w.c.rhs), &out = buffer(k.out);
  const int64_t vmem = board_.core.vmem_kib * 1024, limit = resident_limit();
  TileLimits& t = p.limits;
  t.lhs_whole = !w.turns_box() && (lhs.vmem >= 0 || lhs.bytes <= limit);
  t.rhs_whole = rhs.vmem >= 0 || rhs.bytes <= limit;
  t.out_whole = out.bytes <= limit;
  t.narrow_out = k.out->type.elem == Elem::kBf16;
  int64_t share = vmem * 3 / 4;
  for (;;) {
    int64_t whole = t.out_whole ? out.bytes : 0;
    whole += t.lhs_whole ? lhs.bytes : 0;
    whole += t.rhs_whole && &rhs != &lhs ? rhs.bytes : 0;
    t.direct_out = t.out_whole && !t.narrow_out && !w.turn_out;
    t.budget = std::min(share, vmem * 15 / 16 - whole);
    const auto choice = choose_tiles(w, t, board_);
    if (choice) {
      p.choice = *choice;
      try {
        place_tiles(k, p, id);
        return;
      } catch (const VmemFull&) {
        for (const int64_t address : p.temporary) {
          give(address);
        }
        p.temporary.clear();
        if (t.out_whole && out.vmem >= 0) {
          give(out.vmem);
          out.vmem = -1;
        }
      }
    }
    // The largest whole operand goes; then smaller tiles.
    std::array<std::pair<int64_t, bool*>, 3> wholes = {
        {{t.lhs_whole && !lhs.locked ? lhs.bytes : 0, &t.lhs_whole},
         {t.rhs_whole && !rhs.locked ? rhs.bytes : 0, &t.rhs_whole},
         {t.out_whole ? out.bytes : 0, &t.out_whole}}};
    const auto largest =
        std::max_element(wholes.begin(), wholes.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
    if (largest->first > 0) {
      *largest->second = false;
      if (&lhs == &rhs) {
        t.lhs_whole = t.rhs_whole = t.lhs_whole && t.rhs_whole;
      }
      drop_copy(lhs, t.lhs_whole || lhs.locked, id);
      drop_copy(rhs, t.rhs_whole || rhs.locked, id);
    } else if (share > 1024) {
      share -= share / 8;
    } else {
      too_large(k);
    }
  }
}

// An operand that will come in blocks from HBM leaves VMEM.
void Emitter::drop_copy(Buffer& b, bool stays, uint32_t id) {
  if (stays || b.vmem < 0) {
    return;
  }
  if (!b.in_hbm) {
    store(b, id);
  }
  give(b.vmem);
  b.vmem = -1;
}

void Emitter::place_tiles(const Kernel& k, DotPlan& p, uint32_t id) {
  const Mapping& w = p.w;
  p.m = blocks_of(w.c.m, p.choice.m);
  p.n = blocks_of(w.c.n, p.choice.n);
  p.k = blocks_of(w.c.k, p.choice.k);
  int64_t rows = 0, cols = 0, depth = 0;
  for (const auto& [blocks, most] : {std::pair{&p.m, &rows}, {&p.n, &cols}, {&p.k, &depth}}) {
    for (const Block& b : *blocks) {
      *most = std::max(*most, b.iterations());
    }
  }
  const int64_t batches = Contraction::count(w.c.batch);
  const auto count = [&](const auto&... blocks) {
    return (static_cast<int64_t>(blocks.size()) * ... * batches);
  };
  const auto slots = [&](std::array<int64_t, 2>& slot, int64_t bytes, int64_t times) {
    slot[0] = take(bytes);
    p.temporary.push_back(slot[0]);
    slot[1] = slot[0];
    if (times > 1) {
      slot[1] = take(bytes);
      p.temporary.push_back(slot[1]);
    }
  };
  const auto box = [&](const std::vector<CDim>& free, const std::vector<Block>& blocks,
                       int64_t CDim::*stride) {
    int64_t most = 0;
    for (const Block& a : blocks) {
      for (const Block& b : p.k) {
        most = std::max(most, make_box(box_loops(free, a, w.c.k, b, stride), false).elements);
      }
    }
    return most;
  };
  Buffer &lhs = buffer(w.c.lhs), &rhs = buffer(w.c.rhs), &out = buffer(k.out);
  const int64_t l = elem_bytes(w.c.lhs->type.elem), r = elem_bytes(w.c.rhs->type.elem);
  if (p.limits.out_whole && out.vmem < 0) {
    out.vmem = place(out);
  }
  if (p.limits.lhs_whole) {
    load(lhs, id);
  } else {
    slots(p.lhs, box(w.c.m, p.m, &CDim::lhs) * l, count(p.m, p.k));
  }
  if (p.limits.rhs_whole) {
    load(rhs, id);
  } else {
    slots(p.rhs, box(w.c.n, p.n, &CDim::rhs) * r, count(p.n, p.k));
  }
  if (w.gathers()) {
    slots(p.gathered, rows * depth * l, count(p.m, p.k));
  }
  if (w.turns()) {
    slots(p.turned, rows * depth * l, count(p.m, p.k));
  } else if (w.turns_box()) {
    slots(p.turned, box(w.c.m, p.m, &CDim::lhs) * l, count(p.m, p.k));
  }
  if (!p.limits.direct_out) {
    slots(p.sum, rows * cols * 4, count(p.m, p.n));
  }
  if (p.limits.narrow_out) {
    slots(p.narrow, rows * cols * 2, count(p.m, p.n));
  }
  if (w.turn_out) {
    slots(p.flipped, rows * cols * elem_bytes(k.out->type.elem), count(p.m, p.n));
  }
}

// The rows of a block as the matrix units read them.
Emitter::Tile Emitter::left_tile(const DotPlan& p, const Buffer& lhs, int64_t base, size_t slot,
                                 const Block& m, const Block& k, uint32_t id) {
  const Contraction& c = p.w.c;
  const int64_t bytes = elem_bytes(c.lhs->type.elem);
  const std::vector<BoxLoop> loops = box_loops(c.m, m, c.k, k, &CDim::lhs);
  if (p.w.turns_box()) {
    return turned_box(lhs, base, {p.lhs[slot], p.turned[slot]}, loops, c.m.size(), id);
  }
  Tile t = operand_tile(lhs, base, p.limits.lhs_whole, p.lhs[slot], loops, c.m.size(), id);
  if (p.w.gathers()) {
    t = gather_tile(t, m, k, !p.w.turns(), bytes, p.gathered[slot], id);
  }
  return p.w.turns() ? turn_tile(t, m, k, bytes, p.turned[slot], id) : t;
}

// All blocks of one batch element.
void Emitter::dot_batch(const Kernel& k, DotPlan& p, const Block& batch, uint32_t id) {
  const Contraction& c = p.w.c;
  const Buffer &lhs = buffer(c.lhs), &rhs = buffer(c.rhs);
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
      const Tile out = sum_tile(k, p, m, n, out_base);
      for (const Block& d : p.k) {
        if (left_of != std::array{&m, &d}) {
          left_of = {&m, &d};
          const size_t slot = p.lhs_count++ & 1;
          const int64_t at =
              lhs_base + offset_of(c.m, m, &CDim::lhs) + offset_of(c.k, d, &CDim::lhs);
          left = left_tile(p, lhs, at, slot, m, d, id);
        }
        if (right_of != std::array{&n, &d}) {
          right_of = {&n, &d};
          const size_t slot = p.rhs_count++ & 1;
          const int64_t at =
              rhs_base + offset_of(c.n, n, &CDim::rhs) + offset_of(c.k, d, &CDim::rhs);
          right = operand_tile(rhs, at, p.limits.rhs_whole, p.rhs[slot],
                               box_loops(c.n, n, c.k, d, &CDim::rhs), c.n.size(), id);
        }
        matmul(p, left, right, out, m, n, d, &d != &p.k.front(), id);
      }
      finish_block(k, p, out, m, n, out_base, id);
      ++p.out_count;
    }
  }
}

// Where the sums of a block go: the whole output, or a dense tile with the columns inside.
Emitter::Tile Emitter::sum_tile(const Kernel& k, const DotPlan& p, const Block& m, const Block& n,
                                int64_t base) {
  const Contraction& c = p.w.c;
  Tile t;
  if (p.limits.direct_out) {
    t.address = buffer(k.out).vmem +
                (base + offset_of(c.m, m, &CDim::out) + offset_of(c.n, n, &CDim::out)) * 4;
    for (const CDim& d : c.m) {
      t.free.push_back(d.out * 4);
    }
    for (const CDim& d : c.n) {
      t.k.push_back(d.out * 4);
    }
    return t;
  }
  t.address = p.sum[p.out_count & 1];
  t.free.assign(c.m.size(), 0);
  t.k.assign(c.n.size(), 0);
  // Dense in the order of the output's memory, but columns stay inside when it wants rows there.
  std::vector<std::array<int64_t, 3>> order;  // out stride, is row, dim
  for (size_t i = 0; i < c.m.size(); ++i) {
    order.push_back({c.m[i].out, 1, static_cast<int64_t>(i)});
  }
  for (size_t i = 0; i < c.n.size(); ++i) {
    order.push_back({c.n[i].out, 0, static_cast<int64_t>(i)});
  }
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    if (p.w.turn_out && a[1] != b[1]) {
      return a[1] < b[1];
    }
    return a[0] < b[0];
  });
  int64_t pitch = 4;
  for (const auto& [stride, row, dim] : order) {
    const auto i = static_cast<size_t>(dim);
    (row != 0 ? t.free : t.k)[i] = pitch;
    pitch *= (row != 0 ? m : n).count[i];
  }
  return t;
}

// Strides of a block's dims in the tile that goes home, in elements: as the sums, or turned.
void Emitter::final_strides(const DotPlan& p, const Tile& sums, const Block& m, const Block& n,
                            Dims& m_at, Dims& n_at) {
  const int64_t rows = m.iterations(), cols = n.iterations();
  for (const int64_t s : sums.free) {
    m_at.push_back(p.w.turn_out ? s / 4 / cols : s / 4);
  }
  for (const int64_t s : sums.k) {
    n_at.push_back(p.w.turn_out ? s / 4 * rows : s / 4);
  }
}

// The sums of a block are complete: narrower elements, transposed, home (or to the epilogue).
void Emitter::finish_block(const Kernel& k, DotPlan& p, const Tile& sums, const Block& m,
                           const Block& n, int64_t base, uint32_t id) {
  if (p.limits.direct_out) {
    return;
  }
  const Contraction& c = p.w.c;
  const int64_t rows = m.iterations(), cols = n.iterations();
  const size_t slot = p.out_count & 1;
  const int64_t bytes = elem_bytes(k.out->type.elem);
  int64_t from = sums.address;
  if (p.limits.narrow_out) {
    convert_tile(from, p.narrow[slot], rows * cols, id);
    from = p.narrow[slot];
  }
  if (p.w.turn_out) {  // [rows][cols] to [cols][rows]
    transpose(from, p.flipped[slot], bytes, rows, cols, cols * bytes, rows * bytes, id);
    from = p.flipped[slot];
  }
  if (p.epilogue != nullptr) {
    finish_fused(k, p, from, id);
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
  Buffer& out = buffer(k.out);
  const int64_t at = (base + offset_of(c.m, m, &CDim::out) + offset_of(c.n, n, &CDim::out)) * bytes;
  if (p.limits.out_whole) {
    copy(vmem_addr(from), vmem_addr(out.vmem + at), bytes, dims, id);
  } else {
    give_home(out);
    copy(vmem_addr(from), hbm(out, at), bytes, dims, id);
  }
}

}  // namespace tpu::compiler
