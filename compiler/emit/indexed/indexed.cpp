// Kernels that move windows by a list of element offsets: one indexed DMA for each piece of the
// list. Tables and targets stay where they are, in HBM or VMEM; the list passes through VMEM.
#include <algorithm>

#include "emit/context.hpp"
#include "plan/regions.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kMovedPieceBytes = 512 * 1024;  // of moved elements
constexpr int64_t kPieceRecords = 16 * 1024;      // of the list
constexpr int64_t kMinPieceRecords = 32;          // below that the fixed time of a DMA dominates

}  // namespace

// One side is addressed by the list, the other dense. More than four strides of a window: the
// outermost ones are commands of their own.
struct IndexedMove {
  spec::Addr table, dense;
  bool scatter = false;
  int64_t elem_bytes = 4, window_elements = 1;
  int64_t span = 0;           // bytes of the table
  std::vector<CopyDim> dims;  // of a window: src = table, dst = dense side
  const Buffer* list = nullptr;
  int64_t records = 0;
};

static void indexed_command(EmitContext& ctx, const IndexedMove& m, int64_t list, int64_t first,
                            int64_t records, uint32_t id) {
  std::vector<CopyDim> dims = m.dims;
  const size_t split = dims.size() > 4 ? dims.size() - 4 : 0;
  int64_t outer = 1;
  for (size_t i = 0; i < split; ++i) {
    outer *= dims[i].n;
  }
  const bool to_hbm =
      static_cast<spec::Space>((m.scatter ? m.table : m.dense).space) == spec::Space::kHbm;
  for (int64_t n = 0; n < outer; ++n) {
    int64_t table = 0, dense = first * m.window_elements * m.elem_bytes;
    for (int64_t i = static_cast<int64_t>(split) - 1, rest = n; i >= 0; --i) {
      const CopyDim& d = dims[static_cast<size_t>(i)];
      table += rest % d.n * d.src;
      dense += rest % d.n * d.dst;
      rest /= d.n;
    }
    auto c = make_command<spec::DmaIndexedCommand>(
        spec::Opcode::kDmaIndexed, to_hbm ? spec::Queue::kDmaOut : spec::Queue::kDmaIn, id);
    c.head.flags = m.scatter ? c.kScatter : 0;
    spec::Addr& indexed = m.scatter ? c.dst : c.src;
    spec::Addr& other = m.scatter ? c.src : c.dst;
    indexed = m.table;
    indexed.offset += table;
    other = m.dense;
    other.offset += dense;
    c.list = vmem_addr(list);
    c.elem_bytes = c.unit = static_cast<uint32_t>(m.elem_bytes);
    c.records = static_cast<uint32_t>(records);
    c.counts.fill(1);
    for (size_t i = split; i < dims.size(); ++i) {
      const size_t at = 4 - dims.size() + i;
      c.counts[at] = static_cast<uint32_t>(dims[i].n);
      (m.scatter ? c.dst_strides : c.src_strides)[at] = dims[i].src;
      (m.scatter ? c.src_strides : c.dst_strides)[at] = dims[i].dst;
    }
    c.record_stride = m.window_elements * m.elem_bytes;
    c.span = m.span - table;
    Command command;
    command.body = c;
    ctx.sink.append(std::move(command));
  }
}

// Pieces in the order of the list. A list that is not in VMEM comes piece by piece.
static bool indexed_moves(EmitContext& ctx, const IndexedMove& m, uint32_t id) {
  const int64_t record = std::max<int64_t>(m.window_elements * m.elem_bytes, 1);
  int64_t piece = std::clamp<int64_t>(kMovedPieceBytes / record, kMinPieceRecords, kPieceRecords);
  piece = std::min({piece, m.records, std::max<int64_t>(ctx.board.core.vmem_kib * 1024 / 64, 1)});
  int64_t slot[2] = {-1, -1};
  for (int64_t& s : slot) {
    if (m.list->vmem >= 0) {
      break;
    }
    s = take(ctx, piece * 4).value_or(-1);
    if (s < 0) {
      return false;
    }
  }
  for (int64_t at = 0, number = 0; at < m.records; at += piece, ++number) {
    const int64_t count = std::min(piece, m.records - at);
    int64_t list = m.list->vmem + 4 * at;
    if (m.list->vmem < 0) {
      list = slot[number % 2];
      ctx.sink.copy(home_of(*m.list, 4 * at), vmem_addr(list), 4, {{count, 4, 4}}, id);
    }
    indexed_command(ctx, m, list, at, count, id);
  }
  for (const int64_t s : slot) {
    if (s >= 0) {
      ctx.memory.give(s);
    }
  }
  return true;
}

// The window's strides in the table (row-major) and in a dense record, merged.
static std::vector<CopyDim> window_dims(const Dims& table, const Dims& window, int64_t bytes) {
  const Dims pitch = row_major_strides(table), dense = row_major_strides(window);
  std::vector<CopyDim> dims;
  for (size_t d = 0; d < table.size(); ++d) {
    if (window[d] == 1) {
      continue;
    }
    const CopyDim next{window[d], pitch[d] * bytes, dense[d] * bytes};
    if (!dims.empty() && dims.back().src == next.n * next.src &&
        dims.back().dst == next.n * next.dst) {
      dims.back() = {dims.back().n * next.n, next.src, next.dst};
    } else {
      dims.push_back(next);
    }
  }
  return dims;
}

static IndexedMove indexed_move(const Op& op, const Buffer& table, const Buffer& dense,
                                const Buffer& list) {
  IndexedMove m;
  const Dims& window = op.as<IndexedAttrs>().window;
  m.table = place_of(table);
  m.dense = place_of(dense);
  m.elem_bytes = elem_bytes(op.type().elem);
  m.window_elements = Type{Elem::kI8, window}.count();
  m.span = table.bytes;
  m.dims = window_dims(table.value->type.dims, window, m.elem_bytes);
  m.list = &list;
  m.records = op.operand_type(1).count();
  return m;
}

static bool emit_indexed_read(EmitContext& ctx, const Kernel& k, uint32_t id) {
  const Op& op = *k.ops[0];
  Buffer& table = ctx.memory.at(k.reads[0]);
  const Buffer& list = ctx.memory.at(k.reads[1]);
  Buffer& out = ctx.memory.at(op.result());
  ctx.memory.pin({&table, &list, &out});
  place_result(ctx, out);
  if (!indexed_moves(ctx, indexed_move(op, table, out, list), id)) {
    return false;
  }
  finish_result(ctx, out, id);
  ctx.memory.unpin();
  return true;
}

// True if the kernel may write over the operand: nobody reads it afterwards, and it was made in the
// same region (values from outside and region arguments must be there again in the next iteration
// of a loop).
bool may_take(EmitContext& ctx, const Kernel& k, const Buffer& from) {
  const Value& v = *from.value;
  const Region* region = k.ops[0]->parent;
  const bool here = v.def != nullptr ? v.def->parent == region
                                     : v.owner == region && (region->parent == nullptr ||
                                                             is_carried_here(ctx.memory, from));
  return here && ctx.memory.next_read(from) == INT32_MAX &&
         std::count(k.reads.begin(), k.reads.end(), &v) == 1;
}

// `to` becomes a copy of `from`, or takes its place where that is possible.
static void copy_of(EmitContext& ctx, Buffer& from, Buffer& to, bool may_take, uint32_t id) {
  const bool home_needed = from.must_store && !from.in_hbm;
  const bool alone = !ctx.memory.shares(from);  // not in an allocation with others
  if (may_take && from.vmem >= 0 && alone && !home_needed) {
    take_vmem(ctx.memory, from, to);
    return;
  }
  if (may_take && from.vmem < 0 && from.scratch && to.slot < 0) {
    ctx.memory.take_home(from, to);
    return;
  }
  place_result(ctx, to);
  if (to.vmem < 0 && from.vmem < 0 && to.slot >= 0 && from.slot >= 0 && to.offset == from.offset &&
      ctx.slots.root(to.slot) == ctx.slots.root(from.slot)) {
    return;  // donated: updated in place
  }
  const spec::Addr src = place_of(from);
  const spec::Addr dst = place_of(to);
  ctx.sink.copy_bytes(src, dst, from.bytes, elem_bytes(from.value->type.elem), id);
}

static bool emit_indexed_write(EmitContext& ctx, const Kernel& k, uint32_t id) {
  const Op& op = *k.ops[0];
  Buffer& target = ctx.memory.at(k.reads[0]);
  const Buffer& list = ctx.memory.at(k.reads[1]);
  const Buffer& updates = ctx.memory.at(k.reads[2]);
  Buffer& out = ctx.memory.at(op.result());
  ctx.memory.pin({&target, &list, &updates, &out});
  copy_of(ctx, target, out, may_take(ctx, k, target), id);
  IndexedMove m = indexed_move(op, out, updates, list);
  m.scatter = true;
  if (!indexed_moves(ctx, m, id)) {
    return false;
  }
  finish_result(ctx, out, id);
  ctx.memory.unpin();
  return true;
}

bool emit_indexed(EmitContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  switch (k.ops[0]->kind) {
    case Kind::kIndexedRead:
      return emit_indexed_read(ctx, k, id);
    case Kind::kIndexedWrite:
      return emit_indexed_write(ctx, k, id);
    default:
      return emit_indexed_combine(ctx, k, id);
  }
}

}  // namespace tpu::compiler
