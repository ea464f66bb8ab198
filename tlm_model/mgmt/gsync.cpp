// Gang barrier and abort: registers, root, packets.
#include "mgmt/gsync.hpp"

#include <algorithm>
#include <bit>

#include "kernel/cycles.hpp"
#include "tpu/spec/gsync_table.hpp"
#include "tpu/spec/irq_regs.hpp"

namespace tpu::model {

namespace regs = spec::gsync;

namespace {
constexpr uint64_t kCyclesPerTimeoutUnit = 1024;

// Tags are counted and wrap: how much younger `tag` is than `other`; negative: older.
int32_t age(uint32_t tag, uint32_t other) { return static_cast<int32_t>(tag - other); }
}  // namespace

Gsync::Gsync(sc_core::sc_module_name name, uint32_t core, Fabric& fabric, Irq& irq,
             GsyncOwner& owner)
    : sc_module(name),
      RegisterBlock(registers()),
      core_(core),
      fabric_(fabric),
      irq_(irq),
      owner_(owner) {
  SC_METHOD(inbox_method);
  sensitive << inbox_event_;
  dont_initialize();
  SC_METHOD(timeout_method);
  sensitive << timeout_event_;
  dont_initialize();
}

void Gsync::reset() {
  reset_registers();
  waiting_ = released_ = aborted_ = peer_lost_ = false;
  barriers_.clear();
  timeout_event_.cancel();
}

void Gsync::visit_state(spec::Archive& archive) {
  visit_registers(archive);
  archive(waiting_kind_, released_, aborted_, peer_lost_, barriers_, aborted_tags_, next_aborted_,
          packets_);
  archive.need(next_aborted_ < kAbortedKept, "an aborted gang has no place");
  const auto in_board = [this](uint32_t mask) { return (mask & ~all_cores()) == 0; };
  std::vector<Arrival> arrivals(inbox_.begin(), inbox_.end());
  archive(arrivals);
  for (const Arrival& arrival : arrivals) {
    archive.need(is_ahead(arrival.at) && arrival.from < fabric_.control.size() &&
                     in_board(arrival.packet.mask),
                 "a packet between cores comes from nowhere");
  }
  for (const Barrier& barrier : barriers_) {
    archive.need(in_board(barrier.mask), "a barrier is for cores that are not there");
  }
  archive.need(in_board(mask_) && in_board(abort_mask_), "a gang has cores that are not there");
  if (archive.loading() && !arrivals.empty()) {
    inbox_.insert(arrivals.begin(), arrivals.end());
    for (size_t i = 0; i < inbox_.size(); ++i) {
      fabric_.activity->begin();
    }
    inbox_event_.notify(from_cycles(inbox_.begin()->at - now_cycles()));
  }
}

uint32_t Gsync::all_cores() const {
  const uint32_t cores = static_cast<uint32_t>(fabric_.control.size());
  return cores >= 32 ? ~0U : (1U << cores) - 1;
}

uint32_t Gsync::root_of(uint32_t mask) const {
  return mask == 0 ? core_ : static_cast<uint32_t>(std::countr_zero(mask));
}

uint32_t Gsync::state() const {
  return (waiting_ ? regs::kStateWaitingMask : 0) | (released_ ? regs::kStateReleasedMask : 0) |
         (aborted_ ? regs::kStateAbortedMask : 0) | (peer_lost_ ? regs::kStatePeerLostMask : 0);
}

RegisterMap Gsync::registers() {
  static constexpr auto kMap = make_register_map(
      regs::kTable,
      {on_write<&Gsync::tag_written>(regs::kTag), on_write<&Gsync::mask_written>(regs::kMask),
       on_value<&Gsync::root>(regs::kRoot), on_write<&Gsync::arrive>(regs::kArrive),
       on_write<&Gsync::abort_mask_written>(regs::kAbortMask),
       on_write<&Gsync::abort_written>(regs::kAbort), on_value<&Gsync::state>(regs::kState)});
  return kMap.view();
}

void Gsync::tag_written() {
  aborted_ = false;
  cell(regs::kAbortInfo) = 0;
}

void Gsync::mask_written() { mask_ &= all_cores(); }

void Gsync::abort_mask_written() { abort_mask_ &= all_cores(); }

void Gsync::abort_written(uint32_t code) { send_abort(reg(regs::kAbortTag), abort_mask_, code); }

void Gsync::arrive(uint32_t kind) {
  waiting_ = true;
  waiting_kind_ = kind;
  released_ = peer_lost_ = false;
  send(root_of(mask_), {ControlPacket::Type::kArrive, static_cast<uint8_t>(kind), 0, 0, tag_, mask_,
                        reg(regs::kStep)});
  const uint32_t peer_timeout = reg(regs::kPeerTimeout);
  if (kind == regs::kKindDrain && peer_timeout != 0) {
    timeout_event_.cancel();
    timeout_event_.notify(from_cycles(peer_timeout * kCyclesPerTimeoutUnit));
  }
}

void Gsync::timeout_method() {
  if (waiting_ && waiting_kind_ == regs::kKindDrain) {
    waiting_ = false;
    peer_lost_ = true;
    irq_.raise(spec::irq::kBarrier);
  }
}

void Gsync::abort_running(uint32_t code) { send_abort(tag_, mask_, code); }

void Gsync::abort_if_tag(uint32_t tag, uint32_t code) {
  if (tag == tag_) {
    abort_running(code);
  }
}

void Gsync::send_abort(uint32_t tag, uint32_t mask, uint32_t code) {
  if (mask == 0) {
    return;
  }
  send(root_of(mask), {ControlPacket::Type::kAbortRequest, 0, static_cast<uint8_t>(code),
                       static_cast<uint8_t>(core_), tag, mask, 0});
}

// A packet to the core itself does not leave it.
void Gsync::send(uint32_t to, const ControlPacket& packet) {
  const uint64_t delay = to == core_ ? 0 : fabric_.ici->control_latency(core_, to);
  fabric_.control[to]->control_packet(now_cycles() + delay, core_, packet);
}

void Gsync::control_packet(uint64_t at, uint32_t from, const ControlPacket& packet) {
  fabric_.activity->begin();
  inbox_.insert({at, from, packets_++, packet});
  const uint64_t next = inbox_.begin()->at - now_cycles();
  inbox_event_.notify(next == 0 ? sc_core::SC_ZERO_TIME : from_cycles(next));
}

void Gsync::inbox_method() {
  while (!inbox_.empty() && inbox_.begin()->at <= now_cycles()) {
    const Arrival arrival = *inbox_.begin();
    inbox_.erase(inbox_.begin());
    handle(arrival.from, arrival.packet);
    fabric_.activity->end();
  }
  if (!inbox_.empty()) {
    inbox_event_.notify(from_cycles(inbox_.begin()->at - now_cycles()));
  }
}

void Gsync::handle(uint32_t from, const ControlPacket& packet) {
  switch (packet.type) {
    case ControlPacket::Type::kArrive:
      root_arrival(from, packet);
      break;
    case ControlPacket::Type::kAbortRequest:
      root_abort(packet);
      break;
    case ControlPacket::Type::kRelease:
      released(packet);
      break;
    case ControlPacket::Type::kAbort:
      aborted(packet);
      break;
  }
}

void Gsync::root_arrival(uint32_t from, const ControlPacket& packet) {
  forget_old(packet.tag);
  if (packet.kind == regs::kKindStep) {
    if (const Aborted* known = find_aborted(packet.tag)) {
      send(from, {ControlPacket::Type::kAbort, 0, known->code, known->origin, packet.tag,
                  packet.mask, 0});
      return;
    }
    for (const Barrier& other : barriers_) {
      const bool same =
          other.tag == packet.tag && other.step == packet.step && other.mask == packet.mask;
      // Both wait for a core that has arrived at the other one: neither can ever be complete.
      if (!same && other.kind == regs::kKindStep && (other.mask & 1U << from) != 0 &&
          (other.arrived & packet.mask) != 0) {
        root_mismatch(from, packet, Barrier(other));
        return;
      }
    }
  }
  auto found = std::find_if(barriers_.begin(), barriers_.end(), [&](const Barrier& barrier) {
    return barrier.tag == packet.tag && barrier.kind == packet.kind &&
           (packet.kind == regs::kKindDrain || barrier.step == packet.step);
  });
  if (found == barriers_.end()) {
    barriers_.push_back({packet.tag, packet.kind, packet.step, packet.mask, 0});
    found = barriers_.end() - 1;
  }
  found->arrived |= 1U << from;
  if ((found->arrived & found->mask) != found->mask) {
    return;
  }
  const Barrier full = *found;
  barriers_.erase(found);
  for (uint32_t core = 0; core < fabric_.control.size(); ++core) {
    if ((full.mask & 1U << core) != 0) {
      send(core, {ControlPacket::Type::kRelease, full.kind, 0, 0, full.tag, full.mask, full.step});
    }
  }
}

void Gsync::root_mismatch(uint32_t from, const ControlPacket& packet, const Barrier& other) {
  const auto code = static_cast<uint8_t>(regs::kCodeMismatch);
  const auto origin = static_cast<uint8_t>(from);
  root_abort({ControlPacket::Type::kAbortRequest, 0, code, origin, other.tag, other.mask, 0});
  root_abort({ControlPacket::Type::kAbortRequest, 0, code, origin, packet.tag, packet.mask, 0});
}

// No core arrives for tags that are so much older, and their numbers will be used again.
void Gsync::forget_old(uint32_t youngest) {
  const auto old = [youngest](const auto& entry) {
    return age(youngest, entry.tag) >= static_cast<int32_t>(regs::kForgetAge);
  };
  for (Aborted& entry : aborted_tags_) {
    entry.valid = entry.valid && !old(entry);
  }
  std::erase_if(barriers_, old);
}

const Gsync::Aborted* Gsync::find_aborted(uint32_t tag) const {
  const auto found =
      std::find_if(aborted_tags_.begin(), aborted_tags_.end(),
                   [tag](const Aborted& entry) { return entry.valid && entry.tag == tag; });
  return found == aborted_tags_.end() ? nullptr : &*found;
}

void Gsync::root_abort(const ControlPacket& packet) {
  forget_old(packet.tag);
  if (find_aborted(packet.tag) != nullptr) {
    return;  // the first abort of a tag wins
  }
  aborted_tags_[next_aborted_] = {true, packet.tag, packet.origin, packet.code};
  next_aborted_ = (next_aborted_ + 1) % kAbortedKept;
  std::erase_if(barriers_, [&](const Barrier& barrier) {
    return barrier.tag == packet.tag && barrier.kind == regs::kKindStep;
  });
  for (uint32_t core = 0; core < fabric_.control.size(); ++core) {
    if ((packet.mask & 1U << core) != 0) {
      send(core, {ControlPacket::Type::kAbort, 0, packet.code, packet.origin, packet.tag,
                  packet.mask, 0});
    }
  }
}

void Gsync::released(const ControlPacket& packet) {
  if (!waiting_ || packet.tag != tag_ || packet.kind != waiting_kind_) {
    return;
  }
  waiting_ = false;
  released_ = true;
  timeout_event_.cancel();
  irq_.raise(spec::irq::kBarrier);
}

void Gsync::aborted(const ControlPacket& packet) {
  ++cell(regs::kAbortCount);
  if (mask_ == 0 || aborted_ || age(packet.tag, tag_) > 0) {
    return;  // this core is not in the gang yet: its arrival will be answered by the root
  }
  if (packet.tag != tag_) {
    // This core ended its part and has bound a later gang: the others must not wait for it.
    send(root_of(packet.mask),
         {ControlPacket::Type::kArrive, static_cast<uint8_t>(regs::kKindDrain), 0, 0, packet.tag,
          packet.mask, 0});
    return;
  }
  aborted_ = true;
  waiting_ = false;
  cell(regs::kAbortInfo) = static_cast<uint32_t>(packet.origin) << regs::kAbortInfoOriginShift |
                           static_cast<uint32_t>(packet.code) << regs::kAbortInfoCodeShift;
  owner_.stop_sequencer();
  irq_.raise(spec::irq::kAbort);
}

}  // namespace tpu::model
