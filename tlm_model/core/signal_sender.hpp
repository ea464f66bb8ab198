// Signals of a command that is done: to the semaphores of its core and, from queue dma_remote, to
// those of other cores.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <systemc>

#include "core/engine_context.hpp"
#include "core/ports.hpp"
#include "kernel/remote_if.hpp"

namespace tpu::model {

using SignalIciPort = sc_core::sc_port<IciIf, 1, sc_core::SC_ZERO_OR_MORE_BOUND>;

// Of a command (`info`) on whose way a link is lost.
void raise_link_fault(FaultIf& faults, FaultInfo info, const LinkPassage& links);

class SignalSender {
 public:
  // All outlive it.
  SignalSender(const EngineContext& context, int unit, sc_core::sc_port<SemaphoreIf>& semaphores,
               sc_core::sc_port<FaultIf>& faults, SignalIciPort& ici)
      : context_(context), unit_(unit), semaphores_(semaphores), faults_(faults), ici_(ici) {}

  // Of a command that is done at this cycle, but for those that leave the board.
  void send(const QueuedCommand& queued, uint64_t done_at);
  // The signal goes to a core of the gang on another board.
  bool leaves(const QueuedCommand& queued, size_t index) const;
  // Once it is known when the command is done: one of those, for the delivery that takes it there.
  RemoteSignal leave(const QueuedCommand& queued, size_t index, uint64_t done_at);
  // Time that a command without data takes to reach the farthest core it signals.
  uint32_t latency(const QueuedCommand& queued) const;
  // How links that fail on purpose treat its signals and, if it has a peer, its data, with which
  // the signals to the same peer go.
  LinkPassage pass_links(const QueuedCommand& queued, std::optional<uint32_t> data_peer = {});
  // The receiver of what the command sends no longer takes it.
  void raise_peer_ended(const QueuedCommand& queued, const std::string& what);
  FaultInfo peer_ended(const QueuedCommand& queued) const;
  static std::string peer_ended_text(const std::string& what) {
    return what + " to a core that has ended this step";
  }

 private:
  bool send_remote(const QueuedCommand& queued, const spec::Signal& signal, uint32_t peer,
                   uint64_t done_at);
  void tell(const QueuedCommand& queued, const spec::Signal& signal, uint32_t to_core,
            uint64_t done_at);

  const EngineContext& context_;
  const int unit_;
  sc_core::sc_port<SemaphoreIf>& semaphores_;
  sc_core::sc_port<FaultIf>& faults_;
  SignalIciPort& ici_;
};

}  // namespace tpu::model
