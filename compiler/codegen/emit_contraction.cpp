// Contractions: blocks of rows x columns x depth on both matrix units. Operands lie in VMEM as a
// whole or come in blocks through two slots (a block holds overlapping windows once); rows that are
// not dense along k pass the transpose unit or a DMA inside VMEM. Sums stay in VMEM over all blocks
// of k, in an order that follows from shapes alone (contraction.hpp).
#include <algorithm>
#include <array>

#include "codegen/contraction_plan.hpp"

namespace tpu::compiler {

namespace {

using CDim = Contraction::Dim;

// One loop of a command; strides in bytes.
struct Walk {
  int64_t n = 1, a = 0, b = 0;
};

// Merges loops whose strides nest.
void merge(std::vector<Walk>& w) {
  std::erase_if(w, [](const Walk& d) { return d.n == 1; });
  for (size_t i = w.size(); i-- > 1;) {
    if (w[i - 1].a == w[i].n * w[i].a && w[i - 1].b == w[i].n * w[i].b) {
      w[i].n *= w[i - 1].n;
      w.erase(w.begin() + static_cast<ptrdiff_t>(i) - 1);
    }
  }
}

int64_t offset_of(const std::vector<CDim>& dims, const Block& b, int64_t CDim::*stride) {
  int64_t at = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    at += b.start[i] * (dims[i].*stride);
  }
  return at;
}

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
                            Contraction::count(k.dot.n) * Contraction::count(k.dot.k));
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
  t.lhs_whole = lhs.vmem >= 0 || lhs.bytes <= limit;
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
        {{t.lhs_whole ? lhs.bytes : 0, &t.lhs_whole},
         {t.rhs_whole ? rhs.bytes : 0, &t.rhs_whole},
         {t.out_whole ? out.bytes : 0, &t.out_whole}}};
    const auto largest =
        std::max_element(wholes.begin(), wholes.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
    if (largest->first > 0) {
      *largest->second = false;
      if (&lhs == &rhs) {
        t.lhs_whole = t.rhs_whole = t.lhs_whole && t.rhs_whole;
      }
      drop_copy(lhs, t.lhs_whole, id);
      drop_copy(rhs, t.rhs_whole, id);
    } else if (share > 1024) {
      share /= 2;
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
    out.vmem = take(out.bytes);
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

std::vector<BoxLoop> Emitter::box_loops(const std::vector<CDim>& free, const Block& a,
                                        const std::vector<CDim>& k, const Block& b,
                                        int64_t CDim::*stride) {
  std::vector<BoxLoop> loops;
  for (size_t i = 0; i < free.size(); ++i) {
    loops.push_back({a.count[i], free[i].*stride});
  }
  for (size_t i = 0; i < k.size(); ++i) {
    loops.push_back({b.count[i], k[i].*stride});
  }
  return loops;
}

// The block of an operand, whole in VMEM or loaded into `slot`.
Emitter::Tile Emitter::operand_tile(const Buffer& b, int64_t base, bool whole, int64_t slot,
                                    const std::vector<BoxLoop>& loops, size_t free, uint32_t id) {
  const int64_t bytes = elem_bytes(b.value->type.elem);
  Tile t;
  const auto put = [&](size_t i, int64_t stride) {
    (i < free ? t.free : t.k).push_back(stride * bytes);
  };
  if (whole) {
    t.address = b.vmem + base * bytes;
    for (size_t i = 0; i < loops.size(); ++i) {
      put(i, loops[i].stride);
    }
    return t;
  }
  const TileBox box = make_box(loops, false);
  std::vector<CopyDim> dims = box.dims;
  for (CopyDim& d : dims) {
    d.src *= bytes;
    d.dst *= bytes;
  }
  copy(hbm(b, (base + box.first) * bytes), vmem_addr(slot), bytes, dims, id);
  t.address = slot + box.origin * bytes;
  for (size_t i = 0; i < loops.size(); ++i) {
    put(i, box.stride[i]);
  }
  return t;
}

// Rows packed densely by a DMA inside VMEM: [M][K], or [K][M] for the transpose unit.
Emitter::Tile Emitter::gather_tile(const Tile& from, const Block& m, const Block& k, bool k_inside,
                                   int64_t bytes, int64_t slot, uint32_t id) {
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
  copy(vmem_addr(from.address), vmem_addr(slot), bytes, dims, id);
  return t;
}

void Emitter::transpose(int64_t src, int64_t dst, int64_t bytes, int64_t rows, int64_t cols,
                        int64_t src_pitch, int64_t dst_pitch, uint32_t id) {
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
  listing.append(std::move(command));
}

// [K][M] to [M][K]; m dims outside of k one by one.
Emitter::Tile Emitter::turn_tile(const Tile& from, const Block& m, const Block& k, int64_t bytes,
                                 int64_t slot, uint32_t id) {
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
    transpose(from.address + offset_of(outer, b, &CDim::lhs),
              slot + offset_of(outer, b, &CDim::out), bytes, depth, inner, k_pitch, depth * bytes,
              id);
  }
  return t;
}

// All blocks of one batch element.
void Emitter::dot_batch(const Kernel& k, DotPlan& p, const Block& batch, uint32_t id) {
  const Contraction& c = p.w.c;
  const Buffer &lhs = buffer(c.lhs), &rhs = buffer(c.rhs);
  const int64_t lhs_base = c.lhs_offset + offset_of(c.batch, batch, &CDim::lhs);
  const int64_t rhs_base = c.rhs_offset + offset_of(c.batch, batch, &CDim::rhs);
  const int64_t out_base = offset_of(c.batch, batch, &CDim::out);
  const int64_t l = elem_bytes(c.lhs->type.elem);
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
          left = operand_tile(lhs, at, p.limits.lhs_whole, p.lhs[slot],
                              box_loops(c.m, m, c.k, d, &CDim::lhs), c.m.size(), id);
          if (p.w.gathers()) {
            left = gather_tile(left, m, d, !p.w.turns(), l, p.gathered[slot], id);
          }
          if (p.w.turns()) {
            left = turn_tile(left, m, d, l, p.turned[slot], id);
          }
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

// One block on one or both units.
void Emitter::matmul(const DotPlan& p, const Tile& left, const Tile& right, const Tile& out,
                     const Block& m, const Block& n, const Block& k, bool accumulate, uint32_t id) {
  const Contraction& c = p.w.c;
  std::vector<Walk> rows, cols, taps, run;
  for (size_t i = 0; i < c.m.size(); ++i) {
    rows.push_back({m.count[i], left.free[i], out.free[i]});
  }
  for (size_t i = 0; i < c.n.size(); ++i) {
    cols.push_back({n.count[i], right.free[i], out.k[i]});
  }
  for (size_t i = 0; i < c.k.size(); ++i) {
    (i + p.w.run < c.k.size() ? taps : run).push_back({k.count[i], left.k[i], right.k[i]});
  }
  for (auto* w : {&rows, &cols, &taps, &run}) {
    merge(*w);
  }
  if (rows.size() > 4 || cols.size() > 2 || taps.size() > 3 || run.size() > 3) {
    throw Error("internal: a block of a contraction has too many strides");
  }
  const auto counts = [](const std::vector<Walk>& w) {
    std::vector<int64_t> out_counts;
    for (const Walk& d : w) {
      out_counts.push_back(d.n);
    }
    return out_counts;
  };
  int64_t depth = 1, tap_count = 1;
  for (const Walk& d : run) {
    depth *= d.n;
  }
  for (const Walk& d : taps) {
    tap_count *= d.n;
  }
  const UnitShare share =
      share_units(counts(rows), counts(cols),
                  tap_count * ((depth + board_.mxu.rows - 1) / board_.mxu.rows), board_);
  const bool two = share.by != UnitShare::By::kNone;
  for (int unit = 0; unit < (two ? 2 : 1); ++unit) {
    std::vector<Walk> r = rows, n_w = cols;
    int64_t lhs_at = left.address, rhs_at = right.address, out_at = out.address;
    if (two) {
      const bool by_rows = share.by == UnitShare::By::kRows;
      Walk& d = by_rows                                    ? r.front()
                : share.by == UnitShare::By::kOuterColumns ? n_w.front()
                                                           : n_w.back();
      if (unit == 1) {
        (by_rows ? lhs_at : rhs_at) += share.first * d.a;
        out_at += share.first * d.b;
      }
      d.n = unit == 0 ? share.first : d.n - share.first;
    }
    auto cmd = make_command<spec::MatmulCommand>(
        spec::Opcode::kMatmul, unit == 0 ? spec::Queue::kMxu0 : spec::Queue::kMxu1, id);
    cmd.out = vmem_addr(out_at);
    cmd.lhs = vmem_addr(lhs_at);
    cmd.rhs = vmem_addr(rhs_at);
    cmd.lhs_type = static_cast<uint8_t>(isa_elem(c.lhs->type.elem));
    cmd.rhs_type = static_cast<uint8_t>(isa_elem(c.rhs->type.elem));
    const auto put = [](const std::vector<Walk>& w, auto& n_field, auto* a_field, auto* b_field) {
      n_field.fill(1);
      const size_t shift = n_field.size() - w.size();
      for (size_t i = 0; i < w.size(); ++i) {
        n_field[shift + i] = static_cast<uint32_t>(w[i].n);
        if (a_field != nullptr) {
          (*a_field)[shift + i] = static_cast<int32_t>(w[i].a);
        }
        (*b_field)[shift + i] = static_cast<int32_t>(w[i].b);
      }
    };
    put(r, cmd.m, &cmd.m_lhs, &cmd.m_out);
    put(taps, cmd.t, &cmd.t_lhs, &cmd.t_rhs);
    put(run, cmd.k, static_cast<decltype(&cmd.k_rhs)>(nullptr), &cmd.k_rhs);
    put(n_w, cmd.n, &cmd.n_rhs, &cmd.n_out);
    const bool transposed = std::abs(cmd.n_rhs[1]) > std::abs(cmd.k_rhs[2]) && cmd.k[2] > 1;
    cmd.head.flags = static_cast<uint8_t>((accumulate ? 1 : 0) | (transposed ? 2 : 0));
    Command command;
    command.body = cmd;
    listing.append(std::move(command));
  }
}

// f32 to bf16, dense.
void Emitter::convert_tile(int64_t from, int64_t to, int64_t count, uint32_t id) {
  VpuProgram program;
  program.header.registers = 1;
  program.header.section[4] = 2;
  spec::VpuInsn load_insn{static_cast<uint8_t>(spec::VpuOp::kLoad), 0, 0, 0, 0};
  spec::VpuInsn store_insn{static_cast<uint8_t>(spec::VpuOp::kStore), 0, 0, 0, 1};
  program.code = {load_insn, store_insn};
  auto c = make_command<spec::VpuKernelCommand>(spec::Opcode::kVpuKernel, spec::Queue::kVpu, id);
  c.head.flags = 1;
  c.row_loop = 255;
  c.col_loop = 3;
  c.loops = {1, 1, 1, static_cast<uint32_t>((count + 1023) / 1024)};
  c.rows = 1;
  c.cols = static_cast<uint32_t>(count);
  Command command;
  for (const bool out : {false, true}) {
    spec::VpuAccess a{};
    const int32_t bytes = out ? 2 : 4;
    a.addr = vmem_addr(out ? to : from);
    a.type = static_cast<uint8_t>(out ? spec::Elem::kBf16 : spec::Elem::kF32);
    a.lane = bytes;
    a.loop[3] = 1024 * bytes;
    command.accesses.push_back(a);
  }
  command.program = listing.add_program(std::move(program));
  command.body = c;
  listing.append(std::move(command));
}

}  // namespace tpu::compiler
