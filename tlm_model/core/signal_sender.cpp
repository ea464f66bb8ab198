// Signals of commands.
#include "core/signal_sender.hpp"

#include <algorithm>

#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {

void raise_link_fault(FaultIf& faults, FaultInfo info, const LinkPassage& links) {
  info.code = TPU_FAULT_LINK_DOWN;
  info.detail = links.from_chip | links.to_chip << 16;
  faults.raise(info, "the link from chip " + std::to_string(links.from_chip) + " to chip " +
                         std::to_string(links.to_chip) + ", which it passes, is down");
}

uint32_t SignalSender::latency(const QueuedCommand& queued) const {
  uint64_t latency = 0;
  for (size_t i = 0; i < queued.command->signal.size(); ++i) {
    const spec::Signal& signal = queued.command->signal[i];
    if (signal.valid() && signal.remote() && queued.signal_peer[i] < ici_->cores()) {
      latency = std::max(latency, ici_->control_latency(context_.core_id, queued.signal_peer[i]));
    }
  }
  return static_cast<uint32_t>(latency);
}

LinkPassage SignalSender::pass_links(const QueuedCommand& queued,
                                     std::optional<uint32_t> data_peer) {
  LinkPassage all;
  if (data_peer) {
    all = ici_->pass_links(context_.core_id, *data_peer);
  }
  for (size_t i = 0; i < queued.command->signal.size() && !all.lost; ++i) {
    const spec::Signal& signal = queued.command->signal[i];
    const uint32_t peer = queued.signal_peer[i];
    if (signal.valid() && signal.remote() && peer < ici_->cores() && peer != data_peer) {
      const LinkPassage one = ici_->pass_links(context_.core_id, peer);
      const uint64_t extra = std::max(all.extra, one.extra);
      all = one;
      all.extra = extra;
    }
  }
  return all;
}

void SignalSender::send(const QueuedCommand& queued, uint64_t done_at) {
  for (size_t i = 0; i < queued.command->signal.size(); ++i) {
    const spec::Signal& signal = queued.command->signal[i];
    if (!signal.valid()) {
      continue;
    }
    if (!signal.remote()) {
      tell(queued, signal, context_.core_id, done_at);
      semaphores_->add(signal.sem, signal.value);
    } else if (leaves(queued, i)) {
      continue;  // it was sent when the time was known
    } else if (!send_remote(queued, signal, queued.signal_peer[i], done_at)) {
      return;
    }
  }
}

bool SignalSender::leaves(const QueuedCommand& queued, size_t index) const {
  const spec::Signal& signal = queued.command->signal[index];
  const uint32_t peer = queued.signal_peer[index];
  return signal.valid() && signal.remote() && ici_->behind_cut(peer) &&
         context_.launch.gang_has(peer);
}

RemoteSignal SignalSender::leave(const QueuedCommand& queued, size_t index, uint64_t done_at) {
  const spec::Signal& signal = queued.command->signal[index];
  tell(queued, signal, queued.signal_peer[index], done_at);
  return {.from = {context_.launch.tag, context_.launch.step},
          .to_core = queued.signal_peer[index],
          .semaphore = signal.sem,
          .value = signal.value,
          .at = done_at};
}

// False: faulted.
bool SignalSender::send_remote(const QueuedCommand& queued, const spec::Signal& signal,
                               uint32_t peer, uint64_t done_at) {
  if (peer >= ici_->cores() || !context_.launch.gang_has(peer)) {
    FaultInfo info = fault_of(*queued.command, TPU_FAULT_REMOTE_STRAY, unit_);
    info.detail = spec::fault::kDetailPeerOutside;
    info.address = peer;
    faults_->raise(info, "signal to core " + std::to_string(peer) + ", which is not in the gang");
    return false;
  }
  tell(queued, signal, peer, done_at);
  const RemoteSignal message{.from = {context_.launch.tag, context_.launch.step},
                             .to_core = peer,
                             .semaphore = signal.sem,
                             .value = signal.value,
                             .at = done_at};
  if (ici_->peer(peer).remote_signal(message).status == RemoteAnswer::Status::kEnded) {
    raise_peer_ended(queued, "signal");
    return false;
  }
  return true;
}

void SignalSender::tell(const QueuedCommand& queued, const spec::Signal& signal, uint32_t to_core,
                        uint64_t done_at) {
  context_.probe.signal([&] {
    return SignalEvent{.cycle = done_at,
                       .source = command_source(context_, unit_, queued),
                       .to_core = context_.launch.shown(to_core),
                       .semaphore = signal.sem,
                       .amount = signal.value};
  });
}

FaultInfo SignalSender::peer_ended(const QueuedCommand& queued) const {
  FaultInfo info = fault_of(*queued.command, TPU_FAULT_REMOTE_STRAY, unit_);
  info.detail = spec::fault::kDetailPeerEnded;
  return info;
}

void SignalSender::raise_peer_ended(const QueuedCommand& queued, const std::string& what) {
  faults_->raise(peer_ended(queued), peer_ended_text(what));
}

}  // namespace tpu::model
