// Host DMA: registers, contexts, transfers.
#include "mgmt/host_dma.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "board/board_loader.hpp"
#include "file/crc32c.hpp"
#include "kernel/cycles.hpp"
#include "tpu/spec/hart_map.h"
#include "tpu/spec/hostdma_table.hpp"
#include "tpu/spec/irq_regs.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {

namespace hostdma = spec::hostdma;

namespace {

constexpr uint64_t kCrcPiece = 64 * 1024;

uint32_t field(uint32_t value, uint32_t mask, uint32_t shift) { return (value & mask) >> shift; }
uint32_t direction(uint32_t start) {
  return field(start, hostdma::kStartDirMask, hostdma::kStartDirShift);
}
uint32_t space(uint32_t start) {
  return field(start, hostdma::kStartSpaceMask, hostdma::kStartSpaceShift);
}
uint32_t peer(uint32_t start) {
  return field(start, hostdma::kStartPeerMask, hostdma::kStartPeerShift);
}

bool inside(uint64_t at, uint64_t bytes, uint64_t size) {
  return bytes <= size && at <= size - bytes;
}

std::span<uint8_t> as_u8(std::span<std::byte> data) {
  return {reinterpret_cast<uint8_t*>(data.data()), data.size()};
}
std::span<const uint8_t> as_u8(std::span<const std::byte> data) {
  return {reinterpret_cast<const uint8_t*>(data.data()), data.size()};
}

}  // namespace

HostDma::HostDma(sc_core::sc_module_name name, const spec::BoardParams& params, uint32_t core,
                 int completion_vector, Fabric& fabric, Irq& irq, HostDmaOwner& owner)
    : sc_module(name),
      RegisterBlock(registers()),
      params_(params),
      core_(core),
      completion_vector_(completion_vector),
      fabric_(fabric),
      irq_(irq),
      owner_(owner) {
  for (uint32_t index = 0; index < kContexts; ++index) {
    sc_core::sc_spawn([this, index] { context_thread(index); },
                      sc_core::sc_gen_unique_name("context_thread"));
  }
}

void HostDma::reset() {
  for (Context& context : contexts_) {
    ++context.generation;
    context.error = 0;
  }
  reset_registers();
}

RegisterMap HostDma::registers() {
  static constexpr auto kMap =
      make_register_map(hostdma::kTable, {before_write<&HostDma::may_describe>(hostdma::kHostLo),
                                          before_write<&HostDma::may_describe>(hostdma::kHostHi),
                                          before_write<&HostDma::may_describe>(hostdma::kLocalLo),
                                          before_write<&HostDma::may_describe>(hostdma::kLocalHi),
                                          before_write<&HostDma::may_describe>(hostdma::kLenLo),
                                          before_write<&HostDma::may_describe>(hostdma::kLenHi),
                                          before_write<&HostDma::may_describe>(hostdma::kPattern),
                                          on_write<&HostDma::start>(hostdma::kStart),
                                          on_value<&HostDma::status>(hostdma::kStatus),
                                          on_value<&HostDma::active>(hostdma::kActive)});
  return kMap.view();
}

// The running transfer keeps its registers.
bool HostDma::may_describe(uint32_t index, uint32_t /*value*/) {
  if (contexts_[index].busy) {
    contexts_[index].error = hostdma::kErrBusy;
  }
  return !contexts_[index].busy;
}

uint32_t HostDma::status(uint32_t index) const {
  const Context& context = contexts_[index];
  return (context.busy ? hostdma::kStatusBusyMask : 0) | context.error
                                                             << hostdma::kStatusErrorShift;
}

uint32_t HostDma::active() const {
  uint32_t bits = 0;
  for (uint32_t i = 0; i < kContexts; ++i) {
    bits |= contexts_[i].busy ? 1U << i : 0;
  }
  return bits;
}

uint32_t& HostDma::crc_of(const Context& context) {
  return cell(hostdma::kCrcOut, index_of(context));
}

uint32_t& HostDma::entry_bad_of(const Context& context) {
  return cell(hostdma::kEntryBad, index_of(context));
}

void HostDma::read_description(Context& context) {
  const uint32_t index = index_of(context);
  context.host = wide_reg(hostdma::kHostLo, hostdma::kHostHi, index);
  context.local = wide_reg(hostdma::kLocalLo, hostdma::kLocalHi, index);
  context.bytes = wide_reg(hostdma::kLenLo, hostdma::kLenHi, index);
  context.pattern = reg(hostdma::kPattern, index);
}

void HostDma::start(uint32_t index, uint32_t value) {
  Context& context = contexts_[index];
  if (context.busy) {
    context.error = hostdma::kErrBusy;
    return;
  }
  context.start = value;
  context.error = hostdma::kErrNone;
  read_description(context);
  if (post(context)) {
    return;
  }
  context.busy = true;
  fabric_.activity->begin();
  context.started.notify(sc_core::SC_ZERO_TIME);
}

// A small write from TCM leaves at once; false when the transfer is none.
bool HostDma::post(Context& context) {
  if (direction(context.start) != hostdma::kDirToHost ||
      space(context.start) != hostdma::kSpaceTcm || context.bytes > hostdma::kPostedBytes) {
    return false;
  }
  const std::span<const std::byte> data = owner_.tcm(context.local, context.bytes);
  if (data.size() < context.bytes) {
    return false;  // takes the ordinary way, which reports the error
  }
  if ((context.start & hostdma::kStartCrcMask) != 0) {
    crc_of(context) = spec::crc32c(data);
  }
  std::vector<std::byte> sent(data.begin(), data.end());
  if ((context.start & hostdma::kStartSealMask) != 0 && sent.size() >= sizeof(uint32_t)) {
    const size_t sealed = sent.size() - sizeof(uint32_t);
    const uint32_t crc = spec::crc32c(std::span<const std::byte>(sent).first(sealed));
    std::memcpy(sent.data() + sealed, &crc, sizeof crc);
  }
  if ((context.start & hostdma::kStartSealMask) != 0) {
    if (!damage_[1].empty()) [[unlikely]] {
      damage_entry(true, sent);
    }
    tell_ring(context, true, sent);
  }
  const bool msi = (context.start & hostdma::kStartMsiMask) != 0;
  host_port->post_host(context.host, std::move(sent), msi ? completion_vector_ : HostBus::kNoMsi);
  return true;
}

void HostDma::context_thread(uint32_t index) {
  Context& context = contexts_[index];
  for (;;) {
    wait(context.started);
    read_description(context);  // a reset may have come in between
    const uint32_t generation = context.generation;
    const uint32_t error = run(context);
    context.busy = false;
    if (context.generation == generation) {
      context.error = error;
      cell(hostdma::kDone) |= 1U << index;
      irq_.raise(spec::irq::kHostDma);
    }
    fabric_.activity->end();
  }
}

uint32_t HostDma::check(const Context& context) const {
  const uint64_t hbm_bytes = fabric_.hbm[core_]->bytes();
  const uint32_t dir = direction(context.start);
  const bool words = context.bytes % 4 == 0 && context.local % 4 == 0;
  if (dir == hostdma::kDirD2d) {
    if (peer(context.start) >= fabric_.hbm.size()) {
      return hostdma::kErrRange;
    }
    const bool apart = peer(context.start) != core_ ||
                       context.local >= context.host + context.bytes ||
                       context.host >= context.local + context.bytes;
    const bool valid = inside(context.host, context.bytes, hbm_bytes) &&
                       inside(context.local, context.bytes, hbm_bytes) && apart;
    return valid ? hostdma::kErrNone : hostdma::kErrRange;
  }
  switch (space(context.start)) {
    case hostdma::kSpaceHbm:
      if (dir == hostdma::kDirFill && !words) {
        return hostdma::kErrAlign;
      }
      return inside(context.local, context.bytes, hbm_bytes) ? hostdma::kErrNone
                                                             : hostdma::kErrRange;
    case hostdma::kSpaceTcm:
      return dir != hostdma::kDirFill &&
                     owner_.tcm(context.local, context.bytes).size() >= context.bytes
                 ? hostdma::kErrNone
                 : hostdma::kErrRange;
    case hostdma::kSpaceSlots:
      if (!words) {
        return hostdma::kErrAlign;
      }
      return dir == hostdma::kDirFromHost && inside(context.local, context.bytes,
                                                    TPU_SLOT_BANKS * uint64_t{TPU_SLOT_BANK_BYTES})
                 ? hostdma::kErrNone
                 : hostdma::kErrRange;
    default:
      return hostdma::kErrRange;
  }
}

uint32_t HostDma::run(Context& context) {
  entry_bad_of(context) = 0;
  if (const uint32_t error = check(context); error != hostdma::kErrNone) {
    return error;
  }
  if (context.bytes == 0) {
    crc_of(context) = spec::crc32c({});
    return hostdma::kErrNone;
  }
  switch (direction(context.start)) {
    case hostdma::kDirFromHost:
    case hostdma::kDirToHost:
      return run_with_host(context);
    case hostdma::kDirCrc:
      if (space(context.start) == hostdma::kSpaceHbm && !reads_well(context.local, context.bytes)) {
        return hostdma::kErrHbmEcc;
      }
      run_crc(context);
      return hostdma::kErrNone;
    case hostdma::kDirFill:
      run_fill(context);
      return hostdma::kErrNone;
    case hostdma::kDirD2d:
      if (!reads_well(context.host, context.bytes)) {
        return hostdma::kErrHbmEcc;
      }
      return run_d2d(context);
    default:
      return hostdma::kErrRange;
  }
}

uint32_t HostDma::run_with_host(Context& context) {
  tell_transfer(context, true);
  const uint32_t error = direction(context.start) == hostdma::kDirFromHost ? run_from_host(context)
                                                                           : run_to_host(context);
  tell_transfer(context, false);
  return error;
}

// Other contexts move what no program of a core names before it runs, and what it has left.
void HostDma::tell_transfer(const Context& context, bool begin) const {
  if (fabric_.probes == nullptr || index_of(context) != hostdma::kCtxSpare ||
      space(context.start) != hostdma::kSpaceHbm) {
    return;
  }
  fabric_.probes->tell<TransferEvent>(
      core_bit(core_), ProbeEvent::kTransfer, &ProbeSink::transfer, [&] {
        return TransferEvent{.cycle = now_cycles(),
                             .core = core_,
                             .begin = begin,
                             .range = {.owner = core_,
                                       .memory = ProbeMemory::kHbm,
                                       .low = context.local,
                                       .bytes = context.bytes,
                                       .write = direction(context.start) == hostdma::kDirFromHost}};
      });
}

// Only entries of rings are checked, or sealed.
void HostDma::tell_ring(const Context& context, bool completion,
                        std::span<const std::byte> entries) const {
  if (fabric_.probes == nullptr) {
    return;
  }
  fabric_.probes->tell<RingEvent>(core_bit(core_), ProbeEvent::kRing, &ProbeSink::ring, [&] {
    return RingEvent{.cycle = now_cycles(),
                     .core = core_,
                     .completion = completion,
                     .host = context.host,
                     .entries = entries};
  });
}

void HostDma::damage_entry(bool completion, std::span<std::byte> entry) {
  const RingDamage damage = std::move(damage_[completion ? 1 : 0].front());
  damage_[completion ? 1 : 0].erase(damage_[completion ? 1 : 0].begin());
  const size_t bit = damage.bit % (entry.size() * 8);
  entry[bit / 8] ^= std::byte{1} << bit % 8;
  damage.told();
}

// Bytes from the host reach their place.
void HostDma::take(const Context& context, std::span<const std::byte> data) {
  std::vector<std::byte> damaged;
  if (!damage_[0].empty() && (context.start & hostdma::kStartEntriesMask) != 0) [[unlikely]] {
    damaged.assign(data.begin(), data.end());
    damage_entry(false, std::span(damaged).first(TPU_CMD_ENTRY_BYTES));
    data = damaged;
  }
  if ((context.start & hostdma::kStartCrcMask) != 0) {
    crc_of(context) = spec::crc32c(data);
  }
  if ((context.start & hostdma::kStartEntriesMask) != 0) {
    tell_ring(context, false, data);
    constexpr size_t kChecked = TPU_CMD_ENTRY_BYTES - sizeof(uint32_t);
    for (size_t i = 0; i < data.size() / TPU_CMD_ENTRY_BYTES && i < 32; ++i) {
      const std::span<const std::byte> entry =
          data.subspan(i * TPU_CMD_ENTRY_BYTES, TPU_CMD_ENTRY_BYTES);
      uint32_t stored = 0;
      std::memcpy(&stored, entry.data() + kChecked, sizeof stored);
      entry_bad_of(context) |= stored == spec::crc32c(entry.first(kChecked)) ? 0 : 1U << i;
    }
  }
  switch (space(context.start)) {
    case hostdma::kSpaceHbm:
      fabric_.hbm[core_]->write(context.local, as_u8(data));
      break;
    case hostdma::kSpaceSlots:
      owner_.write_slots(context.local, data);
      break;
    default:
      std::memcpy(owner_.tcm(context.local, context.bytes).data(), data.data(), data.size());
      owner_.tcm_changed(context.local, context.bytes);
      break;
  }
}

// ECC looks at what is read of the HBM of this core.
bool HostDma::reads_well(uint64_t address, uint64_t bytes) {
  BitDamage* const damage = fabric_.hbm[core_]->damage();
  return damage == nullptr || !damage->read(address, bytes);
}

uint32_t HostDma::run_from_host(Context& context) {
  const ResourceId hbm = fabric_.hbm[core_]->bandwidth();
  const size_t shared = space(context.start) == hostdma::kSpaceHbm ? 1 : 0;
  const uint32_t generation = context.generation;
  CoreProbe* const upload = shared > 0 && !fabric_.cores.empty() ? fabric_.cores[core_] : nullptr;
  if (upload != nullptr) {
    upload->upload(now_cycles(), 1);
  }
  const DmaRead read = host_port->read_host(context.host, context.bytes, std::span(&hbm, shared),
                                            [&](std::span<const std::byte> data) {
                                              if (context.generation == generation) {
                                                take(context, data);
                                              }
                                            });
  if (upload != nullptr) {
    upload->upload(now_cycles(), -1);
  }
  switch (read) {
    case DmaRead::kDone:
      return hostdma::kErrNone;
    case DmaRead::kPoisoned:
      return hostdma::kErrPoison;
    case DmaRead::kNoAnswer:
      return hostdma::kErrPcie;
    case DmaRead::kNoMemory:
      break;
  }
  return hostdma::kErrHostAddr;
}

uint32_t HostDma::run_to_host(Context& context) {
  const ResourceId hbm = fabric_.hbm[core_]->bandwidth();
  const bool from_hbm = space(context.start) == hostdma::kSpaceHbm;
  const uint32_t generation = context.generation;
  if (from_hbm && !reads_well(context.local, context.bytes)) {
    return hostdma::kErrHbmEcc;
  }
  const auto wanted = [&] { return context.generation == generation; };
  const auto source = [&](std::span<std::byte> data) {
    if (from_hbm) {
      fabric_.hbm[core_]->read(context.local, as_u8(data));
    } else {
      std::memcpy(data.data(), owner_.tcm(context.local, context.bytes).data(), data.size());
    }
    if ((context.start & hostdma::kStartCrcMask) != 0) {
      crc_of(context) = spec::crc32c(data);
    }
  };
  if (!host_port->write_host(context.host, context.bytes, std::span(&hbm, from_hbm ? 1 : 0), wanted,
                             source)) {
    return hostdma::kErrHostAddr;
  }
  if ((context.start & hostdma::kStartMsiMask) != 0 && context.generation == generation) {
    host_port->post_msi(completion_vector_);
  }
  return hostdma::kErrNone;
}

void HostDma::flow(uint64_t bytes, const std::function<void(Flow&)>& path) {
  Flow flow;
  sc_core::sc_event done;  // without a name: to register one is slow
  flow.set_bytes(bytes);
  flow.set_event(&done);
  path(flow);
  fabric_.share->start(flow);
  wait(done);
}

void HostDma::run_crc(const Context& context) {
  HbmIf& hbm = *fabric_.hbm[core_];
  const uint32_t generation = context.generation;
  const bool in_tcm = space(context.start) == hostdma::kSpaceTcm;
  if (in_tcm) {
    const auto rate = static_cast<uint64_t>(params_.mgmt.crc_bytes_per_cycle);
    wait(from_cycles((context.bytes + rate - 1) / rate));
  } else {
    flow(context.bytes, [&](Flow& f) { f.add(hbm.bandwidth()); });
  }
  if (context.generation != generation) {
    return;
  }
  uint32_t crc = 0;
  if (in_tcm) {
    crc = spec::crc32c(owner_.tcm(context.local, context.bytes));
  } else {
    std::vector<std::byte> piece(kCrcPiece);
    for (uint64_t at = 0; at < context.bytes; at += kCrcPiece) {
      const std::span<std::byte> part =
          std::span(piece).first(std::min(kCrcPiece, context.bytes - at));
      hbm.read(context.local + at, as_u8(part));
      crc = spec::crc32c(part, crc);
    }
  }
  crc_of(context) = crc;
}

void HostDma::run_fill(const Context& context) {
  HbmIf& hbm = *fabric_.hbm[core_];
  const uint32_t generation = context.generation;
  wait(from_cycles(spec::cycles_from_ns(params_, params_.dma.local_fixed_ns)));
  flow(context.bytes, [&](Flow& f) { f.add(hbm.bandwidth()); });
  if (context.generation == generation) {
    hbm.fill(context.local, context.bytes, context.pattern);
  }
}

uint32_t HostDma::run_d2d(const Context& context) {
  HbmIf& source = *fabric_.hbm[core_];
  const uint32_t to = peer(context.start);
  const uint32_t generation = context.generation;
  if (to != core_) {
    const LinkPassage links = fabric_.ici->pass_links(core_, to);
    if (links.lost) {
      return hostdma::kErrLinkDown;
    }
    if (links.extra != 0) {
      wait(from_cycles(links.extra));
    }
  }
  if (fabric_.ici->behind_cut(to)) {
    run_d2d_between_boards(context);
    return hostdma::kErrNone;
  }
  HbmIf& target = *fabric_.hbm[to];
  wait(from_cycles(to == core_ ? spec::cycles_from_ns(params_, params_.dma.local_fixed_ns)
                               : fabric_.ici->data_latency(core_, to)));
  flow(context.bytes, [&](Flow& f) {
    f.add(source.bandwidth());
    if (to != core_) {
      fabric_.ici->add_path(core_, to, f);
    }
    f.add(target.bandwidth());
  });
  if (context.generation == generation) {
    target.copy_from(source, context.host, context.local, context.bytes);
  }
  return hostdma::kErrNone;
}

// The bytes leave at once and land as those of any transfer between boards; the status follows when
// the answer of the other board has come. What is copied is read at the landing: the driver changes
// neither side before the status. But a fault may: with a fault file it is read when the flow here
// ends, as for a board in another process.
void HostDma::run_d2d_between_boards(const Context& context) {
  HbmIf& source = *fabric_.hbm[core_];
  const uint32_t to = peer(context.start);
  const uint32_t generation = context.generation;
  CutDelivery delivery;
  delivery.from_core = core_;
  delivery.to_core = to;
  delivery.flow = fabric_.ici->cut()->open_copy(core_, to, context.bytes);
  flow(context.bytes, [&](Flow& f) {
    f.add(source.bandwidth());
    fabric_.ici->add_path(core_, to, f);
  });
  delivery.at = now_cycles() + fabric_.ici->data_latency(core_, to);
  const bool wanted = context.generation == generation;  // no reset in between
  delivery.range = {true, context.host, context.local, wanted ? context.bytes : 0};
  std::vector<uint8_t> data(source.damage() != nullptr ? delivery.range.bytes : 0);
  if (!data.empty()) {
    source.read(delivery.range.from, data);
  }
  delivery.copy = [this, &source, to, range = delivery.range, data = std::move(data)] {
    if (!data.empty()) {
      fabric_.hbm[to]->write(range.to, data);
    } else if (range.bytes != 0) {
      fabric_.hbm[to]->copy_from(source, range.from, range.to, range.bytes);
    }
  };
  sc_core::sc_event answered;
  fabric_.ici->cut()->deliver(std::move(delivery), [&answered](const RemoteAnswer& /*answer*/) {
    answered.notify(sc_core::SC_ZERO_TIME);
  });
  wait(answered);
}

}  // namespace tpu::model
