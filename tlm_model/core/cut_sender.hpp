// What a command sends to cores of other boards: its signals, and the data of a transfer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/signal_sender.hpp"

namespace tpu::model {

class CutSender {
 public:
  // All outlive it.
  CutSender(const EngineContext& context, SignalSender& signals, sc_core::sc_port<FaultIf>& faults,
            SignalIciPort& ici)
      : context_(context), signals_(signals), faults_(faults), ici_(ici) {}

  // Signals of the command go there.
  bool leaves(const QueuedCommand& queued) const;
  // Once it is known when the command is done: one delivery for each receiver. `add_data` has what
  // it writes to its peer, if that is there. After a stop the signals are lost, as those of any
  // command.
  using AddData = std::function<void(CutDelivery& delivery)>;
  void send(const QueuedCommand& queued, uint64_t done_at, bool stopped, const AddData& add_data);
  // A write begins, of a command whose destination is out of range with `range`, but for the size
  // of what it is in. What the receiver says against it is a fault when the answer has come, which
  // the end of the program waits for.
  uint64_t open(const QueuedCommand& queued, const RemoteWrite& write, uint64_t bytes,
                uint64_t fixed, const FaultInfo& range);
  // The receiver of what the command sends, on this board, no longer takes it.
  void raise_peer_ended(const QueuedCommand& queued, const std::string& what) {
    signals_.raise_peer_ended(queued, what);
  }
  // Data and signals of a command with a peer, on any board, begin their way.
  LinkPassage pass_links(const QueuedCommand& queued) {
    return signals_.pass_links(queued, queued.peer);
  }

 private:
  // A fault of a command that may be done, in the step in which it was sent.
  void raise_late(GangStep sent, const FaultInfo& info, const std::string& text);

  const EngineContext& context_;
  SignalSender& signals_;
  sc_core::sc_port<FaultIf>& faults_;
  SignalIciPort& ici_;
};

}  // namespace tpu::model
