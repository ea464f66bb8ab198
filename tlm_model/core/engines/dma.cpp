// Transfers: places of the operands, time, data.
#include "core/engines/dma.hpp"

#include <algorithm>
#include <chrono>

#include "core/operand_check.hpp"
#include "core/overlap.hpp"
#include "kernel/cycles.hpp"
#include "kernel/host_cache.hpp"
#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {
namespace {

// A dense copy is cut into no smaller parts, however slow the host is.
constexpr uint64_t kLeastPartBytes = 64 << 10;

MemoryView moved(MemoryView view, uint64_t offset) {
  if (view.flat != nullptr) {
    view.flat += static_cast<int64_t>(offset);
  } else {
    view.base += offset;
  }
  return view;
}

StridedBox one_run(uint64_t bytes, const StridedBox& of) {
  StridedBox box;
  box.run_bytes = box.total_bytes = bytes;
  box.elem_bytes = of.elem_bytes;
  return box;
}

bool in_smem(const Operand& operand) { return memory_of(operand) == ProbeMemory::kSmem; }

// Counts its own life as HostWork::kPages, without the jobs that a page waits for.
class PageTimer {
 public:
  explicit PageTimer(uint64_t bytes) : bytes_(bytes), on_(HostProfile::enabled()) {
    if (on_) {
      joins_ = joins();
      start_ = Clock::now();
    }
  }
  ~PageTimer() {
    if (on_) {
      const std::chrono::nanoseconds life = Clock::now() - start_;
      const auto waited = std::chrono::nanoseconds(joins() - joins_);
      HostProfile::add(HostWork::kPages, static_cast<uint64_t>((life - waited).count()), bytes_, 0);
    }
  }
  PageTimer(const PageTimer&) = delete;
  PageTimer& operator=(const PageTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  // Nanoseconds of the kernel thread, which alone joins.
  static uint64_t joins() {
    const HostProfile::Counters counters = HostProfile::read();
    return counters[static_cast<size_t>(HostWork::kJoinWork)].nanoseconds +
           counters[static_cast<size_t>(HostWork::kJoinWait)].nanoseconds;
  }

  const uint64_t bytes_;
  const bool on_;
  uint64_t joins_ = 0;
  Clock::time_point start_;
};

// Bytes of VMEM, of all cores that run a program, that are taken to stay in the host's last-level
// cache, where the commands that read them come soon.
uint64_t cached_vmem() {
  constexpr uint64_t kLeast = 32 << 20;
  static const uint64_t bytes = std::max(kLeast, last_level_cache_bytes() / 2);
  return bytes;
}

}  // namespace

Dma::Dma(sc_core::sc_module_name name, spec::Queue queue, const EngineContext& context,
         const DmaResources& resources, const VerilogUse& verilog)
    : Engine(name, queue, context),
      resources_(resources),
      kind_(queue == spec::Queue::kDmaIn    ? HostWork::kDmaIn
            : queue == spec::Queue::kDmaOut ? HostWork::kDmaOut
                                            : HostWork::kDmaRemote),
      transfers_(flight_capacity()),
      works_(context.pool, context.copies, flight_capacity()),
      use_(verilog) {
  if (use_.verilog()) {
    verilog_ =
        std::make_unique<DmaVerilog>(static_cast<uint64_t>(context.params.dma.granule_bytes));
  }
  for (Transfer& transfer : transfers_) {
    transfer.flow.set_task(&task());
  }
}

// Reads fill a buffer in order, writes drain it.
void Dma::Work::move_granules() {
  std::vector<uint8_t> buffer;
  size_t taken = 0;
  auto read = granules_->reads.begin();
  for (const Granule& write : granules_->writes) {
    const MemoryView to = moved(dst_, write.address - to_);
    if (plan_->is_fill) {
      fill_box(one_run(write.bytes, plan_->box), plan_->pattern, to, 0, 1);
      continue;
    }
    buffer.erase(buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(taken));
    taken = 0;
    for (; buffer.size() < write.bytes && read != granules_->reads.end(); ++read) {
      const size_t before = buffer.size();
      buffer.resize(before + read->bytes);
      copy_box(one_run(read->bytes, plan_->box), moved(src_, read->address - from_),
               {.flat = &buffer[before]}, 0, 1);
    }
    copy_box(one_run(write.bytes, plan_->box), {.flat = buffer.data()}, to, 0, 1);
    taken = write.bytes;
  }
}

void Dma::Work::move_pages(int part) {
  for (auto page = static_cast<size_t>(part); page < equal.page_count();
       page += static_cast<size_t>(parts_count_)) {
    const EqualWrites::Bytes bytes = equal.bytes_of(page);
    if (equal.compare(page, src_.flat + bytes.first)) {
      dst_pages.note_unwritten(page);
      continue;
    }
    copy_box(one_run(bytes.count, plan_->box), moved(src_, bytes.first), moved(dst_, bytes.first),
             0, 1);
  }
}

bool Dma::range_fault(const Flight& flight, uint16_t code, size_t index, const Operand& operand,
                      uint64_t size) {
  fault_port->raise(range_fault_at(flight, code, index, operand, size),
                    "DMA operand outside of its memory or slot");
  return false;
}

bool Dma::unbound_slot_fault(const Flight& flight, size_t index, const Operand& operand) {
  const int64_t first = operand.address.slot;
  FaultInfo info = range_fault_at(flight, TPU_FAULT_SLOT_RANGE, index, operand, 0);
  info.detail = spec::fault::kDetailSlot;
  info.data = flight.queued.slot[index] - first;
  info.limit = int64_t{context().launch.slot_count} - 1 - first;
  fault_port->raise(info, "the slot register of a DMA operand leads to a slot that is not bound");
  return false;
}

bool Dma::overlap_fault(const Flight& flight, const Operand& dst, uint64_t base) {
  FaultInfo info = fault_at(flight, TPU_FAULT_DESCRIPTOR);
  info.detail = spec::fault::kDetailOverlap;
  info.address = operand_first(dst, base);
  info.length = operand_length(dst);
  info.slot = slot_of(flight, 1, dst);
  fault_port->raise(info, "the destination of the transfer overlaps its source");
  return false;
}

// False after a fault: the destination shares bytes with the source and is not the source itself.
bool Dma::apart(const Flight& flight, const DmaPlan& plan, const Place& src, const Place& dst,
                Transfer& transfer) {
  transfer.same = false;
  if (plan.is_fill || transfer.dropped || dst.message || src.hbm != dst.hbm) {
    return true;
  }
  const bool flat = src.hbm == nullptr;
  switch (box_overlap(
      plan.box, flat ? reinterpret_cast<int64_t>(src.flat) : static_cast<int64_t>(src.base),
      flat ? reinterpret_cast<int64_t>(dst.flat) : static_cast<int64_t>(dst.base))) {
    case BoxOverlap::kNone:
      return true;
    case BoxOverlap::kSame:
      transfer.same = true;
      return true;
    case BoxOverlap::kSome:
      break;
  }
  return overlap_fault(flight, plan.dst, dst.base);
}

bool Dma::place_local(const Flight& flight, size_t index, const Operand& operand, Place* place) {
  const int64_t addend = flight.queued.addend[index];
  uint64_t at = 0;
  switch (static_cast<spec::Space>(operand.address.space)) {
    case spec::Space::kVmem:
      if (!operand_in(operand, addend, resources_.vmem_bytes, &at)) {
        return range_fault(flight, TPU_FAULT_VMEM_RANGE, index, operand, resources_.vmem_bytes);
      }
      place->flat = resources_.vmem + at;
      place->order = &context().vmem_order;
      place->vmem = true;
      break;
    case spec::Space::kSmem:
      if (!operand_in(operand, addend, resources_.smem_bytes, &at)) {
        return range_fault(flight, TPU_FAULT_SMEM_RANGE, index, operand, resources_.smem_bytes);
      }
      place->flat = resources_.smem + at;
      place->order = resources_.smem_order;
      break;
    default: {
      const Slots::Range slot =
          resources_.slots->resolve(context().launch, flight.queued.slot[index]);
      if (!slot.ok && operand.address.slot_reg != 0) {
        return unbound_slot_fault(flight, index, operand);
      }
      if (!slot.ok || !operand_in(operand, addend, slot.size, &at)) {
        return range_fault(flight, TPU_FAULT_SLOT_RANGE, index, operand, slot.size);
      }
      place->hbm = hbm_port.operator->();
      place->order = &place->hbm->order();
      place->bandwidth = place->hbm->bandwidth();
      at += slot.base;
      break;
    }
  }
  place->base = at;
  return true;
}

bool Dma::place_remote(const Flight& flight, size_t index, const DmaPlan& plan, Transfer& transfer,
                       Place* place) {
  using Status = RemoteAnswer::Status;
  const uint32_t peer = flight.queued.peer;
  if (peer >= ici_port->cores() || !context().launch.gang_has(peer)) {
    FaultInfo info = fault_at(flight, TPU_FAULT_REMOTE_STRAY);
    info.detail = spec::fault::kDetailPeerOutside;
    info.address = peer;
    fault_port->raise(info,
                      "transfer to core " + std::to_string(peer) + ", which is not in the gang");
    return false;
  }
  RemoteWrite& write = transfer.write;
  write = {.from = {context().launch.tag, context().launch.step},
           .from_core = context().core_id,
           .to_core = peer,
           .levels = static_cast<uint32_t>(plan.box.levels),
           .address = plan.dst.address,
           .low = plan.dst.extent.low,
           .high = plan.dst.extent.high,
           .count = plan.box.count,
           .stride = plan.box.dst,
           .run_bytes = plan.box.run_bytes,
           .bytes = plan.box.total_bytes};
  write.address.offset += flight.queued.addend[index];
  if (plan.dst.address.slot_reg != 0) {
    const int64_t slot = flight.queued.slot[index];
    if (slot < 0 || slot >= int64_t{context().launch.slot_count}) {
      return unbound_slot_fault(flight, index, plan.dst);
    }
    write.address.slot = static_cast<uint16_t>(slot);
  }
  if (ici_port->behind_cut(peer)) {
    transfer.cut = true;
    place->message = true;
    place->base = probe().wants(ProbeEvent::kAccess) ? ici_port->peer(peer).remote_base(write) : 0;
    return true;
  }
  RemotePlace target;
  const RemoteAnswer answer = ici_port->peer(peer).remote_open(write, &target);
  switch (answer.status) {
    case Status::kOk:
      *place = {.flat = target.memory,
                .hbm = target.hbm,
                .order = target.order,
                .base = answer.base,
                .bandwidth = answer.bandwidth,
                .message = !target.here()};
      return true;
    case Status::kDropped:
    case Status::kStray:
      transfer.dropped = true;
      return true;
    case Status::kEnded:
      cut().raise_peer_ended(flight.queued, "transfer");
      return false;
    case Status::kBadSlot:
      return range_fault(flight, TPU_FAULT_SLOT_RANGE, index, plan.dst, answer.size);
    default:
      return range_fault(flight,
                         plan.dst.address.space == static_cast<uint8_t>(spec::Space::kSmem)
                             ? TPU_FAULT_SMEM_RANGE
                             : TPU_FAULT_VMEM_RANGE,
                         index, plan.dst, answer.size);
  }
}

bool Dma::damaged(const Place& src, const Place& dst) {
  const auto any = [](HbmIf* hbm) {
    const BitDamage* const damage = hbm != nullptr ? hbm->damage() : nullptr;
    return damage != nullptr && !damage->empty();
  };
  return any(src.hbm) || any(dst.hbm);
}

// ECC looks at what is read, and what is written is whole again. False after a fault.
bool Dma::pass_ecc(const Flight& flight, const DmaPlan& plan, const Place& src, const Place& dst) {
  std::optional<uint64_t> bad;
  if (!plan.is_fill && src.hbm != nullptr) {
    visit_box(plan.box, BoxSide::kSrc, src.base,
              [&](const AccessRange& run) { read_hbm(src, run, bad); });
  }
  if (bad) {
    return ecc_fault(flight, plan.src, *bad);
  }
  if (dst.hbm != nullptr) {
    visit_box(plan.box, BoxSide::kDst, dst.base,
              [&](const AccessRange& run) { dst.hbm->damage()->written(run.low, run.bytes); });
  }
  return true;
}

void Dma::visit_box(const StridedBox& box, BoxSide side, uint64_t base, const RangeVisitor& visit) {
  visit_pattern(spec::box_pattern(box, side, static_cast<int64_t>(base)), {}, visit);
}

void Dma::read_hbm(const Place& place, const AccessRange& run, std::optional<uint64_t>& bad) {
  const std::optional<uint64_t> found = place.hbm->damage()->read(run.low, run.bytes);
  bad = bad ? bad : found;
}

bool Dma::ecc_fault(const Flight& flight, const Operand& operand, uint64_t address) {
  FaultInfo info = fault_at(flight, TPU_FAULT_HBM_ECC);
  info.address = address;
  info.length = BitDamage::kWordBytes;
  info.slot = slot_of(flight, 0, operand);
  fault_port->raise(info, "ECC cannot correct the word at " + std::to_string(address) +
                              " of HBM, which the transfer reads");
  return false;
}

bool Dma::start_command(Flight& flight) {
  if (const auto* indexed = std::get_if<IndexedPlan>(&flight.queued.command->plan)) {
    return start_indexed(flight, *indexed);
  }
  const auto& plan = std::get<DmaPlan>(flight.queued.command->plan);
  Transfer& transfer = transfers_[flight.index];
  transfer.dropped = transfer.deferred = transfer.cut = false;
  transfer.vmem = {};
  transfer.packed.clear();
  works_.none(flight.index);
  Place src;
  Place dst;
  const size_t to = plan.is_fill ? 0 : 1;
  if (!plan.is_fill && !place_local(flight, 0, plan.src, &src)) {
    return false;
  }
  if (plan.remote ? !place_remote(flight, to, plan, transfer, &dst)
                  : !place_local(flight, to, plan.dst, &dst)) {
    return false;
  }
  transfer.inbound = plan.remote && !transfer.dropped && !transfer.cut;
  const LinkPassage links = plan.remote ? cut().pass_links(flight.queued) : LinkPassage();
  const bool is_apart = apart(flight, plan, src, dst, transfer);
  if (is_apart && links.lost) {
    raise_link_fault(*fault_port.operator->(), fault_at(flight, 0), links);
  }
  if (!is_apart || links.lost || (damaged(src, dst) && !pass_ecc(flight, plan, src, dst)) ||
      (context().wants_access() && !tell_accesses(flight, plan, src, dst, transfer.dropped))) {
    if (transfer.inbound) {
      ici_port->peer(flight.queued.peer).remote_landed(transfer.write, {});
    }
    return false;
  }
  tell_flow(flight, plan, src, dst, transfer);
  const uint64_t bytes =
      verilog_ != nullptr ? carried(flight, plan, src, dst, transfer) : plan.bytes.carried();
  start_flow(flight, plan, bytes, src, dst, transfer);
  transfer.fixed_cycles += links.extra;
  if (transfer.cut) {
    const auto space = static_cast<spec::Space>(plan.dst.address.space);
    const uint16_t code = space == spec::Space::kHbm    ? TPU_FAULT_SLOT_RANGE
                          : space == spec::Space::kSmem ? TPU_FAULT_SMEM_RANGE
                                                        : TPU_FAULT_VMEM_RANGE;
    flight.data_leaves = true;
    transfer.cut_flow = cut().open(flight.queued, transfer.write, bytes, plan.fixed_cycles,
                                   range_fault_at(flight, code, to, plan.dst, 0));
  }
  if (context().no_data) {
    if (resources_.smem_unknown != nullptr && !plan.remote &&
        plan.dst.address.space == static_cast<uint8_t>(spec::Space::kSmem)) {
      mark_unknown(*resources_.smem_unknown, operand_first(plan.dst, dst.base),
                   operand_length(plan.dst));
    }
  } else if (!transfer.dropped && !transfer.same) {
    start_work(flight, plan, src, dst, transfer);
  }
  const uint64_t now = now_cycles();
  flight.free_at = now + 1;
  flight.done_at = kNever;
  return true;
}

void Dma::leave(const Flight& flight, CutDelivery& delivery) {
  Transfer& transfer = transfers_[flight.index];
  delivery.flow = transfer.cut_flow;
  delivery.write = transfer.write;
  if (Work* const work = works_.at(flight.index); work != nullptr) {
    context().pool.join(*work);
    delivery.data = std::move(transfer.packed);
    transfer.packed.clear();
  }
}

// `bytes`: in granules.
void Dma::start_flow(const Flight& flight, const DmaPlan& plan, uint64_t bytes, const Place& src,
                     const Place& dst, Transfer& transfer) {
  Flow& flow = transfer.flow;
  flow.clear();
  flow.set_bytes(bytes);
  transfer.fixed_cycles = plan.fixed_cycles;
  if (src.hbm != nullptr) {
    flow.add(src.bandwidth);
  }
  if (dst.bandwidth >= 0) {
    flow.add(dst.bandwidth);
  }
  if (plan.remote) {
    ici_port->add_path(context().core_id, flight.queued.peer, flow);
    transfer.fixed_cycles += ici_port->data_latency(context().core_id, flight.queued.peer);
  } else if (src.hbm == nullptr && dst.hbm == nullptr) {
    flow.add(resources_.local);
  }
  transfer.to_core = plan.remote ? context().launch.shown(flight.queued.peer) : context().core_id;
  flow.set_listener(probe().wants_flow(transfer.to_core) ? this : nullptr);
  resources_.fluid->start(flow);
}

// Bytes that pass, in granules, with the Verilog's count where it decides.
uint64_t Dma::carried(const Flight& flight, const DmaPlan& plan, const Place& src, const Place& dst,
                      Transfer& transfer) {
  const auto granule = static_cast<uint64_t>(context().params.dma.granule_bytes);
  const DmaGranules& verilog = verilog_->run(plan.box, plan.is_fill, src.base, dst.base);
  const auto tell = [&](const std::string& text) {
    use_.differs("command at word " + std::to_string(flight.queued.command->pc) + ", op " +
                 std::to_string(flight.queued.command->op_id) + ", cycle " +
                 std::to_string(flight.start) + ": " + text);
  };
  if (!verilog.failed.empty()) {
    tell(verilog.failed);
  }
  if (use_.mode == VerilogMode::kRtl) {
    transfer.granules = verilog;
    return verilog.most() * granule;
  }
  use_.compared();
  std::string difference;
  if (!plan.is_fill) {
    difference = granules_difference(
        "read", side_granules(plan.box, BoxSide::kSrc, src.base, granule), verilog.reads);
  }
  if (difference.empty()) {
    difference = granules_difference(
        "write", side_granules(plan.box, BoxSide::kDst, dst.base, granule), verilog.writes);
  }
  if (difference.empty() && verilog.most() * granule != plan.bytes.carried()) {
    difference = "the cost is " + std::to_string(plan.bytes.carried()) + " bytes, the Verilog's " +
                 std::to_string(verilog.most() * granule);
  }
  if (!difference.empty()) {
    tell(difference);
  }
  return plan.bytes.carried();
}

MemoryView Dma::view(const Place& place, const DmaPlan& plan, BoxSide side, PageSet& pages) {
  if (place.hbm == nullptr) {
    return {.flat = place.flat};
  }
  const PageTimer timer(plan.box.total_bytes);
  const ByteExtent extent = spec::box_extent(plan.box, side);
  pages.open(place.base + static_cast<uint64_t>(extent.low),
             place.base + static_cast<uint64_t>(extent.high) - 1);
  for_each_range(plan.box, side, int64_t{1} << PageSet::kPageShift,
                 [&](int64_t offset, uint64_t bytes, bool whole) {
                   place.hbm->pin(pages, place.base + static_cast<uint64_t>(offset), bytes,
                                  side == BoxSide::kDst, whole);
                 });
  return {.pages = &pages, .base = place.base};
}

// The bytes of a message: the destination's box without holes.
MemoryView Dma::packed_view(const DmaPlan& plan, Transfer& transfer) {
  transfer.packing = plan;
  StridedBox& box = transfer.packing.box;
  auto stride = static_cast<int64_t>(box.run_bytes);
  for (int level = box.levels - 1; level >= 0; --level) {
    const auto l = static_cast<size_t>(level);
    box.dst[l] = stride;
    stride *= static_cast<int64_t>(box.count[l]);
  }
  transfer.packed.resize(box.total_bytes);
  return {.flat = transfer.packed.data()};
}

// Whether the transfer moves consecutive bytes to as many, and no Verilog has a say in it.
bool Dma::moves_one_run(const DmaPlan& plan) const {
  return !plan.is_fill && !use_.verilog() && spec::box_contiguous(plan.box, BoxSide::kSrc) &&
         spec::box_contiguous(plan.box, BoxSide::kDst);
}

// Whether the transfer need not be done now: from one place of HBM to one of VMEM.
bool Dma::defer(const DmaPlan& plan, const Place& src, const Place& dst) {
  const uint64_t at = operand_first(plan.dst, dst.base);
  return src.hbm != nullptr && dst.vmem && plan.box.total_bytes >= DeferredCopies::kLeastBytes &&
         moves_one_run(plan) && !works_on_vmem(at, at + plan.box.total_bytes) &&
         context().copies.defer(at, plan.box.total_bytes, *src.hbm,
                                operand_first(plan.src, src.base));
}

// Whether other cores may write the same pages: from one place of VMEM to one of the own HBM.
bool Dma::may_share(const DmaPlan& plan, const Place& src, const Place& dst) const {
  return !plan.remote && src.vmem && dst.hbm != nullptr && context().launch.gang.size() > 1 &&
         plan.box.total_bytes >= PageSet::kPageBytes && moves_one_run(plan);
}

MemoryView Dma::open_shared(const DmaPlan& plan, const Place& dst, Work& work) {
  const uint64_t bytes = plan.box.total_bytes;
  context().equal_writes.begin(work.equal,
                               {.hbm = dst.hbm,
                                .address = dst.base,
                                .bytes = bytes,
                                .gang = context().launch.tag,
                                .step = context().launch.step},
                               work, work.touches);
  const PageTimer timer(bytes);
  work.dst_pages.open(dst.base, dst.base + bytes - 1);
  dst.hbm->pin(work.dst_pages, dst.base, bytes, true, true);
  context().equal_writes.opened(work.equal);
  return {.pages = &work.dst_pages, .base = dst.base};
}

ByteExtent Dma::vmem_extent(const Operand& operand, const Place& place) {
  const auto first = static_cast<int64_t>(operand_first(operand, place.base));
  return place.vmem ? ByteExtent{first, first + static_cast<int64_t>(operand_length(operand))}
                    : ByteExtent{};
}

// Whether the work of an earlier command of this queue, which nothing but the queue orders, may
// still read or write bytes of [low, high).
bool Dma::works_on_vmem(uint64_t low, uint64_t high) const {
  for (size_t i = 0; i + 1 < flight_count(); ++i) {
    const Transfer& earlier = transfers_[flight(i).index];
    const auto touches = [&](const ByteExtent& bytes) {
      return bytes.low < static_cast<int64_t>(high) && bytes.high > static_cast<int64_t>(low);
    };
    if (std::ranges::any_of(earlier.vmem, touches)) {
      return true;
    }
  }
  return false;
}

// What the work reads and writes where other jobs do, too.
void Dma::touch(const DmaPlan& plan, const Place& src, const Place& dst, DataUses& touches) {
  const auto add = [&](const Place& place, BoxSide side) {
    if (place.order != nullptr) {
      const auto base = static_cast<int64_t>(place.base);
      touches.add(*place.order, data_range(spec::box_pattern(plan.box, side, base)),
                  side == BoxSide::kDst);
    }
  };
  if (!plan.is_fill) {
    add(src, BoxSide::kSrc);
  }
  add(dst, BoxSide::kDst);
}

void Dma::start_work(Flight& flight, const DmaPlan& plan, Place src, const Place& dst,
                     Transfer& transfer) {
  if (dst.vmem) {
    context().copies.write(operand_first(plan.dst, dst.base),
                           operand_first(plan.dst, dst.base) + operand_length(plan.dst),
                           operand_length(plan.dst) == plan.box.total_bytes);
  }
  if (dst.hbm == nullptr && !plan.remote) {
    vmem_end_ = std::max(vmem_end_, dst.base + static_cast<uint64_t>(plan.dst.extent.high));
  }
  transfer.deferred = defer(plan, src, dst);
  if (transfer.deferred) {
    return;
  }
  transfer.vmem = {vmem_extent(plan.src, src), vmem_extent(plan.dst, dst)};
  Work& work = works_.next();
  touch(plan, src, dst, work.touches);
  if (src.vmem) {
    const uint64_t first = operand_first(plan.src, src.base);
    src.flat +=
        context().copies.read(first, first + operand_length(plan.src), work.uses, work.touches);
  }
  MemoryView from;
  if (!plan.is_fill) {
    from = view(src, plan, BoxSide::kSrc, work.src_pages);
    work.src_hbm = src.hbm;
  }
  MemoryView to = dst.message                 ? packed_view(plan, transfer)
                  : may_share(plan, src, dst) ? open_shared(plan, dst, work)
                                              : view(dst, plan, BoxSide::kDst, work.dst_pages);
  if (dst.hbm == nullptr && !plan.remote) {
    to.reused = vmem_end_ * context().launch.gang.size() <= cached_vmem();
  }
  work.dst_hbm = dst.hbm;
  const uint64_t bytes = plan.box.total_bytes;
  const uint64_t cuts = plan.box.levels == 0 ? bytes / kLeastPartBytes + 1 : plan.box.count[0];
  // Of a message, the receiver's side is its own.
  const bool by_granules = use_.mode == VerilogMode::kRtl && !dst.message;
  JobPool& pool = context().pool;
  if (by_granules) {
    pool.cut(work, 1);  // whole, and of no kind's pace
    work.prepare(plan, transfer.granules, from, src.base, to, dst.base);
  } else {
    pool.cut(work, JobKind::kCopy, bytes, cuts);
    work.prepare(dst.message ? transfer.packing : plan, from, to);
  }
  // Scalar instructions read SMEM, other boards get the message.
  work.joined =
      by_granules || dst.message || (!plan.is_fill && in_smem(plan.src)) || in_smem(plan.dst);
  work.count_as(plan.is_fill ? HostWork::kFill : kind_, bytes);
  work.touches.launch(pool, work);
  works_.started(flight.index);
}

bool Dma::tell_accesses(const Flight& flight, const DmaPlan& plan, const Place& src,
                        const Place& dst, bool dropped) {
  const uint32_t me = context().core_id;
  const uint32_t owner = plan.remote ? context().launch.shown(flight.queued.peer) : me;
  std::vector<AccessRange> extents;
  if (!plan.is_fill) {
    extents.push_back(operand_range(plan.src, me, memory_of(plan.src), src.base, false));
  }
  if (!dropped) {
    extents.push_back(operand_range(plan.dst, owner, memory_of(plan.dst), dst.base, true));
  }
  return tell_access(flight, extents, [&](const RangeVisitor& visit) {
    for (const AccessRange& side : extents) {
      const auto base = static_cast<int64_t>(side.write ? dst.base : src.base);
      visit_pattern(spec::box_pattern(plan.box, side.write ? BoxSide::kDst : BoxSide::kSrc, base),
                    side, visit);
    }
  });
}

// The flow that begins, and the bytes that the counters see.
void Dma::tell_flow(const Flight& flight, const DmaPlan& plan, const Place& src, const Place& dst,
                    Transfer& transfer) {
  const uint32_t me = context().core_id;
  const uint32_t to = plan.remote ? context().launch.shown(flight.queued.peer) : me;
  probe().flow(src.hbm != nullptr ? plan.bytes.src : 0,
               dst.hbm != nullptr && !plan.remote ? plan.bytes.dst : 0,
               plan.remote ? plan.box.total_bytes : 0, to, [&] {
                 transfer.source = source(flight.queued);
                 const uint64_t bytes = plan.bytes.carried();
                 const Operand& from = plan.is_fill ? plan.dst : plan.src;
                 return FlowEvent{.cycle = flight.start,
                                  .source = transfer.source,
                                  .phase = FlowEvent::Phase::kBegin,
                                  .bytes = bytes,
                                  .left = bytes,
                                  .from = {plan.is_fill ? to : me, memory_of(from)},
                                  .to = {to, memory_of(plan.dst)}};
               });
}

void Dma::flow_changed(const Flow& flow, bool ended) {
  const auto transfer =
      std::ranges::find_if(transfers_, [&](const Transfer& each) { return &each.flow == &flow; });
  probe().flow(0, 0, 0, transfer->to_core, [&] {
    return FlowEvent{.cycle = now_cycles(),
                     .source = transfer->source,
                     .phase = ended ? FlowEvent::Phase::kEnd : FlowEvent::Phase::kRate,
                     .bytes = flow.bytes(),
                     .left = flow.left(),
                     .rate = flow.rate()};
  });
}

void Dma::settle(Flight& flight) {
  const Transfer& transfer = transfers_[flight.index];
  if (flight.done_at == kNever && !transfer.flow.active()) {
    flight.done_at = transfer.flow.done_at() + transfer.fixed_cycles;
  }
}

void Dma::settle_data() { works_.settle(); }

void Dma::finish_command(Flight& flight) {
  Transfer& transfer = transfers_[flight.index];
  works_.ended(flight.index);
  if (transfer.inbound) {
    transfer.write.at = flight.done_at;
    ici_port->peer(flight.queued.peer).remote_landed(transfer.write, transfer.packed);
  }
}

}  // namespace tpu::model
