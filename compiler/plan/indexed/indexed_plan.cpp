#include "plan/indexed/indexed_plan.hpp"

#include <algorithm>

#include "plan/regions.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kMovedPieceBytes = 512 * 1024;  // of moved elements
constexpr int64_t kPieceRecords = 16 * 1024;      // of the list
constexpr int64_t kMinPieceRecords = 32;          // below that the fixed time of a DMA dominates

// The window's strides in the table (row-major) and in a dense record, merged.
std::vector<CopyDim> window_dims(const Dims& table, const Dims& window, int64_t bytes) {
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

// `to` becomes a copy of `from`, or takes its place where that is possible. Returns the bytes that
// are copied.
int64_t copy_of(Residency& memory, const Kernel& k, Buffer& from, Buffer& to, uint32_t op_id) {
  if (may_take_vmem(memory, k, from)) {
    take_vmem(memory, from, to);
    return 0;
  }
  if (from.vmem < 0 && from.scratch && to.slot < 0 && may_overwrite(memory, k, from)) {
    take_home(memory, from, to);
    return 0;
  }
  place_result(memory, to);
  if (to.vmem < 0 && from.vmem < 0 && to.slot >= 0 && from.slot >= 0 && to.offset == from.offset &&
      to.slot == from.slot) {
    return 0;  // donated: updated in place
  }
  memory.move({place_of(from), place_of(to), from.bytes, elem_bytes(from.value->type.elem), op_id});
  return from.bytes;
}

// Pieces of the list; a list that is not in VMEM comes piece by piece.
bool cut_list(const Buffer& list, const spec::BoardParams& board, Residency& memory,
              IndexedPlan& plan) {
  const int64_t record = std::max<int64_t>(plan.window_elements * plan.unit, 1);
  plan.piece_records =
      std::min({std::clamp<int64_t>(kMovedPieceBytes / record, kMinPieceRecords, kPieceRecords),
                plan.records, std::max<int64_t>(board.core.vmem_kib * 1024 / 64, 1)});
  if (list.vmem >= 0) {
    return true;
  }
  for (int64_t& slot : plan.slots) {
    const auto address = memory.take(plan.piece_records * 4);
    if (!address) {
      return false;
    }
    slot = *address;
  }
  for (const int64_t slot : plan.slots) {
    memory.give(slot);
  }
  return true;
}

}  // namespace

bool may_overwrite(Residency& memory, const Kernel& k, const Buffer& from) {
  const Value& v = *from.value;
  const Region* region = k.ops[0]->parent;
  const bool here = v.def != nullptr ? v.def->parent == region
                                     : v.owner == region && (region->parent == nullptr ||
                                                             is_carried_here(memory, from));
  return here && memory.next_read(from) == INT32_MAX &&
         std::count(k.reads.begin(), k.reads.end(), &v) == 1;
}

bool may_take_vmem(Residency& memory, const Kernel& k, const Buffer& from) {
  const bool home_needed = from.must_store && !from.in_hbm;
  return from.vmem >= 0 && !memory.shared().contains(from.vmem) && !home_needed &&
         may_overwrite(memory, k, from);
}

std::optional<IndexedPlan> plan_indexed(const Kernel& k, const spec::BoardParams& board,
                                        Residency& memory, uint32_t op_id) {
  const Op& op = *k.ops[0];
  const Buffer& list = memory.at(k.reads[1]);
  Buffer& out = memory.at(op.result());
  Reservation whole(memory);
  IndexedPlan plan;
  plan.scatter = op.kind == Kind::kIndexedWrite;
  memory.pins().pin({&memory.at(k.reads[0]), &list, &out});
  if (plan.scatter) {
    memory.pins().add(memory.at(k.reads[2]));
    plan.copied = copy_of(memory, k, memory.at(k.reads[0]), out, op_id);
  } else {
    place_result(memory, out);
  }
  const Buffer& table = plan.scatter ? out : memory.at(k.reads[0]);
  const Dims& window = op.as<IndexedAttrs>().window;
  plan.table = place_of(table);
  plan.dense = place_of(plan.scatter ? memory.at(k.reads[2]) : out);
  plan.unit = elem_bytes(op.type().elem);
  plan.window_elements = Type{Elem::kI8, window}.count();
  plan.span = table.bytes;
  // Of the operand: its buffer may be that of a value of other dimensions, reshaped.
  plan.dims = window_dims(op.operand_type(0).dims, window, plan.unit);
  plan.list = place_of(list);
  plan.records = op.operand_type(1).count();
  if (!cut_list(list, board, memory, plan)) {
    return std::nullopt;
  }
  whole.keep();
  return plan;
}

}  // namespace tpu::compiler
