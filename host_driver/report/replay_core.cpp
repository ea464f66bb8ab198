// Queues, semaphores and items of a core, in the order of the model.
#include "report/replay_core.hpp"

#include <algorithm>
#include <cmath>

#include "board/board_loader.hpp"

namespace tpu::driver {

using spec::RecordedCommand, spec::SequencerItem;

namespace {

bool is_dma(const RecordedCommand& command) {
  const spec::Engine engine = spec::kQueues[command.queue].engine;
  return engine != spec::Engine::kMxu && engine != spec::Engine::kVpu &&
         engine != spec::Engine::kXlu;
}

}  // namespace

ReplayCore::ReplayCore(const spec::StepRecord& record, uint32_t index, const CostChange& change,
                       const Offsets& offsets, ReplayFabric& fabric)
    : record_(record.cores[index]),
      index_(index),
      change_(change),
      offsets_(offsets),
      fabric_(fabric),
      own_done_(record_.commands.size()),
      wake_(static_cast<uint64_t>(static_cast<int64_t>(record_.begin) + offsets.begin)) {
  for (uint32_t i = 0; i < record_.commands.size(); ++i) {
    queues_[record_.commands[i].queue].commands.push_back(i);
  }
  for (size_t q = 0; q < queues_.size(); ++q) {
    queues_[q].depth = static_cast<size_t>(change.board.core.queue_depth);
    queues_[q].in_flight = spec::commands_in_flight(change.board, q);
    queues_[q].flows.resize(queues_[q].in_flight);
    for (Flow& flow : queues_[q].flows) {
      flow.core = index;
    }
  }
  timing_.begin = wake_;
  timing_.commands.resize(record_.commands.size());
  timing_.items.resize(record_.items.size());
  next_item(wake_);
}

bool ReplayCore::step(uint64_t now) {
  bool any = false;
  for (bool again = true; again;) {
    any |= apply_signals(now);
    for (Queue& queue : queues_) {
      any |= queue.issued != queue.done && run_queue(queue, now);
    }
    const bool sequenced = run_sequencer(now);
    any |= sequenced;
    again = sequenced || (!pending_.empty() && pending_.front().at <= now);
  }
  wake_ = next_due(now);
  return any;
}

uint64_t ReplayCore::next_due(uint64_t now) {
  uint64_t next = pending_.empty() ? kNever : pending_.front().at;
  for (Queue& queue : queues_) {
    if (queue.started != queue.done) {
      next = std::min(next, end_of(queue, queue.done));
    }
    if (queue.issued != queue.started && queue.started - queue.done < queue.in_flight) {
      const uint64_t start = std::max(queue.next_start, held_until(queue));
      next = start > now ? std::min(next, start) : next;  // else it waits for a semaphore
    }
  }
  if (!ended() && timing_.items[item_].ready > now) {
    next = std::min(next, timing_.items[item_].ready);
  }
  return next;
}

void ReplayCore::signal(uint64_t now, uint8_t semaphore, uint32_t amount, const Cause& from) {
  const uint64_t at = now + static_cast<uint64_t>(change_.board.core.semaphore_cycles);
  pending_.push_back({at, amount, from, semaphore});
  wake_at(at);
}

bool ReplayCore::apply_signals(uint64_t now) {
  bool any = false;
  for (; !pending_.empty() && pending_.front().at <= now; pending_.pop_front()) {
    const Pending& next = pending_.front();
    Semaphore& semaphore = semaphores_[next.semaphore];
    semaphore.value += next.amount;
    semaphore.changed = now;
    semaphore.from = next.from;
    last_event_ = now;
    last_cause_ = next.from;
    any = true;
  }
  return any;
}

void ReplayCore::landing(uint64_t now, int count, const Cause& from) {
  inbound_ += count;
  if (inbound_ == 0) {
    last_event_ = now;
    last_cause_ = from;
    wake_at(now);
  }
}

bool ReplayCore::run_queue(Queue& queue, uint64_t now) {
  bool any = false;
  while (finish(queue, now) || start(queue, now)) {
    any = true;
  }
  return any;
}

// kNever while its bytes pass.
uint64_t ReplayCore::end_of(Queue& queue, size_t number) const {
  const uint32_t command = queue.commands[number];
  if (own_done_[command] != kNever) {
    return std::max(own_done_[command], queue.last_done);
  }
  const Flow& flow = queue.flow(number);
  return flow.active() ? kNever : std::max(flow.done_at() + flow.fixed_cycles, queue.last_done);
}

// Commands are done in order.
bool ReplayCore::finish(Queue& queue, uint64_t now) {
  if (queue.done == queue.started || end_of(queue, queue.done) > now) {
    return false;
  }
  const uint32_t number = queue.commands[queue.done];
  const RecordedCommand& command = record_.commands[number];
  CommandTimes& times = timing_.commands[number];
  const Cause from = done_cause(number);
  if (command.transfers()) {
    const Flow& flow = queue.flow(queue.done);
    times.flow_end = flow.done_at();
    own_done_[number] = flow.done_at() + flow.fixed_cycles;
  }
  times.behind = own_done_[number] < now;
  times.done = now;
  queue.last_done = now;
  ++queue.done;
  if (command.transfers() && command.remote()) {
    fabric_.landing(now, command.to_core, -1, from);
  }
  for (const spec::SemaphoreUse& use : command.signal) {
    if (use.amount != 0) {
      fabric_.signal(now, use, from);
    }
  }
  last_event_ = now;
  last_cause_ = from;
  return true;
}

bool ReplayCore::waits_met(const RecordedCommand& command) const {
  return std::ranges::all_of(command.wait, [&](const spec::SemaphoreUse& use) {
    return semaphores_[use.semaphore].value >= use.amount;
  });
}

// A matmul onto a result in flight keeps its distance from the one in front.
uint64_t ReplayCore::held_until(const Queue& queue) const {
  const uint32_t number = queue.commands[queue.started];
  const RecordedCommand& command = record_.commands[number];
  if (command.held == 0 || queue.started == 0) {
    return 0;
  }
  const uint32_t front = queue.commands[queue.started - 1];
  const uint64_t start = record_.commands[front].start;
  const uint64_t distance = command.held > start ? command.held - start : 0;
  return timing_.commands[front].start + scaled(record_.commands[front], distance);
}

uint64_t ReplayCore::scaled(const RecordedCommand& command, uint64_t cycles) const {
  double factor = command.op_id == change_.op ? change_.op_factor : 1;
  switch (spec::kQueues[command.queue].engine) {
    case spec::Engine::kMxu:
      factor *= change_.mxu;
      break;
    case spec::Engine::kVpu:
      factor *= change_.vpu;
      break;
    case spec::Engine::kXlu:
      factor *= change_.xlu;
      break;
    default:
      break;
  }
  return factor == 1 ? cycles
                     : static_cast<uint64_t>(std::llround(static_cast<double>(cycles) * factor));
}

bool ReplayCore::start(Queue& queue, uint64_t now) {
  if (queue.issued == queue.started || now < queue.next_start ||
      queue.started - queue.done == queue.in_flight || now < held_until(queue)) {
    return false;
  }
  const uint32_t number = queue.commands[queue.started];
  const RecordedCommand& command = record_.commands[number];
  if (!waits_met(command)) {
    return false;
  }
  for (const spec::SemaphoreUse& use : command.wait) {
    semaphores_[use.semaphore].value -= use.takes != 0 ? use.amount : 0;
  }
  timing_.commands[number].start = now;
  timing_.commands[number].start_cause = cause_of(queue, number, now);
  begin(queue, number, now);
  ++queue.started;
  return true;
}

// The last of what it needed.
Cause ReplayCore::cause_of(const Queue& queue, uint32_t command, uint64_t now) const {
  for (const spec::SemaphoreUse& use : record_.commands[command].wait) {
    if (use.amount != 0 && semaphores_[use.semaphore].changed == now) {
      return semaphores_[use.semaphore].from;
    }
  }
  if (queue.started != 0) {
    const uint32_t front = queue.commands[queue.started - 1];
    if (now == std::max(queue.next_start, held_until(queue))) {
      return {Cause::Kind::kQueue, index_, front};
    }
  }
  if (queue.started >= queue.in_flight) {
    const uint32_t room = queue.commands[queue.started - queue.in_flight];
    if (timing_.commands[room].done == now) {
      return done_cause(room);
    }
  }
  return {Cause::Kind::kIssue, index_, command};
}

void ReplayCore::begin(Queue& queue, uint32_t number, uint64_t now) {
  const RecordedCommand& command = record_.commands[number];
  queue.next_start = now + 1;
  if (command.transfers()) {
    Flow& flow = queue.flow(queue.started);
    const double factor = command.op_id == change_.op ? change_.op_factor : 1;
    flow.clear();
    flow.set_bytes(
        static_cast<uint64_t>(std::llround(static_cast<double>(command.bytes) * factor)));
    flow.fixed_cycles = static_cast<uint64_t>(
        std::llround(static_cast<double>(fabric_.route(index_, command, flow)) * factor));
    own_done_[number] = kNever;
    if (command.remote()) {
      fabric_.landing(now, command.to_core, 1, {});
    }
    fabric_.start(flow);
  } else if (!command.works() || is_dma(command)) {
    own_done_[number] = now + fabric_.control_cycles(index_, command);
  } else {
    queue.next_start =
        now + std::max<uint64_t>(1, scaled(command, command.free_at - command.start));
    own_done_[number] = now + std::max<uint64_t>(1, scaled(command, command.done - command.start));
  }
}

bool ReplayCore::idle() const {
  return inbound_ == 0 && pending_.empty() && std::ranges::all_of(queues_, [](const Queue& queue) {
           return queue.issued == queue.done;
         });
}

// Cycles that the sequencer needs to get to an item from the one before.
uint64_t ReplayCore::least_gap(const SequencerItem& item, size_t index) const {
  const uint64_t before = index == 0 ? record_.begin : record_.items[index - 1].went;
  uint64_t gap = item.arrived - before;
  if (item.kind == SequencerItem::Kind::kIssue) {
    gap = static_cast<uint64_t>(std::max<int64_t>(0, static_cast<int64_t>(gap) + offsets_.issue));
  }
  gap = change_.sequencer == 1
            ? gap
            : static_cast<uint64_t>(std::llround(static_cast<double>(gap) * change_.sequencer));
  return gap + (item.kind == SequencerItem::Kind::kHost ? item.went - item.arrived : 0);
}

void ReplayCore::next_item(uint64_t now) {
  if (!ended()) {
    timing_.items[item_].ready = now + least_gap(record_.items[item_], item_);
  }
}

// False: it cannot go on; `cause`: what it would have waited for last.
bool ReplayCore::go(const SequencerItem& item, uint64_t now, Cause& cause) {
  using Kind = SequencerItem::Kind;
  switch (item.kind) {
    case Kind::kIssue: {
      Queue& queue = queues_[record_.commands[item.index].queue];
      if (queue.full()) {
        return false;
      }
      if (queue.started != 0) {
        cause = {Cause::Kind::kStart, index_, queue.commands[queue.started - 1]};
      }
      ++queue.issued;
      return true;
    }
    case Kind::kTake:
      if (semaphores_[item.index].value < item.amount) {
        return false;
      }
      semaphores_[item.index].value -= item.amount;
      cause = semaphores_[item.index].from;
      return true;
    case Kind::kSignal:
      signal(now, static_cast<uint8_t>(item.index), item.amount,
             {Cause::Kind::kItem, index_, static_cast<uint32_t>(item_)});
      return true;
    case Kind::kHost:
      return true;
    case Kind::kHalt:
      cause = last_cause_;
      return idle();
  }
  return false;
}

bool ReplayCore::run_sequencer(uint64_t now) {
  bool any = false;
  while (!ended() && timing_.items[item_].ready <= now) {
    ItemTimes& times = timing_.items[item_];
    if (!go(record_.items[item_], now, times.cause)) {
      break;
    }
    times.went = now;
    ++item_;
    next_item(now);
    any = true;
  }
  if (any && ended()) {
    timing_.end = now;
  }
  return any;
}

}  // namespace tpu::driver
