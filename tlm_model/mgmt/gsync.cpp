// Gang barrier and abort: registers, root, packets.
#include "mgmt/gsync.hpp"

#include "kernel/cycles.hpp"
#include "tpu/spec/gsync_table.hpp"
#include "tpu/spec/irq_regs.hpp"

namespace tpu::model {

namespace regs = spec::gsync;

namespace {
constexpr uint64_t kCyclesPerTimeoutUnit = 1024;
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
  gang_ = {};
  waiting_ = released_ = aborted_ = peer_lost_ = false;
  root_.reset();
  timeout_event_.cancel();
}

uint64_t Gsync::silent() const {
  if (waiting_ && waiting_kind_ == regs::kKindDrain) {
    return 0;
  }
  return inbox_.empty() ? kNever : inbox_.begin()->at;
}

void Gsync::visit_state(spec::Archive& archive) {
  visit_registers(archive);
  archive(gang_, waiting_kind_, released_, aborted_, peer_lost_);
  root_.visit_state(archive, cores());
  archive(packets_);
  std::vector<Arrival> arrivals(inbox_.begin(), inbox_.end());
  archive(arrivals);
  for (const Arrival& arrival : arrivals) {
    archive.need(
        is_ahead(arrival.at) && arrival.from < cores() && arrival.packet.gang.end() <= cores(),
        "a packet between cores comes from nowhere");
  }
  archive.need(gang_.end() <= cores(), "a gang has cores that are not there");
  if (archive.loading() && !arrivals.empty()) {
    inbox_.insert(arrivals.begin(), arrivals.end());
    for (size_t i = 0; i < inbox_.size(); ++i) {
      fabric_.activity->begin();
    }
    inbox_event_.notify(from_cycles(inbox_.begin()->at - now_cycles()));
  }
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
       on_write<&Gsync::abort_written>(regs::kAbort), on_value<&Gsync::state>(regs::kState)});
  return kMap.view();
}

void Gsync::tag_written() {
  aborted_ = false;
  cell(regs::kAbortInfo) = 0;
}

void Gsync::mask_written() {
  const uint32_t mask = reg(regs::kMask);
  gang_ = {};
  if (mask != 0) {
    gang_ = owner_.gang_of_rows();
    if (gang_.empty()) {
      gang_ = in_board(mask);
    }
  }
}

spec::CoreSet Gsync::in_board(uint32_t mask) const {
  return spec::CoreSet(cores() < 32 ? mask & ((1U << cores()) - 1) : mask);
}

void Gsync::abort_written(uint32_t code) {
  const uint32_t tag = reg(regs::kAbortTag);
  const uint32_t mask = reg(regs::kAbortMask);
  if (mask != 0) {
    const spec::CoreSet gang = in_board(mask);
    if (!gang.empty()) {
      send_abort(gang.lowest(), tag, gang, code);
    }
  } else if (!gang_.empty() && tag == tag_) {
    abort_running(code);
  } else if (reg(regs::kAbortRoot) < cores()) {
    send_abort(reg(regs::kAbortRoot), tag, {}, code);
  }
}

void Gsync::arrive(uint32_t kind) {
  waiting_ = true;
  waiting_kind_ = kind;
  released_ = peer_lost_ = false;
  send(root(), {ControlPacket::Type::kArrive, static_cast<uint8_t>(kind), 0, 0, tag_, gang_,
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

void Gsync::abort_running(uint32_t code) {
  if (!gang_.empty()) {
    send_abort(root(), tag_, gang_, code);
  }
}

void Gsync::abort_if_tag(uint32_t tag, uint32_t code) {
  if (tag == tag_) {
    abort_running(code);
  }
}

void Gsync::send_abort(uint32_t root, uint32_t tag, const spec::CoreSet& gang, uint32_t code) {
  send(root, {ControlPacket::Type::kAbortRequest, 0, static_cast<uint8_t>(code),
              static_cast<uint16_t>(core_), tag, gang, 0});
}

// A packet to the core itself does not leave it.
void Gsync::send(uint32_t to, const ControlPacket& packet) {
  const uint64_t delay = to == core_ ? 0 : fabric_.ici->gang_latency(core_, to);
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
      deliver(root_.arrive(from, {packet.tag, packet.kind, packet.step, packet.gang}));
      break;
    case ControlPacket::Type::kAbortRequest:
      deliver(root_.abort({packet.tag, packet.origin, packet.code, packet.gang}));
      break;
    case ControlPacket::Type::kRelease:
      released(packet);
      break;
    case ControlPacket::Type::kAbort:
      aborted(packet);
      break;
  }
}

void Gsync::deliver(const std::vector<spec::GangMessage>& messages) {
  for (const spec::GangMessage& message : messages) {
    if (const auto* full = std::get_if<spec::GangArrival>(&message.what)) {
      send(message.core,
           {ControlPacket::Type::kRelease, full->kind, 0, 0, full->tag, full->gang, full->step});
    } else {
      const auto& abort = std::get<spec::GangAbort>(message.what);
      send(message.core,
           {ControlPacket::Type::kAbort, 0, abort.code, abort.origin, abort.tag, abort.gang, 0});
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
  switch (spec::answer_to_abort(packet.tag, tag_, !gang_.empty(), aborted_)) {
    case spec::AbortAnswer::kIgnore:
      break;
    case spec::AbortAnswer::kDrain:
      send(root_of(packet.gang),
           {ControlPacket::Type::kArrive, static_cast<uint8_t>(regs::kKindDrain), 0, 0, packet.tag,
            packet.gang, 0});
      break;
    case spec::AbortAnswer::kStop:
      stop(packet);
      break;
  }
}

void Gsync::stop(const ControlPacket& packet) {
  aborted_ = true;
  waiting_ = false;
  cell(regs::kAbortInfo) = static_cast<uint32_t>(packet.origin) << regs::kAbortInfoOriginShift |
                           static_cast<uint32_t>(packet.code) << regs::kAbortInfoCodeShift;
  owner_.stop_sequencer();
  irq_.raise(spec::irq::kAbort);
}

}  // namespace tpu::model
