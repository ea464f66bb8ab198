// Queues, semaphores and items of a core, in the order of the model.
#include "analysis/replay_core.hpp"

#include <bit>
#include <cmath>

#include "board/board_loader.hpp"

namespace tpu::driver {
namespace {

bool is_dma(size_t queue) {
  const spec::Engine engine = spec::kQueues[queue].engine;
  return engine == spec::Engine::kDmaIn || engine == spec::Engine::kDmaOut ||
         engine == spec::Engine::kDmaRemote;
}

double engine_factor(const CostChange& change, size_t queue) {
  switch (spec::kQueues[queue].engine) {
    case spec::Engine::kMxu:
      return change.mxu;
    case spec::Engine::kVpu:
      return change.vpu;
    case spec::Engine::kXlu:
      return change.xlu;
    default:
      return 1;
  }
}

uint64_t times(uint64_t cycles, double factor) {
  return factor == 1 ? cycles
                     : static_cast<uint64_t>(std::llround(static_cast<double>(cycles) * factor));
}

// Cycles from `now` on; what is over by now counts as one.
uint64_t left_of(uint64_t at, uint64_t now) { return at - std::min(at, now); }

Cause done_cause(uint32_t core, uint32_t command) { return {Cause::Kind::kDone, core, command}; }

}  // namespace

template <bool kTraced>
ReplayCore<kTraced>::ReplayCore(const ReplayProgram& program, uint32_t index,
                                const CostChange& change, const Offsets& offsets,
                                ReplayFabric& fabric, ReplayPulse& pulse)
    : core_(program.cores[index]),
      stream_(*core_.stream),
      index_(index),
      change_(change),
      offsets_(offsets),
      fabric_(fabric),
      wake_(pulse.wake[index]),
      progress_(pulse.progress),
      depth_(static_cast<size_t>(change.board.core.queue_depth)),
      begin_(static_cast<uint64_t>(static_cast<int64_t>(core_.begin) + offsets.begin)) {
  size_t slots = 0;
  for (size_t q = 0; q < in_flight_.size(); ++q) {
    in_flight_[q] = spec::commands_in_flight(change.board, q);
    const size_t ring = std::bit_ceil(in_flight_[q]);
    mask_[q] = ring - 1;
    first_slot_[q] = slots;
    slots += ring;
    if (is_dma(q)) {
      first_flow_[q] = flow_count_;
      flow_count_ += ring;
    }
    engine_factor_[q] = engine_factor(change, q);
  }
  state_.ends.resize(slots);
  wake_ = begin_;
  if constexpr (kTraced) {
    changes_.resize(state_.semaphores.size());
    timing_.begin = begin_;
    timing_.commands.resize(core_.commands);
    timing_.items.resize(stream_.items.size());
  }
  next_item(begin_);
}

template <bool kTraced>
void ReplayCore<kTraced>::use_flows(ReplayFlow* flows) {
  flows_ = flows;
  for (size_t q = 0; q < in_flight_.size(); ++q) {
    for (size_t i = 0; is_dma(q) && i <= mask_[q]; ++i) {
      flows[flow(q, i)].core = index_;
      flows[flow(q, i)].queue = static_cast<uint32_t>(q);
    }
  }
}

template <bool kTraced>
void ReplayCore<kTraced>::copy(const ReplayCore& other) {
  state_ = other.state_;
  wake_ = other.wake_;
  for (size_t i = 0; i < flow_count_; ++i) {
    flows_[i] = other.flows_[i];
    flows_[i].core = index_;
  }
}

template <bool kTraced>
CoreTiming ReplayCore<kTraced>::take() {
  timing_.end = state_.end;
  return std::move(timing_);
}

template <bool kTraced>
bool ReplayCore<kTraced>::step(uint64_t now) {
  bool any = false;
  for (bool again = true; again;) {
    const bool signalled = apply_signals(now);
    any |= signalled;
    for (uint32_t left = state_.open; left != 0; left &= left - 1) {
      const auto q = static_cast<size_t>(std::countr_zero(left));
      if (signalled || state_.queues[q].due <= now) {
        any |= run_queue(q, now);
      }
    }
    const bool sequenced = run_sequencer(now);
    any |= sequenced;
    again = sequenced || (is_pending() && state_.pending[state_.applied].at <= now);
  }
  wake_ = next_due(now);
  return any;
}

template <bool kTraced>
uint64_t ReplayCore<kTraced>::next_due(uint64_t now) const {
  uint64_t next = is_pending() ? state_.pending[state_.applied].at : kNever;
  for (uint32_t left = state_.open; left != 0; left &= left - 1) {
    next = std::min(next, state_.queues[static_cast<size_t>(std::countr_zero(left))].due);
  }
  return !ended() && state_.ready > now ? std::min(next, state_.ready) : next;
}

template <bool kTraced>
void ReplayCore<kTraced>::signal(uint64_t now, uint8_t semaphore, uint32_t amount,
                                 const Cause& from) {
  const uint64_t at = now + static_cast<uint64_t>(change_.board.core.semaphore_cycles);
  state_.pending.push_back({at, amount, semaphore, from});
  wake_at(at);
}

template <bool kTraced>
bool ReplayCore<kTraced>::apply_signals(uint64_t now) {
  bool any = false;
  for (; is_pending() && state_.pending[state_.applied].at <= now; ++state_.applied) {
    const ReplayState::Pending& next = state_.pending[state_.applied];
    state_.semaphores[next.semaphore] += next.amount;
    if constexpr (kTraced) {
      changes_[next.semaphore] = {now, next.from};
      last_cause_ = next.from;
    }
    any = true;
  }
  if (any && !is_pending()) {
    state_.pending.clear();
    state_.applied = 0;
  }
  return any;
}

template <bool kTraced>
void ReplayCore<kTraced>::landing(uint64_t now, int count, const Cause& from) {
  state_.inbound += count;
  if (state_.inbound == 0) {
    last_cause_ = from;
    wake_at(now);
  }
}

template <bool kTraced>
bool ReplayCore<kTraced>::run_queue(size_t q, uint64_t now) {
  bool any = false;
  while (finish(q, now) || start(q, now)) {
    any = true;
  }
  state_.queues[q].due = due(q, now);
  if (state_.queues[q].issued == state_.queues[q].done) {
    state_.open &= ~(1U << q);
  }
  return any;
}

// Of what does not wait for a semaphore.
template <bool kTraced>
uint64_t ReplayCore<kTraced>::due(size_t q, uint64_t now) const {
  const Queue& queue = state_.queues[q];
  uint64_t next = queue.started != queue.done ? end_of(q, queue.done) : kNever;
  if (queue.issued != queue.started && queue.started - queue.done < in_flight_[q]) {
    const uint64_t start = std::max(queue.next_start, queue.held);
    next = start > now ? std::min(next, start) : next;
  }
  return next;
}

// kNever while its bytes pass.
template <bool kTraced>
uint64_t ReplayCore<kTraced>::end_of(size_t q, size_t number) const {
  const uint64_t last = state_.queues[q].last_done;
  const uint64_t end = state_.ends[slot(q, number)];
  if (end != kNever) {
    return std::max(end, last);
  }
  const ReplayFlow& transfer = flows_[flow(q, number)];
  return transfer.active() ? kNever : std::max(transfer.done_at() + transfer.fixed_cycles, last);
}

// Commands are done in order.
template <bool kTraced>
bool ReplayCore<kTraced>::finish(size_t q, uint64_t now) {
  Queue& queue = state_.queues[q];
  if (queue.done == queue.started || end_of(q, queue.done) > now) {
    return false;
  }
  const ReplayCommand& command = core_.command(q, queue.done);
  const Cause from = done_cause(index_, command.number);
  if constexpr (kTraced) {
    CommandTimes& at = timing_.commands[command.number];
    uint64_t own = state_.ends[slot(q, queue.done)];
    if (command.transfers) {
      const ReplayFlow& transfer = flows_[flow(q, queue.done)];
      at.flow_end = transfer.done_at();
      own = transfer.done_at() + transfer.fixed_cycles;
    }
    at.behind = own < now;
    at.done = now;
    last_cause_ = from;
  }
  queue.last_done = now;
  ++queue.done;
  progress_ += weight_;
  if (command.transfers && command.remote) {
    fabric_.landing(now, core_.reached(command.to_core), -1, from);
  }
  for (const spec::SemaphoreUse& use : command.signal) {
    if (use.amount != 0) {
      fabric_.signal(now, core_.reached(use.core), use, from);
    }
  }
  return true;
}

template <bool kTraced>
bool ReplayCore<kTraced>::waits_met(const ReplayCommand& command) const {
  return std::ranges::all_of(command.wait, [&](const spec::SemaphoreUse& use) {
    return state_.semaphores[use.semaphore] >= use.amount;
  });
}

template <bool kTraced>
uint64_t ReplayCore<kTraced>::scaled(size_t q, const ReplayCommand& command,
                                     uint64_t cycles) const {
  return times(cycles, factor_of(command) * engine_factor_[q]);
}

template <bool kTraced>
bool ReplayCore<kTraced>::start(size_t q, uint64_t now) {
  Queue& queue = state_.queues[q];
  if (queue.issued == queue.started || now < queue.next_start || now < queue.held ||
      queue.started - queue.done == in_flight_[q]) {
    return false;
  }
  const ReplayCommand& command = core_.command(q, queue.started);
  if (!waits_met(command)) {
    return false;
  }
  for (const spec::SemaphoreUse& use : command.wait) {
    state_.semaphores[use.semaphore] -= use.takes != 0 ? use.amount : 0;
  }
  if constexpr (kTraced) {
    timing_.commands[command.number].start = now;
    timing_.commands[command.number].start_cause = cause_of(q, command, now);
  }
  constexpr size_t kAhead = 3;  // of one of many queues: the host's caches do not foresee it
  const std::vector<ReplayCommand>& commands = stream_.queues[q];
  __builtin_prefetch(&commands[std::min(queue.started + kAhead, commands.size() - 1)]);
  begin(q, command, now);
  ++queue.started;
  progress_ += weight_;
  // A matmul onto a result in flight keeps its distance from the one in front.
  queue.held = 0;
  if (queue.started < commands.size()) {
    const uint64_t distance = core_.command(q, queue.started).held_after;
    queue.held = distance == 0 ? 0 : now + scaled(q, command, distance);
  }
  return true;
}

// The last of what it needed.
template <bool kTraced>
Cause ReplayCore<kTraced>::cause_of(size_t q, const ReplayCommand& command, uint64_t now) const {
  const Queue& queue = state_.queues[q];
  for (const spec::SemaphoreUse& use : command.wait) {
    if (use.amount != 0 && changes_[use.semaphore].at == now) {
      return changes_[use.semaphore].from;
    }
  }
  if (queue.started != 0 && now == std::max(queue.next_start, queue.held)) {
    return {Cause::Kind::kQueue, index_, core_.command(q, queue.started - 1).number};
  }
  if (queue.started >= in_flight_[q]) {
    const uint32_t room = core_.command(q, queue.started - in_flight_[q]).number;
    if (timing_.commands[room].done == now) {
      return done_cause(index_, room);
    }
  }
  return {Cause::Kind::kIssue, index_, command.number};
}

template <bool kTraced>
void ReplayCore<kTraced>::begin(size_t q, const ReplayCommand& command, uint64_t now) {
  Queue& queue = state_.queues[q];
  uint64_t& end = state_.ends[slot(q, queue.started)];
  queue.next_start = now + 1;
  if (command.transfers) {
    ReplayFlow& transfer = flows_[flow(q, queue.started)];
    const double factor = factor_of(command);
    transfer.clear();
    transfer.set_bytes(times(command.size, factor));
    transfer.index = queue.started;
    transfer.fixed_cycles = times(fabric_.route(command, transfer), factor);
    end = kNever;
    if (command.remote) {
      fabric_.landing(now, core_.reached(command.to_core), 1, {});
    }
    fabric_.start(transfer);
  } else if (!command.timed) {
    end = now + fabric_.control_cycles(index_, command);
  } else {
    queue.next_start = now + std::max<uint64_t>(1, scaled(q, command, command.free_after));
    end = now + std::max<uint64_t>(1, scaled(q, command, command.size));
  }
}

template <bool kTraced>
uint64_t ReplayCore<kTraced>::least_gap(const ReplayItem& item) const {
  uint64_t gap = item.gap;
  if (item.kind == ReplayItem::Kind::kIssue) {
    gap = static_cast<uint64_t>(std::max<int64_t>(0, static_cast<int64_t>(gap) + offsets_.issue));
  }
  const uint64_t waits = item.kind == ReplayItem::Kind::kHost ? stream_.host_waits[item.amount] : 0;
  return times(gap, change_.sequencer) + waits;
}

template <bool kTraced>
void ReplayCore<kTraced>::next_item(uint64_t now) {
  if (!ended()) {
    state_.ready = now + least_gap(stream_.items[state_.item]);
    if constexpr (kTraced) {
      timing_.items[state_.item].ready = state_.ready;
    }
  }
}

// False: it cannot go on; `cause`: what it would have waited for last.
template <bool kTraced>
bool ReplayCore<kTraced>::go(const ReplayItem& item, uint64_t now, Cause& cause) {
  using Kind = ReplayItem::Kind;
  switch (item.kind) {
    case Kind::kIssue: {
      Queue& queue = state_.queues[item.index];
      if (full(queue) || (item.apart && !fabric_.may_issue(item.index, queue.issued))) {
        return false;
      }
      if (queue.started != 0) {
        cause = {Cause::Kind::kStart, index_, core_.command(item.index, queue.started - 1).number};
      }
      ++queue.issued;
      queue.due = now;
      state_.open |= 1U << item.index;
      return true;
    }
    case Kind::kTake:
      if (state_.semaphores[item.index] < item.amount) {
        return false;
      }
      state_.semaphores[item.index] -= item.amount;
      if constexpr (kTraced) {
        cause = changes_[item.index].from;
      }
      return true;
    case Kind::kSignal:
      signal(now, item.index, item.amount,
             {Cause::Kind::kItem, index_, static_cast<uint32_t>(state_.item)});
      return true;
    case Kind::kHost:
      return true;
    case Kind::kHalt:
      cause = last_cause_;
      return state_.inbound == 0 && !is_pending() && state_.open == 0;
  }
  return false;
}

template <bool kTraced>
bool ReplayCore<kTraced>::run_sequencer(uint64_t now) {
  bool any = false;
  while (!ended() && state_.ready <= now) {
    Cause cause = kTraced ? timing_.items[state_.item].cause : Cause();
    const bool went = go(stream_.items[state_.item], now, cause);
    if constexpr (kTraced) {
      timing_.items[state_.item].cause = cause;
    }
    if (!went) {
      break;
    }
    if constexpr (kTraced) {
      timing_.items[state_.item].went = now;
    }
    ++state_.item;
    progress_ += weight_;
    next_item(now);
    any = true;
  }
  if (any && ended()) {
    state_.end = now;
  }
  return any;
}

template <bool kTraced>
bool ReplayCore<kTraced>::same_queue(size_t q, uint64_t now, const ReplayState& other,
                                     uint64_t other_now, const ReplayFlow* other_flows) const {
  const Queue& mine = state_.queues[q];
  const Queue& its = other.queues[q];
  if (mine.issued != its.issued || mine.started != its.started || mine.done != its.done ||
      left_of(std::max(mine.next_start, mine.held), now) !=
          left_of(std::max(its.next_start, its.held), other_now)) {
    return false;
  }
  for (size_t number = mine.done; number != mine.started; ++number) {
    const size_t at = slot(q, number);
    if (state_.ends[at] != kNever) {
      if (other.ends[at] == kNever ||
          left_of(state_.ends[at], now) != left_of(other.ends[at], other_now)) {
        return false;
      }
      continue;
    }
    const ReplayFlow& my_flow = flows_[flow(q, number)];
    const ReplayFlow& its_flow = other_flows[flow(q, number)];
    if (other.ends[at] != kNever || my_flow.active() != its_flow.active()) {
      return false;
    }
    const bool same = my_flow.active()
                          ? my_flow.fixed_cycles == its_flow.fixed_cycles &&
                                my_flow.rate() == its_flow.rate() &&
                                my_flow.left_at(now) == its_flow.left_at(other_now)
                          : left_of(my_flow.done_at() + my_flow.fixed_cycles, now) ==
                                left_of(its_flow.done_at() + its_flow.fixed_cycles, other_now);
    if (!same) {
      return false;
    }
  }
  return true;
}

template <bool kTraced>
bool ReplayCore<kTraced>::same(uint64_t now, const ReplayState& other, uint64_t other_now,
                               const ReplayFlow* other_flows) const {
  if (state_.item != other.item || state_.open != other.open || state_.inbound != other.inbound ||
      state_.semaphores != other.semaphores ||
      (!ended() && left_of(state_.ready, now) != left_of(other.ready, other_now))) {
    return false;
  }
  const auto alike = [&](const ReplayState::Pending& mine, const ReplayState::Pending& its) {
    return mine.at - now == its.at - other_now && mine.amount == its.amount &&
           mine.semaphore == its.semaphore;
  };
  if (!std::equal(state_.pending.begin() + static_cast<ptrdiff_t>(state_.applied),
                  state_.pending.end(),
                  other.pending.begin() + static_cast<ptrdiff_t>(other.applied),
                  other.pending.end(), alike)) {
    return false;
  }
  for (size_t q = 0; q < in_flight_.size(); ++q) {
    if (!same_queue(q, now, other, other_now, other_flows)) {
      return false;
    }
  }
  return true;
}

template class ReplayCore<true>;
template class ReplayCore<false>;

}  // namespace tpu::driver
