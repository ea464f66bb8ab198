#include "plan/dot_plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <span>
#include <utility>

#include "board/board_loader.hpp"
#include "kernel/pieced_exchanges.hpp"
#include "plan/epilogue_blocks.hpp"
#include "plan/piece.hpp"
#include "program/estimate.hpp"

namespace tpu::compiler {

using CDim = Contraction::Dim;

static void give_all(Residency& memory, std::vector<int64_t>& addresses) {
  for (const int64_t address : addresses) {
    memory.give(address);
  }
  addresses.clear();
}

std::vector<BoxLoop> box_loops(const std::vector<CDim>& free, const Block& a,
                               const std::vector<CDim>& k, const Block& b, int64_t CDim::*stride) {
  std::vector<BoxLoop> loops;
  for (size_t i = 0; i < free.size(); ++i) {
    loops.push_back({a.count[i], free[i].*stride});
  }
  for (size_t i = 0; i < k.size(); ++i) {
    loops.push_back({b.count[i], k[i].*stride});
  }
  return loops;
}

Tile sum_tile(const DotPlan& p, size_t number, const Block& m, const Block& n, int64_t base) {
  const Contraction& c = p.w.c;
  Tile t;
  if (p.limits.direct_out) {
    t.address =
        p.out_vmem + (base + offset_of(c.m, m, &CDim::out) + offset_of(c.n, n, &CDim::out)) * 4;
    for (const CDim& d : c.m) {
      t.free.push_back(d.out * 4);
    }
    for (const CDim& d : c.n) {
      t.k.push_back(d.out * 4);
    }
    return t;
  }
  const bool grouped = p.group.out && !p.w.transpose_out;
  const auto group = static_cast<size_t>(grouped ? p.group.n : 1);
  t.address = p.sum[number / group / static_cast<size_t>(p.beside.n) & 1];
  t.free.assign(c.m.size(), 0);
  t.k.assign(c.n.size(), 0);
  // Dense in the order of the output's memory, but columns stay inside when it wants rows there.
  std::vector<std::array<int64_t, 3>> order;  // out stride, is row (2: batch), dim
  if (grouped) {
    order.push_back({c.batch.back().out, 2, 0});
  }
  for (size_t i = 0; i < c.m.size(); ++i) {
    order.push_back({c.m[i].out, 1, static_cast<int64_t>(i)});
  }
  for (size_t i = 0; i < c.n.size(); ++i) {
    order.push_back({c.n[i].out, 0, static_cast<int64_t>(i)});
  }
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    if (p.w.transpose_out && a[1] != b[1]) {
      return a[1] < b[1];
    }
    return a[0] < b[0];
  });
  int64_t pitch = 4;
  for (const auto& [stride, row, dim] : order) {
    const auto i = static_cast<size_t>(dim);
    if (row == 2) {
      t.batch = pitch;
      pitch *= p.group.n;
      continue;
    }
    (row != 0 ? t.free : t.k)[i] = pitch;
    pitch *= (row != 0 ? m : n).count[i];
  }
  t.address += static_cast<int64_t>(number % group) * t.batch;
  if (p.beside.n > 1) {  // on the diagonal
    t.address +=
        static_cast<int64_t>(number) % p.beside.n * (p.beside.out_rows + p.beside.out_cols);
  }
  return t;
}

int64_t final_strides(const DotPlan& p, const Tile& sums, const Block& m, const Block& n,
                      Dims& m_at, Dims& n_at) {
  const int64_t rows = m.iterations(), cols = n.iterations();
  if (!p.w.transpose_out) {
    for (const int64_t s : sums.free) {
      m_at.push_back(s / 4);
    }
    for (const int64_t s : sums.k) {
      n_at.push_back(s / 4);
    }
    return sums.batch / 4;
  }
  // [cols][rows], or [cols][batch][rows] where the batches lie inside of the columns.
  const Contraction& c = p.w.c;
  const bool inside = p.group.out && std::all_of(c.n.begin(), c.n.end(), [&](const CDim& d) {
                        return std::abs(d.out) > std::abs(c.batch.back().out);
                      });
  const int64_t pitch = inside ? rows * p.group.n : rows;
  for (const int64_t s : sums.free) {
    m_at.push_back(s / 4 / cols);
  }
  for (const int64_t s : sums.k) {
    n_at.push_back(s / 4 * pitch);
  }
  return inside ? rows : rows * cols;
}

// Chooses the order of blocks where pieces of an array arrive or leave.
static void order_by_pieces(const Kernel& k, DotPlan& p) {
  const ContractPart& part = k.contract();
  for (const auto* order : {&part.arriving, &part.leaving}) {
    const auto side = *order ? pieced_side(p.w.c, **order, order == &part.arriving) : std::nullopt;
    if (!side || p.order != nullptr) {
      continue;
    }
    using Pieced = TileLimits::Pieced;
    p.order = &**order;
    p.limits.pieced = side->dims == &p.w.c.m ? Pieced::kRows : Pieced::kColumns;
    p.limits.pieces = (*order)->pieces;
    p.limits.piece_rows = std::max<int64_t>(
        1, (*order)->period / (*order)->pieces * side->iterations_of_row(**order));
  }
}

// An operand that arrives in pieces comes in blocks, and a result that leaves in them goes home so.
static void stream_pieces(const Kernel& k, DotPlan& p) {
  if (p.order == nullptr) {
    return;
  }
  if (p.order == (k.contract().arriving ? &*k.contract().arriving : nullptr)) {
    (p.limits.pieced == TileLimits::Pieced::kRows ? p.limits.lhs_whole : p.limits.rhs_whole) =
        false;
  } else {
    p.limits.out_whole = false;
  }
}

// With blocks in the order of pieces, if that costs no more than it is worth.
static std::optional<TileChoice> choose_ordered(DotPlan& p, const spec::BoardParams& board) {
  if (p.order == nullptr) {
    return choose_tiles(p.w, p.limits, board);
  }
  const auto ordered = choose_tiles(p.w, p.limits, board);
  TileLimits free = p.limits;
  free.pieced = TileLimits::Pieced::kNone;
  const auto any = choose_tiles(p.w, free, board);
  if (ordered && any && ordered->cycles <= any->cycles + p.order->worth) {
    return ordered;
  }
  p.order = nullptr;
  p.limits = free;
  return any;
}

// The piece after whose arrival, or before whose departure, the block runs.
static int64_t piece_of(const PieceOrder& order, const PiecedSide& side, const Block& b) {
  int64_t first = side.offset, last;
  for (size_t i = 0; i < b.start.size(); ++i) {
    first += b.start[i] * ((*side.dims)[i].*side.stride);
  }
  last = first;
  for (size_t i = 0; i < b.start.size(); ++i) {
    last += (b.count[i] - 1) * ((*side.dims)[i].*side.stride);
  }
  const int64_t member = order.stride * order.period;
  return first / member == last / member ? order.piece_of(last) : order.pieces - 1;
}

static void sort_by_pieces(const Kernel& k, DotPlan& p) {
  p.piece_ends.clear();
  if (p.order == nullptr) {
    return;
  }
  const bool arrives = k.contract().arriving && p.order == &*k.contract().arriving;
  const PiecedSide side = *pieced_side(p.w.c, *p.order, arrives);
  std::vector<Block>& blocks = p.limits.pieced == TileLimits::Pieced::kRows ? p.m : p.n;
  const auto piece = [&](const Block& b) { return piece_of(*p.order, side, b); };
  std::ranges::stable_sort(blocks, {}, piece);
  for (size_t i = 1; i <= blocks.size(); ++i) {
    if (i == blocks.size() || piece(blocks[i]) != piece(blocks[i - 1])) {
      p.piece_ends.push_back(i);
    }
  }
}

std::vector<std::pair<const Block*, const Block*>> blocks_in_order(const DotPlan& p) {
  const bool rows_outside = p.choice.rows_outside;
  const bool pieced = !p.piece_ends.empty(), rows = p.limits.pieced == TileLimits::Pieced::kRows;
  std::vector<std::pair<const Block*, const Block*>> order;
  size_t begin = 0;
  for (const size_t end : pieced ? p.piece_ends : std::vector<size_t>{0}) {
    const auto part = [&](const std::vector<Block>& blocks, bool cut) {
      return cut ? std::span(blocks).subspan(begin, end - begin) : std::span(blocks);
    };
    const std::span<const Block> m = part(p.m, pieced && rows), n = part(p.n, pieced && !rows);
    for (const Block& o : rows_outside ? m : n) {
      for (const Block& i : rows_outside ? n : m) {
        order.emplace_back(rows_outside ? &o : &i, rows_outside ? &i : &o);
      }
    }
    begin = end;
  }
  return order;
}

// False: there is too little VMEM.
// `held`: the operand that lies in VMEM block by block, null: none.
static bool place_tiles(const Kernel& k, Residency& memory, DotPlan& p, uint32_t id,
                        const Value* held = nullptr) {
  const Mapping& w = p.w;
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
  const auto together = [&](bool grouped) { return grouped ? p.group.n : 1; };
  const auto slots = [&](std::array<int64_t, 2>& slot, int64_t bytes, int64_t times) {
    for (int64_t i = 0; i < std::min<int64_t>(times, 2); ++i) {
      const auto address = memory.take(bytes);
      if (!address) {
        return false;
      }
      slot[static_cast<size_t>(i)] = *address;
      p.temporary.push_back(*address);
    }
    slot[1] = times > 1 ? slot[1] : slot[0];
    return true;
  };
  // Of an operand that comes in blocks.
  const auto ring = [&](BlockRing& r, int64_t bytes, int64_t times) {
    r = {{}, bytes, times};
    const int64_t most = std::min(times, slots_of_blocks(p.limits, bytes));
    while (static_cast<int64_t>(r.slots.size()) < most) {
      const auto address = memory.take(bytes);
      if (!address) {
        return r.slots.size() >= 2;
      }
      r.slots.push_back(*address);
      p.temporary.push_back(*address);
    }
    return true;
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
  Buffer &lhs = memory.at(w.c.lhs), &rhs = memory.at(w.c.rhs), &out = memory.at(k.out);
  const int64_t l = elem_bytes(w.c.lhs->type.elem), r = elem_bytes(w.c.rhs->type.elem);
  if (p.limits.out_whole && out.vmem < 0 && !memory.place(out)) {
    return false;
  }
  p.out_vmem = out.vmem;
  const int64_t of_l = together(p.group.lhs), of_r = together(p.group.rhs);
  const auto whole = [&](Buffer& b) { return b.value == held || load(memory, b, id); };
  if (!(p.limits.lhs_whole
            ? whole(lhs)
            : ring(p.lhs, box(w.c.m, p.m, &CDim::lhs) * l * of_l, count(p.m, p.k) / of_l)) ||
      !(p.limits.rhs_whole
            ? whole(rhs)
            : ring(p.rhs, box(w.c.n, p.n, &CDim::rhs) * r * of_r, count(p.n, p.k) / of_r))) {
    return false;
  }
  const int64_t row_bytes = rows * depth * l, results = rows * cols;
  const int64_t transposed = w.transposes()       ? row_bytes
                             : w.transposes_box() ? box(w.c.m, p.m, &CDim::lhs) * l
                                                  : 0;
  const int64_t of_out = together(p.group.out), of_sums = w.transpose_out ? 1 : of_out;
  const int64_t of_tile = of_sums * p.beside.n;
  return (!w.gathers() || slots(p.gathered, row_bytes, count(p.m, p.k))) &&
         (transposed == 0 || slots(p.transposed, transposed, count(p.m, p.k))) &&
         (p.limits.direct_out ||
          slots(p.sum, results * 4 * of_tile * p.beside.n, count(p.m, p.n) / of_tile)) &&
         (!p.limits.narrow_out ||
          slots(p.narrow, results * 2 * of_sums, count(p.m, p.n) / of_sums)) &&
         (!w.transpose_out ||
          slots(p.transposed_out, results * elem_bytes(k.out->type.elem) * of_out,
                count(p.m, p.n) / of_out));
}

// With a group of batches if there is one and VMEM has room for it, else without.
static bool place_blocks(const Kernel& k, Residency& memory, const spec::BoardParams& board,
                         DotPlan& p, uint32_t id, const Value* held = nullptr) {
  p.m = blocks_of(p.w.c.m, p.choice.m);
  p.n = blocks_of(p.w.c.n, p.choice.n);
  p.k = blocks_of(p.w.c.k, p.choice.k);
  sort_by_pieces(k, p);
  p.group = choose_batch_group(p, elem_bytes(k.out->type.elem), board);
  p.beside = batches_beside(p, board);
  if (p.group.n > 1) {
    Reservation attempt(memory);
    if (place_tiles(k, memory, p, id, held)) {
      attempt.keep();
      return true;
    }
    p.temporary.clear();
    p.group = {};
    p.beside = batches_beside(p, board);
  }
  return place_tiles(k, memory, p, id, held);
}

// Batches are short: with two slots, the load of a block waits for the product of the one before
// the last, and nothing hides the latency of a DMA. So loads in flight together get slots of their
// own, as far as VMEM is free.
static void add_slots(Residency& memory, const spec::BoardParams& board, DotPlan& p) {
  if (p.w.c.batch.empty()) {
    return;
  }
  const double latency = static_cast<double>(spec::cycles_from_ns(board, board.dma.in_fixed_ns)) *
                         hbm_bytes_per_cycle(board);
  for (BlockRing* ring : {&p.lhs, &p.rhs}) {
    if (ring->slots.size() < 2) {
      continue;
    }
    const double in_flight = std::min(std::ceil(latency / static_cast<double>(ring->bytes)),
                                      static_cast<double>(board.dma.in_flight));
    const int64_t most = std::min(ring->loads, 2 + static_cast<int64_t>(in_flight));
    while (static_cast<int64_t>(ring->slots.size()) < most) {
      const auto address = memory.take_free(ring->bytes);
      if (!address) {
        return;
      }
      ring->slots.push_back(*address);
      p.temporary.push_back(*address);
    }
  }
}

// Weights that meet a few rows, and that nobody reads later, are not brought in as a whole: their
// blocks pass through more than two slots, so that loads neither wait for products nor for what is
// between two products.
static bool is_streamed(const Buffer& weights, const std::vector<CDim>& batch,
                        const std::vector<CDim>& rows, const Residency& memory) {
  constexpr int64_t kWorth = 256 * 1024;
  return batch.empty() && Contraction::count(rows) <= kFewRows && weights.vmem < 0 &&
         weights.bytes >= kWorth && memory.next_read(weights) == INT32_MAX;
}

static void find_streamed(const Mapping& w, Residency& memory, int64_t vmem, TileLimits& t) {
  constexpr int64_t kShare = 4, kBatchShare = 2;  // of VMEM
  const Buffer &lhs = memory.at(w.c.lhs), &rhs = memory.at(w.c.rhs);
  if (w.rows != Mapping::Rows::kDirect || &lhs == &rhs) {
    return;
  }
  if (t.rhs_whole = t.rhs_whole && !is_streamed(rhs, w.c.batch, w.c.m, memory); !t.rhs_whole) {
    t.stream_bytes = is_streamed(rhs, w.c.batch, w.c.m, memory) ? vmem / kShare : 0;
  } else if (is_streamed(lhs, w.c.batch, w.c.n, memory)) {
    t.lhs_whole = false;
    t.stream_bytes = vmem / kShare;
  }
  const auto differs = [&](const Buffer& b, bool whole, const std::vector<CDim>& rows) {
    return !whole && !w.c.batch.empty() && b.vmem < 0 && Contraction::count(rows) <= kFewRows;
  };
  if (differs(rhs, t.rhs_whole, w.c.m) || differs(lhs, t.lhs_whole, w.c.n)) {
    t.batch_bytes = vmem / kBatchShare;
  }
}

std::optional<DotPlan> plan_dot(const Kernel& k, Residency& memory, const spec::BoardParams& board,
                                uint32_t id) {
  DotPlan p;
  p.w = map_contraction(k.contract().dot, board);
  const Mapping& w = p.w;
  Buffer &lhs = memory.at(w.c.lhs), &rhs = memory.at(w.c.rhs), &out = memory.at(k.out);
  const int64_t vmem = board.core.vmem_kib * 1024, limit = memory.operand_limit();
  memory.pins().pin({&lhs, &rhs, &out});
  TileLimits& t = p.limits;
  t.lhs_whole = !w.transposes_box() && (lhs.vmem >= 0 || lhs.bytes <= limit);
  t.rhs_whole = rhs.vmem >= 0 || rhs.bytes <= limit;
  find_streamed(w, memory, vmem, t);
  t.out_whole = out.bytes <= memory.kept_limit();
  t.narrow_out = k.out->type.elem == Elem::kBf16;
  order_by_pieces(k, p);
  stream_pieces(k, p);
  std::vector<Buffer*> leaving;  // operands that come in blocks instead
  int64_t share = vmem * 3 / 4;
  for (;;) {
    int64_t whole = t.out_whole ? out.bytes : 0;
    whole += t.lhs_whole ? lhs.bytes : 0;
    whole += t.rhs_whole && &rhs != &lhs ? rhs.bytes : 0;
    t.direct_out = t.out_whole && !t.narrow_out && !w.transpose_out;
    t.budget = std::min(share, vmem * 15 / 16 - whole);
    const auto choice = choose_ordered(p, board);
    if (choice) {
      p.choice = *choice;
      Reservation attempt(memory);
      for (Buffer* b : leaving) {
        leave_vmem(memory, *b, id);
      }
      if (place_blocks(k, memory, board, p, id)) {
        add_slots(memory, board, p);
        attempt.keep();
        return p;
      }
      p.temporary.clear();
    }
    // A whole operand is loaded once, in blocks often: smaller blocks are cheaper, down to a point.
    // The output leaves once either way. Then the largest whole goes; then smaller ones yet.
    std::array<std::pair<int64_t, bool*>, 3> wholes = {
        {{t.lhs_whole && !lhs.locked ? lhs.bytes : 0, &t.lhs_whole},
         {t.rhs_whole && !rhs.locked ? rhs.bytes : 0, &t.rhs_whole},
         {t.out_whole ? out.bytes : 0, &t.out_whole}}};
    const auto largest =
        std::max_element(wholes.begin(), wholes.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
    if (choice && largest->second != &t.out_whole && share > vmem / 4) {
      share -= share / 8;
    } else if (largest->first > 0) {
      *largest->second = false;
      if (&lhs == &rhs) {
        t.lhs_whole = t.rhs_whole = t.lhs_whole && t.rhs_whole;
      }
      for (const auto& [operand, stays] : {std::pair{&lhs, t.lhs_whole}, {&rhs, t.rhs_whole}}) {
        if (!stays && !operand->locked) {
          leaving.push_back(operand);
        }
      }
    } else if (share > 1024) {
      share -= share / 8;
    } else {
      return std::nullopt;
    }
  }
}

// Sums over columns end inside of a block, those over rows are carried from block to block.
static bool sums_rows(const Nest& nest) { return nest.has_reduce && !nest.loops.back().reduced; }

// Blocks of one batch may leave rows of the vector unit empty that the loops of a whole kernel
// fill: one head of those that lie side by side.
static bool fills_rows(const Nest& nest, const LoopPlan& plan) {
  constexpr double kWorth = 0.9;
  const auto used = [](int64_t n, int64_t block) {
    return static_cast<double>(n) / static_cast<double>(round_up(n, block));
  };
  double whole = 1, tile = 1;
  for (const auto& [loop, block] :
       {std::pair{plan.options.row_loop, kSublanes}, std::pair{plan.options.col_loop, kLanes}}) {
    if (loop >= 0) {
      const auto l = static_cast<size_t>(loop);
      whole *= used(nest.loops[l].n, block);
      tile *= used(plan.tile[l], block);
    }
  }
  return tile >= whole * kWorth;
}

// The box of every block, in the order of the blocks, and the largest of them.
static bool fused_boxes(const Nest& nest, const DotPlan& p, EpiloguePlan& epilogue) {
  LoopPlan& plan = epilogue.loop;
  const std::vector<CDim>& batch = p.w.c.batch;
  plan.tile.assign(nest.loops.size(), 1);
  const auto blocks = blocks_in_order(p);
  for (const Block& each : blocks_of(batch, {batch.empty() ? 0 : batch.size() - 1, 1})) {
    for (const auto& [m, n] : blocks) {
      Dims m_at, n_at;
      final_strides(p, sum_tile(p, 0, *m, *n, 0), *m, *n, m_at, n_at);
      const auto box = nest_block(nest, p.w.c, each, *m, *n, m_at, n_at);
      if (!box) {
        return false;
      }
      for (size_t l = 0; l < plan.tile.size(); ++l) {
        plan.tile[l] = std::max(plan.tile[l], box->count[l]);
      }
      epilogue.boxes.push_back(*box);
    }
  }
  const bool rows_alone = nest.elements() < p.w.c.results();
  return (batch.empty() || rows_alone || fills_rows(nest, plan)) &&
         (sums_rows(nest) ? carries_reductions(nest, epilogue.boxes)
                          : holds_reductions(nest, epilogue.boxes));
}

static bool holds_value(const std::vector<const Value*>& list, const Value* v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

static const Nest& nest_of(const Kernel& k, size_t epilogue) {
  return k.contract().after[epilogue]->loop().nest;
}

// The stream of an epilogue before number `end` whose slots hold `value`; null: there is none.
static const Stream* earlier_stream(const DotPlan& p, size_t end, const Value* value,
                                    size_t& epilogue) {
  for (epilogue = 0; epilogue < end; ++epilogue) {
    const auto& streams = p.epilogues[epilogue].loop.streams;
    const auto it = std::find_if(streams.begin(), streams.end(), [&](const Stream& s) {
      return s.value == value && s.reach == 0 && !s.shared;
    });
    if (it != streams.end()) {
      return &*it;
    }
  }
  return nullptr;
}

// Which values stay in slots between the epilogues. False: one of them has no slots there.
static bool share_streams(const Kernel& k, DotPlan& p) {
  for (size_t i = 0; i < p.epilogues.size(); ++i) {
    for (Stream& s : p.epilogues[i].loop.streams) {
      size_t at = 0;
      s.local = s.output && !holds_value(k.writes, s.value);
      const Stream* earlier = s.output || s.reach > 0 ? nullptr : earlier_stream(p, i, s.value, at);
      s.shared = earlier != nullptr;
      s.exact = s.shared && earlier->output;
      const auto made = [&](size_t other) {
        return holds_value(k.contract().after[other]->writes, s.value);
      };
      bool is_made = false;
      for (size_t other = 0; other < i; ++other) {
        is_made = is_made || made(other);
      }
      if (!s.output && is_made && !s.shared) {
        return false;
      }
    }
  }
  return true;
}

// In each block, both tiles of the value are in their slots in the same way: a reversed view has
// another first element at an equal distance.
static bool equal_pieces(const Stream& a, const EpiloguePlan& of_a, const Stream& b,
                         const EpiloguePlan& of_b) {
  for (size_t i = 0; i < of_a.boxes.size(); ++i) {
    const NestBlock &x = of_a.boxes[i], &y = of_b.boxes[i];
    const Piece p = make_piece(a.view, x.start, x.count, a.output),
                q = make_piece(b.view, y.start, y.count, b.exact);
    if (p.first != q.first || p.origin != q.origin || p.elements != q.elements ||
        p.dims != q.dims) {
      return false;
    }
  }
  return true;
}

static bool shares_fit(DotPlan& p) {
  for (size_t i = 0; i < p.epilogues.size(); ++i) {
    for (const Stream& s : p.epilogues[i].loop.streams) {
      size_t at = 0;
      const Stream* earlier = s.shared ? earlier_stream(p, i, s.value, at) : nullptr;
      if (earlier != nullptr && !equal_pieces(*earlier, p.epilogues[at], s, p.epilogues[i])) {
        return false;
      }
    }
  }
  return true;
}

static bool place_epilogues(const Kernel& k, Residency& memory, DotPlan& p, uint32_t id) {
  for (size_t i = 0; i < p.epilogues.size(); ++i) {
    for (Stream& s : p.epilogues[i].loop.streams) {
      size_t at = 0;
      if (s.shared) {
        const Stream* const earlier = earlier_stream(p, i, s.value, at);
        s.slots = earlier->slots;
        s.slot_bytes = earlier->slot_bytes;
      }
    }
    if (!place_loop(*k.contract().after[i], memory, p.epilogues[i].loop, id)) {
      return false;
    }
  }
  return true;
}

// Matmuls of later blocks read operands which the epilogue of an earlier one must not overwrite.
static void spare_operands(const Kernel& k, Residency& memory) {
  for (const Value* v : k.writes) {
    if (Buffer& b = memory.at(v); b.over_operand) {
      memory.touch(b);
      b.target = -1;
      b.over_operand = false;
    }
  }
}

static bool place_fused(const Kernel& k, Residency& memory, const spec::BoardParams& board,
                        DotPlan& p, uint32_t id) {
  // As they are mapped: the operands of the dot may have changed places.
  Buffer &lhs = memory.at(p.w.c.lhs), &rhs = memory.at(p.w.c.rhs);
  const int64_t vmem = board.core.vmem_kib * 1024, limit = memory.operand_limit();
  TileLimits& t = p.limits;
  t.lhs_whole = !p.w.transposes_box() && (lhs.vmem >= 0 || lhs.bytes <= limit);
  t.rhs_whole = rhs.vmem >= 0 || rhs.bytes <= limit;
  find_streamed(p.w, memory, vmem, t);
  t.narrow_out = k.out->type.elem == Elem::kBf16;
  for (size_t i = 0; i < p.epilogues.size(); ++i) {
    t.whole_vectors = t.whole_vectors || sums_rows(nest_of(k, i));
  }
  if (!t.whole_vectors) {  // else reductions are carried from rows to the next ones
    order_by_pieces(k, p);
    stream_pieces(k, p);
  }
  int64_t whole = (t.lhs_whole ? lhs.bytes : 0) + (t.rhs_whole && &rhs != &lhs ? rhs.bytes : 0);
  std::vector<const Value*> wholes;
  for (size_t i = 0; i < p.epilogues.size(); ++i) {
    const Nest& nest = nest_of(k, i);
    t.whole_columns = t.whole_columns || (nest.has_reduce && !sums_rows(nest));
    for (const Value* v : p.epilogues[i].loop.whole) {
      if (!holds_value(wholes, v)) {
        wholes.push_back(v);
        whole += memory.at(v).bytes;
      }
    }
    for (const Stream& s : p.epilogues[i].loop.streams) {
      // Of what the later ones have once for a row there is little.
      const bool few = i > 0 && (nest.elements() < p.w.c.results() || s.view.stride.back() == 0);
      const int64_t bytes = s.shared || few ? 0 : elem_bytes(s.value->type.elem);
      (s.local ? t.local_bytes : t.epilogue_bytes) += bytes;
    }
  }
  t.budget = std::min(vmem * 3 / 4, vmem * 15 / 16 - whole);
  const auto choice = choose_ordered(p, board);
  if (!choice) {
    return false;
  }
  p.choice = *choice;
  p.m = blocks_of(p.w.c.m, p.choice.m);
  p.n = blocks_of(p.w.c.n, p.choice.n);
  sort_by_pieces(k, p);
  for (size_t i = 0; i < p.epilogues.size(); ++i) {
    if (!fused_boxes(nest_of(k, i), p, p.epilogues[i])) {
      return false;
    }
  }
  if (!shares_fit(p)) {
    return false;
  }
  if (p.epilogues.front().boxes.size() > 1) {
    spare_operands(k, memory);
  }
  memory.pins().pin({&lhs, &rhs});
  return place_blocks(k, memory, board, p, id) && place_epilogues(k, memory, p, id);
}

std::optional<DotPlan> plan_fused(const Kernel& k, Residency& memory,
                                  const spec::BoardParams& board, uint32_t id) {
  DotPlan p;
  p.stores_sums = std::find(k.writes.begin(), k.writes.end(), k.out) != k.writes.end();
  if (Contraction::count(k.contract().dot.k) == 0 ||
      (p.stores_sums && memory.at(k.out).bytes <= memory.kept_limit())) {
    return std::nullopt;  // small sums stay in VMEM for their other readers
  }
  for (const auto& loop : k.contract().after) {
    LoopPlan& plan = p.epilogues.emplace_back().loop;
    choose_program(*loop, plan);
    plan.from_tile = k.out;
    if (plan.options.stores.empty() || !choose_streams(*loop, memory, board, plan)) {
      return std::nullopt;
    }
  }
  if (!share_streams(k, p)) {
    return std::nullopt;
  }
  p.w = map_contraction(k.contract().dot, board);
  Reservation attempt(memory);
  if (!place_fused(k, memory, board, p, id)) {
    return std::nullopt;
  }
  add_slots(memory, board, p);
  attempt.keep();
  return p;
}

// The output stream of an epilogue that is `value`, as indices of both. False: there is none.
static bool find_made(const DotPlan& chain, const Value* value, ProductPlan& product) {
  for (size_t e = 0; e < chain.epilogues.size(); ++e) {
    const std::vector<Stream>& streams = chain.epilogues[e].loop.streams;
    for (size_t s = 0; s < streams.size(); ++s) {
      if (streams[s].output && !streams[s].local && streams[s].value == value) {
        product.epilogue = e;
        product.stream = s;
        return true;
      }
    }
  }
  return false;
}

// One run from the first element on.
static bool is_one_run(const TileBox& box, int64_t elements) {
  return box.elements == elements && box.origin == 0 && box.first == 0 &&
         std::ranges::all_of(box.dims, [](const CopyDim& d) { return d.src == d.dst; });
}

// True if each block of the epilogue is the operand of one batch, dense and in the same order.
static bool meets_batches(const DotPlan& chain, const ProductPlan& product) {
  const DotPlan& p = product.dot;
  const Contraction& c = p.w.c;
  const EpiloguePlan& epilogue = chain.epilogues[product.epilogue];
  const Stream& s = epilogue.loop.streams[product.stream];
  const auto of = [&](auto side, const std::vector<CDim>& free, const Block& block,
                      int64_t offset) {
    const std::vector<BoxLoop> loops = box_loops(free, block, c.k, p.k[0], side);
    const int64_t elements = block.iterations() * p.k[0].iterations();
    if (std::ranges::any_of(loops, [](const BoxLoop& l) { return l.n > 1 && l.stride <= 0; }) ||
        !is_one_run(make_box(loops, true), elements)) {
      return false;
    }
    const std::vector<Block> batches = blocks_of(c.batch, {c.batch.size() - 1, 1});
    if (batches.size() != epilogue.boxes.size()) {
      return false;
    }
    for (size_t i = 0; i < batches.size(); ++i) {
      const NestBlock& box = epilogue.boxes[i];
      const Piece piece = make_piece(s.view, box.start, box.count, true);
      if (piece.elements != elements || piece.origin != 0 || piece.dims.size() != 1 ||
          piece.dims[0].src != 1 || piece.first != offset + offset_of(c.batch, batches[i], side)) {
        return false;
      }
    }
    return true;
  };
  return product.held_left ? of(&CDim::lhs, c.m, p.m[0], c.lhs_offset)
                           : of(&CDim::rhs, c.n, p.n[0], c.rhs_offset);
}

static bool is_made(const Kernel& k, const DotPlan& chain, const Value* v) {
  const auto writes = [v](const auto& loop) { return holds_value(loop->writes, v); };
  return k.out == v || std::ranges::any_of(k.contract().after, writes) ||
         std::ranges::any_of(chain.products,
                             [v](const ProductPlan& p) { return p.kernel->out == v; });
}

std::optional<ProductPlan> plan_product(const Kernel& k, const DotPlan& chain, const Kernel& next,
                                        Residency& memory, const MovingAddresses& moving,
                                        const spec::BoardParams& board, uint32_t op_id) {
  ProductPlan product;
  product.kernel = &next;
  product.op_id = op_id;
  DotPlan& p = product.dot;
  const Contraction& dot = next.contract().dot;
  if (dot.batch.empty() || Contraction::count(dot.k) == 0 || dot.lhs == dot.rhs ||
      chain.m.size() != 1 || chain.n.size() != 1 || chain.k.size() != 1) {
    return std::nullopt;
  }
  p.w = map_contraction(dot, board);
  const Contraction& c = p.w.c;
  product.held_left = find_made(chain, c.lhs, product);
  const Value *held = product.held_left ? c.lhs : c.rhs, *other = product.held_left ? c.rhs : c.lhs;
  if (!find_made(chain, held, product) || is_made(k, chain, other) || p.w.chunk > 0 ||
      (product.held_left && p.w.transposes_box())) {
    return std::nullopt;
  }
  Buffer &brought = memory.at(other), &out = memory.at(next.out);
  // What the chain reads until its end must not be overwritten by the first product.
  const auto shares_home = [&](const Value* v) {
    const Buffer& b = memory.at(v);
    return out.slot >= 0 && !out.scratch && b.slot >= 0 &&
           !moving.are_apart(b.slot, b.table, out.slot, out.table);
  };
  const auto read_by = [&](const ProductPlan& each) {
    return std::ranges::any_of(each.kernel->reads, shares_home);
  };
  if (out.target >= 0 || std::ranges::any_of(k.reads, shares_home) ||
      std::ranges::any_of(next.reads, shares_home) ||
      std::ranges::any_of(chain.products, read_by)) {
    return std::nullopt;
  }
  TileLimits& t = p.limits;
  t.lhs_whole = product.held_left || (!p.w.transposes_box() && brought.vmem >= 0);
  t.rhs_whole = !product.held_left || brought.vmem >= 0;
  t.out_whole = out.bytes <= memory.kept_limit();
  t.narrow_out = next.out->type.elem == Elem::kBf16;
  t.direct_out = t.out_whole && !t.narrow_out && !p.w.transpose_out;
  const auto all = [](const std::vector<CDim>& dims) {
    return dims.empty() ? Cut{0, 1} : Cut{0, dims[0].n};
  };
  p.choice = {all(c.m), all(c.n), all(c.k)};
  p.m = blocks_of(c.m, p.choice.m);
  p.n = blocks_of(c.n, p.choice.n);
  p.k = blocks_of(c.k, p.choice.k);
  if (!meets_batches(chain, product)) {
    return std::nullopt;
  }
  Reservation attempt(memory);
  memory.pins().add(brought);
  memory.pins().add(out);
  if (!place_blocks(next, memory, board, p, op_id, held) || p.beside.n > 1) {
    return std::nullopt;
  }
  add_slots(memory, board, p);
  attempt.keep();
  return product;
}

void release_dot(Residency& memory, DotPlan& p) {
  give_all(memory, p.temporary);
  for (EpiloguePlan& e : p.epilogues) {
    release_loop(memory, e.loop);
  }
  for (ProductPlan& product : p.products) {
    give_all(memory, product.dot.temporary);
  }
  memory.pins().clear();
}

}  // namespace tpu::compiler
