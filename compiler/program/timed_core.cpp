// Queues, semaphores and the issue of commands; the times are those of tlm_model/core.
#include "program/timed_core.hpp"

#include <algorithm>

#include "board/board_loader.hpp"

namespace tpu::compiler {

using spec::ScalarOp;

TimedCore::TimedCore(TimedProgram& program, const spec::BoardParams& board, TimedFabric& fabric,
                     const Setup& setup)
    : program_(program),
      board_(board),
      fabric_(fabric),
      setup_(setup),
      scalars_(board, setup.index, setup.cores, setup.replicas),
      time_(setup.start),
      wake_(setup.start) {
  due_.fill(kNever);
  for (size_t q = 0; q < queues_.size(); ++q) {
    queues_[q].waiting.resize(static_cast<size_t>(board.core.queue_depth));
    queues_[q].flights.resize(spec::commands_in_flight(board, q));
    for (Flight& flight : queues_[q].flights) {
      flight.partition = setup.index;
      flight.queue = static_cast<uint32_t>(q);
    }
  }
}

bool TimedCore::step(uint64_t now) {
  now_ = now;
  bool any = false;
  // Queues wait for signals and for the sequencer, never for each other.
  for (bool again = true; again && !looped_;) {
    any |= apply_signals(now);
    for (size_t q = 0; q < queues_.size(); ++q) {
      any |= due_[q] <= now && run_queue(q, now);
    }
    const bool sequenced = now >= setup_.start && run_sequencer(now);
    any |= sequenced;
    again = sequenced || (!pending_.empty() && pending_.front().at <= now);
  }
  wake_ = next_due(now);
  return any;
}

uint64_t TimedCore::next_due(uint64_t now) const {
  uint64_t next = pending_.empty() ? kNever : pending_.front().at;
  for (const uint64_t due : due_) {
    next = std::min(next, due);
  }
  return ended_ || stall_ != Stall::kNone ? next : std::min(next, std::max(time_, now + 1));
}

void TimedCore::passed(const Flight& flight) {
  due_[flight.queue] = 0;
  wake_ = 0;
}

void TimedCore::signal(uint64_t now, uint8_t semaphore, uint32_t amount) {
  const auto delay = static_cast<uint64_t>(board_.core.semaphore_cycles);
  pending_.push_back({now + delay, semaphore, amount});
  wake_at(now + delay);
}

bool TimedCore::apply_signals(uint64_t now) {
  if (pending_.empty() || pending_.front().at > now) {
    return false;
  }
  for (; !pending_.empty() && pending_.front().at <= now; pending_.pop_front()) {
    semaphore_[pending_.front().semaphore] += pending_.front().amount;
  }
  for (size_t q = 0; q < queues_.size(); ++q) {
    due_[q] = queues_[q].blocked ? now : due_[q];
  }
  return true;
}

// Everything that the queue can do at `now`; commands are done in order.
bool TimedCore::run_queue(size_t index, uint64_t now) {
  Queue& queue = queues_[index];
  queue.blocked = false;
  for (bool any = false;; any = true) {
    uint64_t due = queue.flying == 0 ? kNever : done_of(queue.flights[queue.first]);
    if (due <= now) {
      finish(queue, now);
      continue;
    }
    uint64_t start = kNever;
    if (queue.count != 0 && queue.flying < queue.flights.size()) {
      start = std::max(queue.next_start, earliest(queue));
      queue.blocked = start <= now && !waits_met(*queue.waiting[queue.head].command);
    }
    if (start > now || queue.blocked) {
      due_[index] = queue.blocked ? due : std::min(due, start);
      return any;
    }
    begin(queue, now);
  }
}

uint64_t TimedCore::done_of(const Flight& flight) {
  if (flight.done_at != kNever) {
    return flight.done_at;
  }
  return flight.active() ? kNever : flight.Transfer::done_at() + flight.fixed_cycles;
}

void TimedCore::finish(Queue& queue, uint64_t now) {
  const Flight& flight = queue.flights[queue.first];
  queue.first = queue.first + 1 == queue.flights.size() ? 0 : queue.first + 1;
  --queue.flying;
  if (flight.command->remote && !flight.command->nop) {
    TimedCore& peer = fabric_.peer(flight.peer);
    peer.landing(-1);
    peer.wake_at(now);
  }
  for (size_t i = 0; i < 2; ++i) {
    const spec::Signal& s = flight.command->signal[i];
    if (s.valid()) {
      (s.remote() ? fabric_.peer(flight.signal_peer[i]) : *this).signal(now, s.sem, s.value);
    }
  }
}

// Takes what the command waits for if all of it is there.
bool TimedCore::waits_met(const TimedCommand& command) {
  for (const spec::Wait& w : command.wait) {
    if (w.valid() && semaphore_[w.sem] < w.value) {
      return false;
    }
  }
  for (const spec::Wait& w : command.wait) {
    semaphore_[w.sem] -= w.valid() && w.take() ? w.value : 0u;
  }
  return true;
}

uint64_t TimedCore::earliest(const Queue& queue) const {
  const Queued& head = queue.waiting[queue.head];
  uint64_t start = 0;
  for (size_t i = 0; head.command->accumulate && i < queue.flying; ++i) {
    const Flight& before = queue.flight_at(i);
    if (before.command->matmul) {
      start = std::max(
          start, spec::accumulate_start(head.command->out_extent.at(head.out), head.command->load,
                                        before.command->out_extent.at(before.out), before.done_at));
    }
  }
  return start;
}

void TimedCore::begin(Queue& queue, uint64_t now) {
  const Queued& head = queue.waiting[queue.head];
  const TimedCommand& command = *head.command;
  queue.head = queue.head + 1 == queue.waiting.size() ? 0 : queue.head + 1;
  --queue.count;
  Flight& flight = queue.flight_at(queue.flying++);
  flight.command = &command;
  flight.out = head.out;
  flight.peer = head.peers[0];
  flight.signal_peer = head.signal_peer;
  queue.next_start = now + 1;
  if (command.nop) {
    uint64_t way = 1;
    for (size_t i = 0; i < 2; ++i) {
      if (command.signal[i].valid() && command.signal[i].remote()) {
        way = std::max(way, fabric_.control_latency(setup_.index, head.signal_peer[i]));
      }
    }
    flight.done_at = now + way;
  } else if (command.transfer) {
    flight.done_at = kNever;
    flight.clear();
    flight.set_bytes(command.bytes);
    flight.fixed_cycles =
        fabric_.route(command, setup_.index, std::span(head.peers).first(head.peer_count), flight);
    if (command.remote) {
      fabric_.peer(head.peers[0]).landing(1);
    }
    if (command.writes_smem()) {
      scalars_.forget(head.out + command.out_extent.low, head.out + command.out_extent.high);
    }
    fabric_.start(flight);
  } else {
    queue.next_start = now + command.cycles.free_at;
    flight.done_at = now + command.cycles.done_at;
  }
  if (queue.flying > 1 && flight.done_at != kNever) {
    const Flight& last = queue.flight_at(queue.flying - 2);
    flight.done_at =
        last.done_at == kNever ? flight.done_at : std::max(flight.done_at, last.done_at);
  }
}

bool TimedCore::idle() const {
  return inbound_ == 0 && pending_.empty() &&
         std::ranges::all_of(queues_, [](const Queue& q) { return q.count == 0 && q.flying == 0; });
}

// True while what it stalls for has not come.
bool TimedCore::stalled(uint64_t now) {
  switch (stall_) {
    case Stall::kNone:
      return false;
    case Stall::kQueueFull:
      if (queues_[full_queue_].count == queues_[full_queue_].waiting.size()) {
        return true;
      }
      break;
    case Stall::kSemaphore: {
      const spec::ScalarInsn insn = program_.scalar(pc_);
      if (semaphore_[insn.rs1] < static_cast<uint32_t>(insn.imm)) {
        return true;
      }
      break;
    }
    case Stall::kHalt:
      if (!idle()) {
        return true;
      }
      break;
  }
  stall_ = Stall::kNone;
  time_ = std::max(time_, now);
  return false;
}

bool TimedCore::run_sequencer(uint64_t now) {
  if (ended_ || stalled(now)) {
    return false;
  }
  time_ = std::max(time_, now);
  const uint64_t before = steps_;
  while (!ended_ && !looped_ && !differs_ && pc_ < program_.words() && execute(now)) {
  }
  ended_ = ended_ || pc_ >= program_.words();
  return steps_ != before;
}

bool TimedCore::execute(uint64_t now) {
  if (program_.is_command(pc_)) {
    if (!charged_) {
      charged_ = true;
      time_ += static_cast<uint64_t>(board_.core.issue_cycles);
    }
    if (time_ > now || !issue(program_.command(pc_))) {
      return false;
    }
    charged_ = false;
    pc_ += program_.command_words(pc_);
    return true;
  }
  const spec::ScalarInsn insn = program_.scalar(pc_);
  switch (spec::scalar_class(static_cast<ScalarOp>(insn.op))) {
    case spec::ScalarClass::kArithmetic:
      scalars_.execute(insn);
      ++steps_;
      ++pc_;
      time_ += 1;
      return true;
    case spec::ScalarClass::kBranch:
      branch(insn);
      return true;
    default:
      return time_ <= now && execute_timed(insn, now);
  }
}

bool TimedCore::execute_timed(const spec::ScalarInsn& insn, uint64_t now) {
  switch (static_cast<ScalarOp>(insn.op)) {
    case ScalarOp::kHalt:
      stall_ = idle() ? Stall::kNone : Stall::kHalt;
      ended_ = stall_ == Stall::kNone;
      end_ = now;
      return false;
    case ScalarOp::kSwait:
      if (semaphore_[insn.rs1] < static_cast<uint32_t>(insn.imm)) {
        stall_ = Stall::kSemaphore;
        return false;
      }
      semaphore_[insn.rs1] -= static_cast<uint32_t>(insn.imm);
      time_ += 1;
      break;
    case ScalarOp::kSsignal:
      signal(now, insn.rs1, static_cast<uint32_t>(insn.imm));
      time_ += 1;
      break;
    case ScalarOp::kHcall:  // the host's time is nobody's estimate
      time_ += 1;
      break;
    case ScalarOp::kMarkb:
    case ScalarOp::kMarke:
      break;
    case ScalarOp::kLds32:
    case ScalarOp::kLds64:
      time_ += static_cast<uint64_t>(board_.core.smem_load_cycles) - 1;
      [[fallthrough]];
    default:
      differs_ |= !scalars_.execute(insn);
      time_ += 1;
      break;
  }
  ++steps_;
  ++pc_;
  return true;
}

bool TimedCore::issue(const TimedCommand& command) {
  Queue& queue = queues_[command.queue];
  if (queue.count == queue.waiting.size()) {
    stall_ = Stall::kQueueFull;
    full_queue_ = command.queue;
    return false;
  }
  if (queue.count == 0) {
    due_[command.queue] = 0;
  }
  Queued& slot = queue.waiting_at(queue.count++);
  slot.command = &command;
  slot.out = command.out.offset + static_cast<int64_t>(scalars_.value(command.out.reg));
  ++commands_;
  ++steps_;
  work_ += command.work;
  if (command.queue != static_cast<uint8_t>(spec::Queue::kDmaRemote)) {
    return true;
  }
  slot.peer_count = 0;
  for (uint32_t replica = 0; replica < std::min<uint32_t>(std::max(setup_.replicas, 1u), 2);
       ++replica) {
    slot.peers[slot.peer_count++] =
        static_cast<uint32_t>(scalars_.value(command.peer_reg, replica));
  }
  way_.push_back(slot.peers[0]);
  for (size_t i = 0; i < 2; ++i) {
    slot.signal_peer[i] = static_cast<uint32_t>(scalars_.value(command.signal[i].peer_reg));
  }
  differs_ |= !command.nop && setup_.replicas > 1 && !fabric_.symmetric(scalars_, command.peer_reg);
  return true;
}

}  // namespace tpu::compiler
