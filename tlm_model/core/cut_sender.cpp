// Deliveries to other boards, and faults that their answers raise.
#include "core/cut_sender.hpp"

#include <utility>
#include <vector>

namespace tpu::model {

bool CutSender::leaves(const QueuedCommand& queued) const {
  for (size_t i = 0; i < queued.command->signal.size(); ++i) {
    if (signals_.leaves(queued, i)) {
      return true;
    }
  }
  return false;
}

void CutSender::send(const QueuedCommand& queued, uint64_t done_at, bool stopped,
                     const AddData& add_data) {
  std::vector<CutDelivery> deliveries;
  const auto to = [&](uint32_t core) -> CutDelivery& {
    for (CutDelivery& delivery : deliveries) {
      if (delivery.to_core == core) {
        return delivery;
      }
    }
    CutDelivery& delivery = deliveries.emplace_back();
    delivery.from_core = context_.core_id;
    delivery.to_core = core;
    delivery.at = done_at;
    return delivery;
  };
  if (add_data) {
    add_data(to(queued.peer));
  }
  for (size_t i = 0; i < queued.command->signal.size(); ++i) {
    if (!stopped && signals_.leaves(queued, i)) {
      to(queued.signal_peer[i]).signals.push_back(signals_.leave(queued, i, done_at));
    }
  }
  const GangStep sent = {context_.launch.tag, context_.launch.step};
  const FaultInfo ended = signals_.peer_ended(queued);
  for (CutDelivery& delivery : deliveries) {
    ici_->cut()->deliver(std::move(delivery), [this, sent, ended](const RemoteAnswer& answer) {
      if (answer.status == RemoteAnswer::Status::kEnded) {
        raise_late(sent, ended, SignalSender::peer_ended_text("signal"));
      }
    });
  }
}

uint64_t CutSender::open(const QueuedCommand& queued, const RemoteWrite& write, uint64_t bytes,
                         uint64_t fixed, const FaultInfo& range) {
  using Status = RemoteAnswer::Status;
  const GangStep sent = write.from;
  const FaultInfo ended = signals_.peer_ended(queued);
  return ici_->cut()->open(
      write, bytes, fixed, [this, sent, ended, range](const RemoteAnswer& answer) {
        if (answer.status == Status::kEnded) {
          raise_late(sent, ended, SignalSender::peer_ended_text("transfer"));
        } else if (answer.status == Status::kBadSlot || answer.status == Status::kBadRange) {
          FaultInfo info = range;
          info.limit += static_cast<int64_t>(answer.size);
          raise_late(sent, info, "DMA operand outside of its memory or slot");
        }
      });
}

void CutSender::raise_late(GangStep sent, const FaultInfo& info, const std::string& text) {
  const LaunchState& launch = context_.launch;
  if (launch.tag_open && launch.tag == sent.tag && launch.step == sent.step) {
    faults_->raise(info, text);
  }
}

}  // namespace tpu::model
