// Life of a command in an engine.
#include "core/engine.hpp"

#include <algorithm>

#include "board/board_loader.hpp"
#include "core/operand_check.hpp"
#include "core/schedule_delay.hpp"
#include "kernel/cycles.hpp"
#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {
namespace {

uint64_t flops_of(const DecodedCommand& command) {
  const auto* matmul = std::get_if<MatmulPlan>(&command.plan);
  return matmul != nullptr ? matmul->flops : 0;
}

}  // namespace

Engine::Engine(sc_core::sc_module_name name, spec::Queue queue, const EngineContext& context)
    : sc_module(name),
      context_(context),
      unit_(static_cast<int>(queue)),
      queue_(static_cast<size_t>(context.params.core.queue_depth)),
      flights_(spec::commands_in_flight(context.params, static_cast<size_t>(queue))),
      activity_(context.activity) {
  for (size_t i = 0; i < flights_.size(); ++i) {
    flights_[i].index = i;
  }
  SC_METHOD(run_method);
  sensitive << wake_event_;
  dont_initialize();
}

void Engine::push() {
  ++queue_count_;
  if (queue_count_ == 1) {
    head_waits_ = false;
    wake_event_.notify(sc_core::SC_ZERO_TIME);
  }
}

void Engine::stop() {
  stopped_ = true;
  queue_count_ = 0;
  head_waits_ = false;
  held_until_ = 0;
  wake_event_.notify(sc_core::SC_ZERO_TIME);
}

QueueHead Engine::head() const {
  if (flight_count_ != 0) {
    return {flights_[flight_head_].queued.command, false, 0, 0};
  }
  if (queue_count_ != 0) {
    return {queue_[queue_head_].command, head_waits_, head_semaphore_, head_wanted_};
  }
  return {};
}

void Engine::run_method() {
  const uint64_t now = now_cycles();
  while (finish_due(now) || start_head(now)) {
  }
  update_activity(now);
  const uint64_t wake = next_wake(now);
  if (wake != kNever) {
    next_trigger(from_cycles(wake - now), wake_event_);
  } else {
    next_trigger(wake_event_);
  }
}

// Finishes the oldest started command if its time has come. Commands are done in order.
bool Engine::finish_due(uint64_t now) {
  if (flight_count_ == 0) {
    return false;
  }
  Flight& flight = flights_[flight_head_];
  settle(flight);
  if (flight.done_at > now) {
    return false;
  }
  flight.done_at = now;
  const bool has_work =
      !flight.queued.command->empty && flight.queued.command->opcode != spec::Opcode::kNop;
  if (has_work) {
    finish_command(flight);
    context_.copies.release(flight.uses);
  }
  flight_head_ = (flight_head_ + 1) % flights_.size();
  --flight_count_;
  if (!stopped_) {
    send_signals(flight);
  }
  probe().done(static_cast<uint32_t>(unit_), now, has_work, [&] {
    return DoneEvent{.cycle = now,
                     .source = source(flight.queued),
                     .issued = flight.queued.issued_at,
                     .start = flight.start,
                     .free_at = flight.free_at};
  });
  notify_progress();
  return true;
}

bool Engine::start_head(uint64_t now) {
  if (queue_count_ == 0 || stopped_ || now < next_start_ || flight_count_ == flights_.size()) {
    return false;
  }
  const QueuedCommand& queued = queue_[queue_head_];
  const uint64_t earliest = earliest_start(queued);
  if (now < earliest || !waits_met(queued)) {
    return false;
  }
  Flight& flight = flights_[(flight_head_ + flight_count_) % flights_.size()];
  flight.queued = queued;
  begin(flight, now, earliest);
  return !stopped_;
}

// All waits hold: takes what they take. Else registers for the first that does not.
bool Engine::waits_met(const QueuedCommand& queued) {
  const auto& waits = queued.command->wait;
  const bool waited = head_waits_;
  head_waits_ = false;
  if (queued.command->bad != 0) {
    return true;  // faults at its start
  }
  for (const spec::Wait& wait : waits) {
    if (!wait.valid()) {
      continue;
    }
    if (!sem_port->claim(wait.sem, unit_)) {
      FaultInfo info = fault_of(*queued.command, TPU_FAULT_SEM_TWO_WAITERS, unit_);
      info.semaphore = wait.sem;
      info.wanted = wait.value;
      info.value = sem_port->value(wait.sem);
      fault_port->raise(info, two_waiters_text(wait.sem, sem_port->waiter(wait.sem), unit_));
      return false;
    }
    if (sem_port->value(wait.sem) < wait.value) {
      begin_wait(queued, wait, waited);
      sem_port->wake_when(wait.sem, wait.value, wake_event_);
      return false;
    }
  }
  if (waited) {
    end_wait(queued);
  }
  if (context_.schedule_seed != 0 && held(queued)) {
    return false;
  }
  for (const spec::Wait& wait : waits) {
    if (!wait.valid()) {
      continue;
    }
    probe().take([&] {
      return TakeEvent{.cycle = now_cycles(),
                       .source = source(queued),
                       .semaphore = wait.sem,
                       .threshold = wait.value,
                       .takes = wait.take()};
    });
    if (wait.take()) {
      sem_port->take(wait.sem, wait.value);
    }
  }
  return true;
}

// A seeded schedule: the head, whose waits are met, starts later than it could.
bool Engine::held(const QueuedCommand& queued) {
  const uint64_t now = now_cycles();
  if (held_sequence_ != queued.sequence) {
    held_sequence_ = queued.sequence;
    const ScheduleDelay delay{.seed = context_.schedule_seed + context_.launch.job_step,
                              .core = context_.core_id,
                              .queue = static_cast<uint32_t>(unit_),
                              .index = queued.sequence - context_.launch.issued_before};
    held_until_ = now + delay.cycles();
  }
  return now < held_until_;
}

// `waited`: it has waited before, maybe for another semaphore.
void Engine::begin_wait(const QueuedCommand& queued, const spec::Wait& wait, bool waited) {
  const bool goes_on = waited && head_semaphore_ == wait.sem;
  if (waited && !goes_on) {
    end_wait(queued);
  }
  head_waits_ = true;
  head_semaphore_ = wait.sem;
  head_wanted_ = wait.value;
  if (!goes_on) {
    head_waits_since_ = now_cycles();
    probe().wait(0, [&] {
      return WaitEvent{.cycle = head_waits_since_,
                       .source = source(queued),
                       .what = WaitEvent::For::kSemaphore,
                       .index = wait.sem,
                       .wanted = wait.value,
                       .value = sem_port->value(wait.sem),
                       .since = head_waits_since_,
                       .begin = true};
    });
  }
}

void Engine::end_wait(const QueuedCommand& queued) {
  probe().wait(0, [&] {
    return WaitEvent{.cycle = now_cycles(),
                     .source = source(queued),
                     .what = WaitEvent::For::kSemaphore,
                     .index = head_semaphore_,
                     .wanted = head_wanted_,
                     .value = sem_port->value(head_semaphore_),
                     .since = head_waits_since_,
                     .begin = false};
  });
}

ProbeSource Engine::source(const QueuedCommand& queued) const {
  return {.core = context_.core_id,
          .unit = static_cast<uint32_t>(unit_),
          .sequence = queued.sequence,
          .step = context_.launch.job_step,
          .pc = queued.command->pc,
          .op_id = queued.command->op_id,
          .opcode = static_cast<uint8_t>(queued.command->opcode)};
}

ptrdiff_t Engine::read_vmem(Flight& flight, const Operand& operand, uint64_t base) {
  const uint64_t first = operand_first(operand, base);
  return context_.copies.read(first, first + operand_length(operand), flight.uses);
}

void Engine::write_vmem(const Operand& operand, uint64_t base, bool whole) {
  const uint64_t first = operand_first(operand, base);
  context_.copies.write(first, first + operand_length(operand), whole);
}

void Engine::tell_access(const Flight& flight, std::span<const AccessRange> extents,
                         const std::function<void(const RangeVisitor&)>& walk) {
  probe().access(
      {.cycle = flight.start, .source = source(flight.queued), .extents = extents, .walk = walk});
}

void Engine::tell_non_finite(const Flight& flight, const NonFiniteScan& scan) const {
  const auto tell = [&](const std::optional<NonFiniteScan::Found>& found, bool nan) {
    if (found) {
      probe().non_finite([&] {
        return NonFiniteEvent{.cycle = flight.done_at,
                              .source = source(flight.queued),
                              .address = found->address,
                              .bits = found->bits,
                              .nan = nan};
      });
    }
  };
  tell(scan.nan(), true);
  tell(scan.infinity(), false);
}

void Engine::visit_pattern(const spec::StridePattern& pattern, const AccessRange& where,
                           const RangeVisitor& visit) {
  AccessRange range = where;
  spec::visit_runs(pattern, [&](int64_t address, int64_t bytes) {
    range.low = static_cast<uint64_t>(address);
    range.bytes = static_cast<uint64_t>(bytes);
    visit(range);
  });
}

void Engine::begin(Flight& flight, uint64_t now, uint64_t earliest) {
  const DecodedCommand& command = *flight.queued.command;
  flight.start = now;
  flight.free_at = now + 1;
  flight.done_at = now + 1;
  queue_head_ = (queue_head_ + 1) % queue_.size();
  --queue_count_;
  ++flight_count_;
  bool ok = true;
  if (command.bad != 0) {
    FaultInfo info = fault_at(flight, TPU_FAULT_DESCRIPTOR);
    info.detail = command.bad;
    fault_port->raise(info, command.bad_text);
    ok = false;
  } else if (command.opcode == spec::Opcode::kNop || command.empty) {
    flight.done_at = now + std::max<uint64_t>(1, control_latency(flight.queued));
  } else {
    ok = start_command(flight);
  }
  if (!ok) {  // nothing was started: the record is given back
    --flight_count_;
    return;
  }
  if (flight.done_at != kNever && flight_count_ > 1) {
    const Flight& previous = flights_[(flight_head_ + flight_count_ - 2) % flights_.size()];
    if (previous.done_at != kNever) {
      flight.done_at = std::max(flight.done_at, previous.done_at);
    }
  }
  next_start_ = flight.free_at;
  probe().start(static_cast<uint32_t>(unit_), now, [&] {
    return StartEvent{.cycle = now,
                      .source = source(flight.queued),
                      .issued = flight.queued.issued_at,
                      .free_at = flight.free_at,
                      .flops = flops_of(command),
                      .held = earliest};
  });
  notify_progress();
}

// Time that a command without data takes to reach the farthest core it signals.
uint32_t Engine::control_latency(const QueuedCommand& queued) const {
  uint64_t latency = 0;
  for (size_t i = 0; i < queued.command->signal.size(); ++i) {
    const spec::Signal& signal = queued.command->signal[i];
    if (signal.valid() && signal.remote() && queued.signal_peer[i] < ici_port->cores()) {
      latency =
          std::max(latency, ici_port->control_latency(context_.core_id, queued.signal_peer[i]));
    }
  }
  return static_cast<uint32_t>(latency);
}

void Engine::send_signals(const Flight& flight) {
  const QueuedCommand& queued = flight.queued;
  for (size_t i = 0; i < queued.command->signal.size(); ++i) {
    const spec::Signal& signal = queued.command->signal[i];
    if (!signal.valid()) {
      continue;
    }
    if (!signal.remote()) {
      tell_signal(flight, signal, context_.core_id);
      sem_port->add(signal.sem, signal.value);
      continue;
    }
    const uint32_t peer = queued.signal_peer[i];
    if (peer >= ici_port->cores() || (context_.launch.mask >> peer & 1) == 0) {
      FaultInfo info = fault_at(flight, TPU_FAULT_REMOTE_STRAY);
      info.detail = spec::fault::kDetailPeerOutside;
      info.address = peer;
      fault_port->raise(info,
                        "signal to core " + std::to_string(peer) + ", which is not in the gang");
      return;
    }
    tell_signal(flight, signal, peer);
    const RemoteSignal message{.from = {context_.launch.tag, context_.launch.step},
                               .to_core = peer,
                               .semaphore = signal.sem,
                               .value = signal.value,
                               .at = flight.done_at};
    if (ici_port->peer(peer).remote_signal(message).status == RemoteAnswer::Status::kEnded) {
      raise_peer_ended(flight, "signal");
      return;
    }
  }
}

void Engine::tell_signal(const Flight& flight, const spec::Signal& signal, uint32_t to_core) {
  probe().signal([&] {
    return SignalEvent{.cycle = flight.done_at,
                       .source = source(flight.queued),
                       .to_core = to_core,
                       .semaphore = signal.sem,
                       .amount = signal.value};
  });
}

void Engine::raise_peer_ended(const Flight& flight, const std::string& what) {
  FaultInfo info = fault_at(flight, TPU_FAULT_REMOTE_STRAY);
  info.detail = spec::fault::kDetailPeerEnded;
  fault_port->raise(info, what + " to a core that has ended this step");
}

uint64_t Engine::next_wake(uint64_t now) const {
  uint64_t wake = kNever;
  if (flight_count_ != 0) {
    wake = flights_[flight_head_].done_at;
  }
  if (queue_count_ != 0 && !stopped_ && !head_waits_ && flight_count_ < flights_.size()) {
    wake =
        std::min(wake, std::max({next_start_, earliest_start(queue_[queue_head_]), held_until_}));
  }
  return wake == kNever ? kNever : std::max(wake, now);
}

void Engine::update_activity(uint64_t now) {
  // A head that waits only for time counts; one that waits for a semaphore does not.
  activity_.set(flight_count_ != 0 || (next_wake(now) != kNever));
}

void Engine::notify_progress() {
  if (watched_) {
    progress_event_.notify(sc_core::SC_ZERO_TIME);
  }
}

FaultInfo Engine::fault_at(const Flight& flight, uint16_t code) const {
  return fault_of(*flight.queued.command, code, unit_);
}

FaultInfo Engine::range_fault_at(const Flight& flight, uint16_t code, size_t index,
                                 const Operand& operand, uint64_t size) const {
  FaultInfo info = fault_at(flight, code);
  const int64_t addend = flight.queued.addend[index];
  info.address = operand_first(
      operand, static_cast<uint64_t>(operand.address.offset) + static_cast<uint64_t>(addend));
  info.length = operand_length(operand);
  info.slot = operand.address.slot;
  if (operand.address.reg != 0) {
    info.detail = spec::fault::kDetailAddress;
    info.data = addend;
    info.limit = static_cast<int64_t>(size) - operand.extent.high - operand.address.offset;
  } else {
    info.data = operand.address.offset;
    info.limit = static_cast<int64_t>(size) - operand.extent.high;
  }
  return info;
}

}  // namespace tpu::model
