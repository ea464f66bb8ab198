// Life of a command in an engine.
#include "core/engine.hpp"

#include <algorithm>
#include <utility>

#include "board/board_loader.hpp"
#include "core/operand_check.hpp"
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
      task_(Task::of<&Engine::run_method>(context.agenda, *this)),
      queue_(static_cast<size_t>(context.params.core.queue_depth)),
      flights_(spec::commands_in_flight(context.params, static_cast<size_t>(queue))),
      head_wait_(context_, unit_, sem_port, fault_port, task_),
      signals_(context_, unit_, sem_port, fault_port, ici_port),
      cut_(context_, signals_, fault_port, ici_port),
      activity_(context.activity) {
  for (size_t i = 0; i < flights_.capacity(); ++i) {
    flights_.at(i).index = i;
  }
}

void Engine::push() {
  queue_.push();
  if (queue_.size() == 1) {
    head_wait_.forget();
    task_.notify();
  }
}

void Engine::stop() {
  stopped_ = true;
  context_.hung[static_cast<size_t>(unit_)] = false;
  queue_.clear();
  head_wait_.reset();
  task_.notify();
  for (bool settled = false; !settled;) {
    try {
      settle_data();
      settled = true;
    } catch (...) {
      settled = false;  // nobody will look at these results; each error comes once
    }
  }
}

QueueHead Engine::head() const {
  if (!flights_.empty()) {
    return {flights_.at(0).queued.command, false, 0, 0};
  }
  if (!queue_.empty()) {
    return {queue_.at(0).command, head_wait_.waits(), head_wait_.semaphore(), head_wait_.wanted()};
  }
  return {};
}

void Engine::run_method() {
  const uint64_t now = now_cycles();
  // What goes to other boards is known there a latency before: it is sent as soon as it is known
  // when the command and those in front are done.
  const auto send_known = [this] {
    uint64_t before = 0;
    for (size_t i = 0; i < flights_.size() && leaving_ != 0; ++i) {
      Flight& flight = flights_.at(i);
      settle(flight);
      if (flight.done_at == kNever) {
        return;
      }
      flight.done_at = before = std::max(flight.done_at, before);
      if (std::exchange(flight.leaves, false)) {
        --leaving_;
        cut_.send(flight.queued, flight.done_at, stopped_,
                  flight.data_leaves ? [&](CutDelivery& delivery) { leave(flight, delivery); }
                                     : CutSender::AddData());
      }
    }
  };
  send_known();
  while (finish_due(now) || start_head(now)) {
  }
  send_known();
  update_activity(now);
  const uint64_t wake = next_wake(now);
  if (wake != kNever) {
    task_.wait_cycles(wake - now);
  } else {
    task_.wait();
  }
}

// Finishes the oldest started command if its time has come. Commands are done in order.
bool Engine::finish_due(uint64_t now) {
  if (flights_.empty()) {
    return false;
  }
  Flight& flight = flights_.at(0);
  settle(flight);
  if (flight.done_at > now) {
    return false;
  }
  flight.done_at = now;
  const bool has_work =
      !flight.queued.command->empty && flight.queued.command->opcode != spec::Opcode::kNop;
  if (has_work) {
    finish_command(flight);
  }
  flights_.pop_oldest();
  if (!stopped_) {
    signals_.send(flight.queued, flight.done_at);
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
  if (queue_.empty() || stopped_ || context_.hung[static_cast<size_t>(unit_)] ||
      now < next_start_ || flights_.full()) {
    return false;
  }
  const QueuedCommand& queued = queue_.at(0);
  const uint64_t earliest = earliest_start(queued);
  if (now < earliest || !head_wait_.met(queued)) {
    return false;
  }
  Flight& flight = flights_.at(flights_.size());
  flight.queued.take(queued, static_cast<size_t>(queued.command->operands));
  begin(flight, now, earliest);
  return !stopped_;
}

// Reads of bytes that lie elsewhere count as reads of VMEM too: that holds up nobody.
ptrdiff_t Engine::read_vmem(LateWork& work, const Operand& operand, uint64_t base,
                            const spec::StridePattern& bytes) {
  const uint64_t first = operand_first(operand, base);
  work.touches.add(context_.vmem_order, data_range(bytes), false);
  return context_.copies.read(first, first + operand_length(operand), work.uses, work.touches);
}

void Engine::write_vmem(LateWork& work, const Operand& operand, uint64_t base, bool whole,
                        const spec::StridePattern& bytes) {
  const uint64_t first = operand_first(operand, base);
  context_.copies.write(first, first + operand_length(operand), whole);
  work.touches.add(context_.vmem_order, data_range(bytes), true);
}

bool Engine::tell_access(const Flight& flight, std::span<const AccessRange> extents,
                         const std::function<void(const RangeVisitor&)>& walk) {
  probe().access(
      {.cycle = flight.start, .source = source(flight.queued), .extents = extents, .walk = walk});
  if (!context_.sram.any()) {
    return true;
  }
  const SramDamage::Bad bad = context_.sram.touch(context_.core_id, walk);
  if (bad) {
    fault_port->raise(sram_fault(fault_at(flight, 0), *bad), sram_fault_text(*bad));
  }
  return !bad;
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

void visit_pattern(const spec::StridePattern& pattern, const AccessRange& where,
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
  flight.data_leaves = false;
  flight.free_at = now + 1;
  flight.done_at = now + 1;
  queue_.pop_oldest();
  ++begun_;
  flights_.push();
  bool ok = true;
  if (command.bad != 0) {
    FaultInfo info = fault_at(flight, TPU_FAULT_DESCRIPTOR);
    info.detail = command.bad;
    fault_port->raise(info, command.bad_text);
    ok = false;
  } else if (command.opcode == spec::Opcode::kNop || command.empty) {
    const LinkPassage links = signals_.pass_links(flight.queued);
    ok = !links.lost;
    if (links.lost) {
      raise_link_fault(*fault_port.operator->(), fault_at(flight, 0), links);
    }
    flight.done_at = now + std::max<uint64_t>(1, signals_.latency(flight.queued) + links.extra);
  } else {
    ok = start_command(flight);
  }
  if (!ok) {  // nothing was started: the record is given back
    flights_.pop_newest();
    return;
  }
  if (flight.done_at != kNever && flights_.size() > 1) {
    const Flight& previous = flights_.at(flights_.size() - 2);
    if (previous.done_at != kNever) {
      flight.done_at = std::max(flight.done_at, previous.done_at);
    }
  }
  flight.leaves = flight.data_leaves || (unit_ == static_cast<int>(spec::Queue::kDmaRemote) &&
                                         ici_port.size() != 0 && cut_.leaves(flight.queued));
  leaving_ += flight.leaves ? 1 : 0;
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

uint64_t Engine::next_wake(uint64_t now) const {
  uint64_t wake = kNever;
  if (!flights_.empty()) {
    wake = flights_.at(0).done_at;
  }
  if (!queue_.empty() && !stopped_ && !context_.hung[static_cast<size_t>(unit_)] &&
      !head_wait_.waits() && !flights_.full()) {
    wake = std::min(wake,
                    std::max({next_start_, earliest_start(queue_.at(0)), head_wait_.held_until()}));
  }
  return wake == kNever ? kNever : std::max(wake, now);
}

void Engine::update_activity(uint64_t now) {
  // A head that waits only for time counts; one that waits for a semaphore does not.
  activity_.set(!flights_.empty() || (next_wake(now) != kNever));
}

void Engine::notify_progress() {
  if (watcher_ != nullptr) {
    watcher_->notify(watch_reason_);
  }
}

FaultInfo Engine::fault_at(const Flight& flight, uint16_t code) const {
  return fault_of(*flight.queued.command, code, unit_);
}

uint32_t Engine::slot_of(const Flight& flight, size_t index, const Operand& operand) {
  if (index >= spec::kHbmOperands || !spec::is_hbm(operand.address)) {
    return operand.address.slot;
  }
  return static_cast<uint32_t>(std::clamp<int64_t>(flight.queued.slot[index], 0, UINT32_MAX));
}

FaultInfo Engine::range_fault_at(const Flight& flight, uint16_t code, size_t index,
                                 const Operand& operand, uint64_t size) const {
  FaultInfo info = fault_at(flight, code);
  const int64_t addend = flight.queued.addend[index];
  info.address = operand_first(
      operand, static_cast<uint64_t>(operand.address.offset) + static_cast<uint64_t>(addend));
  info.length = operand_length(operand);
  info.slot = slot_of(flight, index, operand);
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
