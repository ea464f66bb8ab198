// Kernels that move windows by a list of element offsets: one indexed DMA for each piece of the
// list.
#include <algorithm>

#include "emit/context.hpp"
#include "plan/indexed/indexed_plan.hpp"

namespace tpu::compiler {

// More than four strides of a window: the outermost ones are commands of their own.
static void indexed_command(CommandSink& sink, const IndexedPlan& m, int64_t list, int64_t first,
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
    int64_t table = 0, dense = first * m.window_elements * m.unit;
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
    c.elem_bytes = c.unit = static_cast<uint32_t>(m.unit);
    c.records = static_cast<uint32_t>(records);
    c.counts.fill(1);
    for (size_t i = split; i < dims.size(); ++i) {
      const size_t at = 4 - dims.size() + i;
      c.counts[at] = static_cast<uint32_t>(dims[i].n);
      (m.scatter ? c.dst_strides : c.src_strides)[at] = dims[i].src;
      (m.scatter ? c.src_strides : c.dst_strides)[at] = dims[i].dst;
    }
    c.record_stride = m.window_elements * m.unit;
    c.span = m.span - table;
    Command command;
    command.body = c;
    sink.append(std::move(command));
  }
}

// Pieces in the order of the list. A list that is not in VMEM comes piece by piece.
void emit_indexed(EmitContext& ctx, const Step& step, const IndexedPlan& p) {
  size_t number = 0;
  for (int64_t at = 0; at < p.records; at += p.piece_records, ++number) {
    const int64_t count = std::min(p.piece_records, p.records - at);
    spec::Addr from = p.list;
    from.offset += 4 * at;
    int64_t list = p.slots[number % 2];
    if (list < 0) {
      list = from.offset;
    } else {
      ctx.sink.copy(from, vmem_addr(list), 4, {{count, 4, 4}}, step.op_id);
    }
    indexed_command(ctx.sink, p, list, at, count, step.op_id);
  }
}

}  // namespace tpu::compiler
