// The way ahead of a sequencer, and what it takes at least.
#include "core/program_scout.hpp"

#include <algorithm>
#include <tuple>
#include <variant>

#include "command/scalar_ops.hpp"

namespace tpu::model {
namespace {

// Instructions that a look goes through without more cycles for it: a scalar loop without commands
// has none.
constexpr int kMostItems = 512;

}  // namespace

uint64_t ProgramScout::silent(const Place& place, const EngineQueues& queues, uint64_t now,
                              uint64_t wanted) {
  if (has_to_send(queues)) {
    return now;
  }
  if (stop_ == Stop::kActs && place.issued == issued_ + 1) {
    stop_ = Stop::kNone;
    passes_ = true;
  } else if (stop_ == Stop::kStart || place.issued > issued_) {
    restart(place, queues);
  }
  uint64_t bound = now;
  for (size_t queue = 0; queue < ahead_.size(); ++queue) {
    if (queues.at(queue) != nullptr) {
      ahead_[queue].forget(queues.at(queue)->starts().begun);
      bound = std::max(bound, queue_bound(queues, queue, now));
    }
  }
  for (int items = kMostItems; items > 0 && bound < wanted && stop_ == Stop::kNone; --items) {
    const size_t queue = take(place, queues);
    const uint64_t then = queue < ahead_.size() ? queue_bound(queues, queue, now) : bound;
    if (then > bound) {
      bound = then;
      items = kMostItems;
    }
  }
  return bound;
}

void ProgramScout::restart(const Place& place, const EngineQueues& queues) {
  stop_ = Stop::kNone;
  passes_ = false;
  pc_ = place.pc;
  scalars_ = *place.scalars;
  issued_ = place.issued;
  for (size_t queue = 0; queue < ahead_.size(); ++queue) {
    const CommandQueueIf* const commands = queues.at(queue);
    if (commands == nullptr) {
      continue;
    }
    ahead_[queue].restart(commands->starts().begun);
    for (size_t i = 0; commands->queued(i) != nullptr; ++i) {
      ahead_[queue].add(least_cycles(*commands->queued(i)->command));
    }
  }
}

// The last but `depth_` has started, and with it those in front of it were through.
uint64_t ProgramScout::queue_bound(const EngineQueues& queues, size_t queue, uint64_t now) const {
  const QueueStarts starts = queues.at(queue)->starts();
  const uint64_t count = ahead_[queue].count();
  if (count <= starts.begun + depth_) {
    return now;
  }
  return std::max(now, starts.next) + ahead_[queue].cycles(starts.begun, count - depth_ - 1);
}

bool ProgramScout::has_to_send(const EngineQueues& queues) const {
  for (size_t queue = 0; queue < ahead_.size(); ++queue) {
    if (queues.at(queue) != nullptr && queues.at(queue)->starts().leaving) {
      return true;
    }
  }
  const CommandQueueIf* const remote = queues.at(static_cast<size_t>(spec::Queue::kDmaRemote));
  for (size_t i = 0; remote != nullptr && remote->queued(i) != nullptr; ++i) {
    const QueuedCommand& queued = *remote->queued(i);
    if (acts(*queued.command, queued.peer, queued.signal_peer)) {
      return true;
    }
  }
  return false;
}

bool ProgramScout::acts(const DecodedCommand& command, uint32_t data_peer,
                        std::span<const uint32_t> signal_peers) const {
  const auto* const transfer = std::get_if<DmaPlan>(&command.plan);
  if (transfer != nullptr && transfer->remote && behind_cut_(data_peer)) {
    return true;
  }
  for (size_t i = 0; i < command.signal.size(); ++i) {
    const spec::Signal& signal = command.signal[i];
    if (signal.valid() && signal.remote() && behind_cut_(signal_peers[i])) {
      return true;
    }
  }
  return false;
}

// Of one of the queue dma_remote that is not issued yet.
bool ProgramScout::acts(const DecodedCommand& command) const {
  if (command.bad != 0 || (scalars_.any_unknown() && !scalars_.knows_peers(command))) {
    return true;
  }
  const auto core = [&](size_t reg) {
    return reg < scalars_.registers().size()
               ? static_cast<uint32_t>(std::min<uint64_t>(scalars_.registers()[reg], UINT32_MAX))
               : 0;
  };
  std::array<uint32_t, std::tuple_size_v<decltype(command.signal)>> peers{};
  for (size_t i = 0; i < peers.size(); ++i) {
    peers[i] = core(command.signal[i].peer_reg);
  }
  return acts(command, core(command.peer_reg), peers);
}

size_t ProgramScout::take(const Place& place, const EngineQueues& queues) {
  const ProgramItem* const item = place.program->item(pc_);
  const bool passes = passes_;
  if (item == nullptr || item->kind == ProgramItem::Kind::kIllegal) {
    stop_ = Stop::kActs;
    return spec::kQueueCount;
  }
  if (item->kind == ProgramItem::Kind::kScalar) {
    take_scalar(place, *item);
    return spec::kQueueCount;
  }
  const bool remote = item->queue == static_cast<uint8_t>(spec::Queue::kDmaRemote);
  if (queues.at(item->queue) == nullptr ||
      (remote && !passes && acts(place.program->command(item->command)))) {
    stop_ = Stop::kActs;
    return spec::kQueueCount;
  }
  passes_ = false;
  ahead_[item->queue].add(item->least_cycles);
  ++issued_;
  pc_ = item->next;
  return item->queue;
}

void ProgramScout::take_scalar(const Place& place, const ProgramItem& item) {
  using Op = spec::ScalarOp;
  const spec::ScalarInsn& insn = item.insn;
  const auto op = static_cast<Op>(insn.op);
  const bool unknown = scalars_.any_unknown() && scalars_.depends_on_unknown(insn);
  uint32_t next = item.next;
  switch (spec::scalar_class(op)) {
    case spec::ScalarClass::kArithmetic:
      scalars_.set(insn.rd, spec::scalar_result(insn, scalars_.registers()));
      if (unknown) {
        scalars_.set_unknown(insn.rd);
      }
      break;
    case spec::ScalarClass::kBranch:
      if (unknown) {
        stop_ = Stop::kUnknown;
        return;
      }
      if (spec::scalar_taken(insn, scalars_.registers())) {
        next = static_cast<uint32_t>(insn.imm);
      }
      break;
    case spec::ScalarClass::kOther:
      if (op == Op::kHalt || (op == Op::kHcall && !passes_)) {
        stop_ = Stop::kActs;
        return;
      }
      if (op == Op::kHcall) {
        passes_ = false;
      } else if (op == Op::kLds32 || op == Op::kLds64) {
        scalars_.set_unknown(insn.rd);  // what is there by then
      } else if (op == Op::kRid) {
        scalars_.set(insn.rd, place.replica);
      } else if (op == Op::kNrep) {
        scalars_.set(insn.rd, place.cores);
      } else if (op == Op::kStep) {
        scalars_.set(insn.rd, place.step);
      }
      break;
  }
  pc_ = next;
}

}  // namespace tpu::model
