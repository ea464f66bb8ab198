// Transfers by an index list: the list is read, checked and kept when the command starts, so that
// nothing that happens to its memory afterwards can lead a copy astray.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/engines/dma.hpp"
#include "core/operand_check.hpp"
#include "kernel/cycles.hpp"
#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {
namespace {

constexpr uint64_t kIndexedPartBytes = 1 << 20;

uint16_t range_code(const Operand& operand) {
  switch (memory_of(operand)) {
    case ProbeMemory::kVmem:
      return TPU_FAULT_VMEM_RANGE;
    case ProbeMemory::kSmem:
      return TPU_FAULT_SMEM_RANGE;
    default:
      return TPU_FAULT_SLOT_RANGE;
  }
}

}  // namespace

bool Dma::read_list(const Flight& flight, const IndexedPlan& plan, uint64_t at,
                    uint64_t indexed_base, IndexedBox& box) {
  box.list.resize(plan.records);
  context().copies.settle(at, at + box.list.size() * sizeof(int32_t));
  context().vmem_order.wait(at, at + box.list.size() * sizeof(int32_t), false);
  std::memcpy(box.list.data(), resources_.vmem + at, box.list.size() * sizeof(int32_t));
  const uint64_t bad = first_outside(box, plan.window, plan.span);
  if (bad == plan.records) {
    return true;
  }
  const Operand& indexed = plan.scatter ? plan.transfer.dst : plan.transfer.src;
  FaultInfo info = fault_at(flight, range_code(indexed));
  info.address = indexed_base + static_cast<uint64_t>(box.list[bad] * box.unit + plan.window.low);
  info.length = static_cast<uint64_t>(plan.window.high - plan.window.low);
  info.slot = slot_of(flight, plan.scatter ? 1 : 0, indexed);
  info.detail = spec::fault::kDetailRecord + static_cast<uint32_t>(bad);
  info.data = box.list[bad];
  info.limit = plan.unit == 0 ? 0 : (plan.span - plan.window.high) / int64_t{plan.unit};
  fault_port->raise(info, "record " + std::to_string(bad) + " of an indexed transfer, list value " +
                              std::to_string(box.list[bad]) + ", lies outside of the " +
                              std::to_string(plan.span) + " bytes that it may touch");
  return false;
}

// The indexed side counts with its whole span, so that the answer does not depend on the list.
bool Dma::indexed_apart(const Flight& flight, const DmaPlan& plan, const Place& src,
                        const Place& dst) {
  const uint64_t from = operand_first(plan.src, src.base), to = operand_first(plan.dst, dst.base);
  const bool one_memory = src.hbm == dst.hbm && memory_of(plan.src) == memory_of(plan.dst);
  if (!one_memory || from + operand_length(plan.src) <= to ||
      to + operand_length(plan.dst) <= from) {
    return true;
  }
  return overlap_fault(flight, plan.dst, dst.base);
}

bool Dma::start_indexed(Flight& flight, const IndexedPlan& plan) {
  Transfer& transfer = transfers_[flight.index];
  transfer.dropped = transfer.inbound = transfer.same = transfer.deferred = transfer.cut = false;
  transfer.vmem = {};
  works_.none(flight.index);
  Place src, dst;
  uint64_t list = 0;
  if (!place_local(flight, 0, plan.transfer.src, &src) ||
      !place_local(flight, 1, plan.transfer.dst, &dst)) {
    return false;
  }
  if (!operand_in(plan.list, flight.queued.addend[2], resources_.vmem_bytes, &list)) {
    return range_fault(flight, TPU_FAULT_VMEM_RANGE, 2, plan.list, resources_.vmem_bytes);
  }
  if (!indexed_apart(flight, plan.transfer, src, dst)) {
    return false;
  }
  Work& work = works_.next();
  IndexedBox& box = work.indexed;
  box.window = plan.transfer.box;
  box.scatter = plan.scatter;
  box.unit = plan.unit;
  box.record_stride = plan.record_stride;
  box.list.clear();
  if (!context().no_data) {
    const Operand& indexed = plan.scatter ? plan.transfer.dst : plan.transfer.src;
    const auto base =
        static_cast<uint64_t>(indexed.address.offset + flight.queued.addend[plan.scatter ? 1 : 0]);
    if (!read_list(flight, plan, list, base, box)) {
      return false;
    }
  }
  if (context().wants_access() && !tell_indexed(flight, plan, box, list, src, dst)) {
    return false;
  }
  if (damaged(src, dst) && !pass_ecc(flight, plan, box, src, dst)) {
    return false;
  }
  tell_flow(flight, plan.transfer, src, dst, transfer);
  start_flow(flight, plan.transfer, plan.transfer.bytes.carried(), src, dst, transfer);
  if (!context().no_data) {
    start_indexed_work(plan, src, dst, work);
    transfer.vmem = {vmem_extent(plan.transfer.src, src), vmem_extent(plan.transfer.dst, dst)};
    works_.started(flight.index);
  } else if (resources_.smem_unknown != nullptr && dst.hbm == nullptr &&
             memory_of(plan.transfer.dst) == ProbeMemory::kSmem) {
    mark_unknown(*resources_.smem_unknown, operand_first(plan.transfer.dst, dst.base),
                 operand_length(plan.transfer.dst));
  }
  flight.free_at = now_cycles() + 1;
  flight.done_at = kNever;
  return true;
}

// Without data the list is not known: the indexed side counts with its whole span, the other side
// with all records.
bool Dma::tell_indexed(const Flight& flight, const IndexedPlan& plan, const IndexedBox& box,
                       uint64_t list, const Place& src, const Place& dst) {
  const uint32_t me = context().core_id;
  const DmaPlan& transfer = plan.transfer;
  const AccessRange list_range{.owner = me,
                               .memory = ProbeMemory::kVmem,
                               .low = list,
                               .bytes = plan.records * sizeof(int32_t)};
  const std::array<AccessRange, 3> extents = {
      list_range, operand_range(transfer.src, me, memory_of(transfer.src), src.base, false),
      operand_range(transfer.dst, me, memory_of(transfer.dst), dst.base, true)};
  const auto walk_side = [&](BoxSide side, const AccessRange& range, uint64_t base,
                             const RangeVisitor& visit) {
    const bool indexed = side == box.indexed_side();
    if (indexed && box.list.empty()) {
      visit(range);
      return;
    }
    for (size_t r = 0; r < plan.records; ++r) {
      const int64_t offset =
          indexed ? box.list[r] * box.unit : static_cast<int64_t>(r) * box.record_stride;
      if (box.list.empty() || box.list[r] != -1) {
        const int64_t at = static_cast<int64_t>(base) + offset;
        visit_pattern(spec::box_pattern(box.window, side, at), range, visit);
      }
    }
  };
  return tell_access(flight, extents, [&](const RangeVisitor& visit) {
    visit(list_range);
    walk_side(BoxSide::kSrc, extents[1], src.base, visit);
    walk_side(BoxSide::kDst, extents[2], dst.base, visit);
  });
}

// Without data the list is not known, and nothing is read or written.
bool Dma::pass_ecc(const Flight& flight, const IndexedPlan& plan, const IndexedBox& box,
                   const Place& src, const Place& dst) {
  std::optional<uint64_t> bad;
  const auto visit_records = [&](BoxSide side, const Place& place, const RangeVisitor& visit) {
    for (size_t r = 0; place.hbm != nullptr && r < box.list.size(); ++r) {
      if (box.list[r] != -1) {
        const int64_t offset = side == box.indexed_side()
                                   ? box.list[r] * box.unit
                                   : static_cast<int64_t>(r) * box.record_stride;
        visit_box(box.window, side, place.base + static_cast<uint64_t>(offset), visit);
      }
    }
  };
  visit_records(BoxSide::kSrc, src, [&](const AccessRange& run) { read_hbm(src, run, bad); });
  if (plan.scatter) {  // adds to what is there
    visit_records(BoxSide::kDst, dst, [&](const AccessRange& run) { read_hbm(dst, run, bad); });
  }
  if (bad) {
    return ecc_fault(flight, src.hbm != nullptr ? plan.transfer.src : plan.transfer.dst, *bad);
  }
  visit_records(BoxSide::kDst, dst,
                [&](const AccessRange& run) { dst.hbm->damage()->written(run.low, run.bytes); });
  return true;
}

// Pins the pages of all windows on one side.
MemoryView Dma::indexed_view(const Place& place, const IndexedBox& box, BoxSide side,
                             PageSet& pages) {
  if (place.hbm == nullptr) {
    return {.flat = place.flat};
  }
  const auto offset = [&](size_t r) {
    return side == box.indexed_side() ? box.list[r] * box.unit
                                      : static_cast<int64_t>(r) * box.record_stride;
  };
  bool any = false;
  int64_t low = 0, high = 0;
  for (size_t r = 0; r < box.list.size(); ++r) {
    if (box.list[r] != -1) {
      low = any ? std::min(low, offset(r)) : offset(r);
      high = any ? std::max(high, offset(r)) : offset(r);
      any = true;
    }
  }
  if (!any) {
    return {.pages = &pages, .base = place.base};
  }
  const ByteExtent window = spec::box_extent(box.window, side);
  pages.open(place.base + static_cast<uint64_t>(low + window.low),
             place.base + static_cast<uint64_t>(high + window.high) - 1);
  for (size_t r = 0; r < box.list.size(); ++r) {
    if (box.list[r] == -1) {
      continue;
    }
    const uint64_t base = place.base + static_cast<uint64_t>(offset(r));
    for_each_range(box.window, side, int64_t{1} << PageSet::kPageShift,
                   [&](int64_t at, uint64_t bytes, bool whole) {
                     place.hbm->pin(pages, base + static_cast<uint64_t>(at), bytes,
                                    side == BoxSide::kDst, whole);
                   });
  }
  return {.pages = &pages, .base = place.base};
}

void Dma::start_indexed_work(const IndexedPlan& plan, const Place& src, const Place& dst,
                             Work& work) {
  const IndexedBox& box = work.indexed;
  // Records lie anywhere in their operands: what is deferred comes first, on either side.
  for (const auto& [place, operand] :
       {std::pair(&src, &plan.transfer.src), std::pair(&dst, &plan.transfer.dst)}) {
    const uint64_t first = operand_first(*operand, place->base);
    const DataRange range{.low = first, .high = first + operand_length(*operand)};
    if (place->vmem) {
      context().copies.settle(range.low, range.high);
    }
    work.touches.add(*place->order, range, place == &dst);
  }
  const MemoryView from = indexed_view(src, box, BoxSide::kSrc, work.src_pages);
  const MemoryView to = indexed_view(dst, box, BoxSide::kDst, work.dst_pages);
  work.src_hbm = src.hbm;
  work.dst_hbm = dst.hbm;
  const uint64_t bytes = box.window.total_bytes * box.list.size();
  const uint64_t worth =
      plan.scatter ? 1 : std::min<uint64_t>(bytes / kIndexedPartBytes + 1, box.list.size());
  context().pool.cut(work, worth);
  work.prepare(from, to);
  work.joined = memory_of(plan.transfer.src) == ProbeMemory::kSmem ||
                memory_of(plan.transfer.dst) == ProbeMemory::kSmem;
  work.count_as(HostWork::kDmaIndexed, plan.transfer.box.total_bytes * box.list.size());
  work.touches.launch(context().pool, work);
}

}  // namespace tpu::model
