// Execution of the core program: scalar instructions, issue, stalls, end.
#include "core/sequencer.hpp"

#include <algorithm>

#include "command/fault_report.hpp"
#include "kernel/cycles.hpp"
#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/rings.h"
#include "tpu/spec/seq_regs.hpp"

namespace tpu::model {
namespace {

namespace seq = spec::seq;
// Scalar instructions without an interaction before the sequencer lets simulated time catch up.
constexpr int kMaxRun = 4096;

// What a command takes from scalar registers.
void fill_slot(const DecodedCommand& command, const spec::ScalarRegisters& x, QueuedCommand& slot) {
  if (command.bad != 0) {
    return;
  }
  for (size_t i = 0; i < static_cast<size_t>(command.operands); ++i) {
    slot.addend[i] = static_cast<int64_t>(x[command.operand_reg[i]]);
  }
  for (size_t i = 0; i < slot.slot.size(); ++i) {
    slot.slot[i] = static_cast<int64_t>(command.slot[i] + x[command.slot_reg[i]]);
  }
  if (command.opcode == spec::Opcode::kVpuKernel) {
    for (size_t i = 0; i < slot.scalars.size(); ++i) {
      slot.scalars[i] = static_cast<uint32_t>(x[command.scalar_reg[i]]);
    }
  }
  if (command.queue == static_cast<uint8_t>(spec::Queue::kDmaRemote)) {
    slot.peer = static_cast<uint32_t>(std::min<uint64_t>(x[command.peer_reg], UINT32_MAX));
    for (size_t i = 0; i < slot.signal_peer.size(); ++i) {
      const uint8_t reg = command.signal[i].peer_reg;
      slot.signal_peer[i] =
          reg < 32 ? static_cast<uint32_t>(std::min<uint64_t>(x[reg], UINT32_MAX)) : 0;
    }
  }
}

// Programs count cores over the pod.
void fold_peers(const spec::Fold& fold, QueuedCommand& slot) {
  slot.peer = fold.by_board(slot.peer);
  for (uint32_t& peer : slot.signal_peer) {
    peer = fold.by_board(peer);
  }
}

}  // namespace

Sequencer::Sequencer(sc_core::sc_module_name name, uint32_t core_id,
                     const spec::BoardParams& params, Agenda& agenda, Activity& activity,
                     CoreProbe& probe, LaunchState& launch)
    : sc_module(name),
      registers_(*this, launch, figures_, core_id, static_cast<uint32_t>(spec::core_count(params))),
      core_id_(core_id),
      params_(params),
      probe_(probe),
      launch_(launch),
      activity_(activity),
      state_(seq::kStateIdle),
      report_(spec::fault_report_cycles(params), activity),
      scout_(static_cast<size_t>(params.core.queue_depth)),
      task_(Task::of<&Sequencer::run_method>(agenda, *this)) {
  SC_METHOD(watchdog_method);
  sensitive << watchdog_.event();
  dont_initialize();
  SC_METHOD(irq_method);
  sensitive << irq_event_ << report_.event();
  dont_initialize();
}

void Sequencer::run_method() {
  // After a stop: DRAINED once every engine is idle, nothing of a peer is under way to this core,
  // and what has stopped it is reported.
  if (draining_ && queues_.idle() && launch_.settled() && !report_.pending()) {
    draining_ = false;
    queues_.watch(nullptr, 0);
    registers_.raise(seq::kIrqStatusDrainedMask);
  } else if (draining_) {
    queues_.watch(&task_, kProgress);
    task_.wait(kAnyChange);
  }
  if (state_ != seq::kStateRunning || *parts_.hung) {
    if (*parts_.hung) {
      activity_.set(false);
    }
    if (!draining_) {
      task_.wait();
    }
    return;
  }
  const uint64_t now = now_cycles();
  end_stall();
  time_ = std::max(time_, now);
  while (state_ == seq::kStateRunning && step_until_wait(now)) {
  }
}

// Executes until the sequencer's clock has to wait for simulated time or for an event; then the
// trigger is set and the result is false.
bool Sequencer::step_until_wait(uint64_t now) {
  for (int budget = kMaxRun; budget > 0; --budget) {
    const ProgramItem* item = program_->item(pc_);
    if (item == nullptr || item->kind == ProgramItem::Kind::kIllegal) {
      fault_port->raise(fault_here(TPU_FAULT_ILLEGAL_INSN, 0),
                        "no instruction at word " + std::to_string(pc_));
      task_.wait();
      return false;
    }
    const bool is_command = item->kind == ProgramItem::Kind::kCommand;
    const auto op = static_cast<spec::ScalarOp>(item->insn.op);
    if (!is_command && spec::scalar_class(op) != spec::ScalarClass::kOther) {
      if (!execute_scalar(*item)) {
        task_.wait();
        return false;
      }
      continue;
    }
    if (!charged_) {
      charged_ = true;
      time_ += static_cast<uint64_t>(is_command ? params_.core.issue_cycles : 0);
    }
    if (time_ > now) {
      break;
    }
    if (!execute_timed(*item, now)) {
      return false;
    }
    charged_ = false;
  }
  task_.wait_cycles(std::max<uint64_t>(time_ - now, 1));
  return false;
}

uint32_t Sequencer::core_in_register(size_t index) const {
  const uint64_t core = scalar_.registers()[index];
  return parts_.fold != nullptr ? parts_.fold->by_board(core)
                                : static_cast<uint32_t>(std::min<uint64_t>(core, UINT32_MAX));
}

// False: faulted.
bool Sequencer::execute_scalar(const ProgramItem& item) {
  const spec::ScalarInsn& insn = item.insn;
  const bool unknown = scalar_.any_unknown() && scalar_.depends_on_unknown(insn);
  probe_.instruction([&] { return InstructionEvent{.cycle = time_, .core = core_id_, .pc = pc_}; });
  if (spec::scalar_class(static_cast<spec::ScalarOp>(insn.op)) == spec::ScalarClass::kArithmetic) {
    scalar_.set(insn.rd, spec::scalar_result(insn, scalar_.registers()));
    if (unknown) {
      scalar_.set_unknown(insn.rd);
    }
    pc_ = item.next;
    time_ += 1;
    return true;
  }
  if (unknown && static_cast<spec::ScalarOp>(insn.op) != spec::ScalarOp::kBneg) {
    FaultInfo info = fault_here(TPU_FAULT_NO_DATA, spec::fault::kDetailBranch);
    info.data = scalar_.is_unknown(insn.rs1) ? insn.rs1 : insn.rs2;
    fault_port->raise(
        info, "the program's control flow depends on data, which a timing-only run does not have");
    return false;
  }
  const bool taken = !unknown && spec::scalar_taken(insn, scalar_.registers());
  pc_ = taken ? static_cast<uint32_t>(insn.imm) : item.next;
  time_ += static_cast<uint64_t>(taken ? params_.core.branch_cycles : 1);
  return true;
}

// An instruction that others see or that sees others, at the present cycle. False: stalled, or the
// program is over.
bool Sequencer::execute_timed(const ProgramItem& item, uint64_t now) {
  if (item.kind == ProgramItem::Kind::kCommand) {
    if (!issue(program_->command(item.command), now)) {
      return false;
    }
    program_->prefetch_behind(item);
    pc_ = item.next;
    return true;
  }
  using Op = spec::ScalarOp;
  const spec::ScalarInsn& insn = item.insn;
  const auto amount = static_cast<uint32_t>(insn.imm);
  switch (static_cast<Op>(insn.op)) {
    case Op::kHalt:
      return halt();
    case Op::kLds32:
    case Op::kLds64:
    case Op::kSts32:
      if (!execute_memory(insn)) {
        return false;
      }
      break;
    case Op::kRid:
      scalar_.set(insn.rd,
                  parts_.fold != nullptr ? parts_.fold->in_pod(core_id_) : launch_.replica());
      time_ += 1;
      break;
    case Op::kNrep:
      scalar_.set(insn.rd, parts_.fold != nullptr ? parts_.fold->cores() : launch_.cores);
      time_ += 1;
      break;
    case Op::kStep:
      scalar_.set(insn.rd, launch_.step);
      time_ += 1;
      break;
    case Op::kSwait:
      if (!wait_for_semaphore(insn, now)) {
        return false;
      }
      break;
    case Op::kSsignal:
      probe_.signal([&] {
        return SignalEvent{.cycle = now,
                           .source = source(),
                           .to_core = core_id_,
                           .semaphore = insn.rs1,
                           .amount = amount};
      });
      parts_.semaphores->add(insn.rs1, amount);
      time_ += 1;
      break;
    case Op::kHcall:
      if (!call_host(amount)) {
        return false;
      }
      break;
    default:  // markb, marke
      if (static_cast<Op>(insn.op) == Op::kMarkb) {
        marks_.begin(amount);
      } else {
        marks_.end();
      }
      probe_.mark([&] {
        ProbeSource from = source();
        from.op_id = amount;
        return MarkEvent{
            .cycle = now, .source = from, .begin = static_cast<Op>(insn.op) == Op::kMarkb};
      });
      break;
  }
  probe_.instruction([&] { return InstructionEvent{.cycle = now, .core = core_id_, .pc = pc_}; });
  pc_ = item.next;
  return state_ == seq::kStateRunning;
}

// False: stalled, or faulted.
bool Sequencer::wait_for_semaphore(const spec::ScalarInsn& insn, uint64_t now) {
  Semaphores& semaphores = *parts_.semaphores;
  const auto amount = static_cast<uint32_t>(insn.imm);
  if (!semaphores.claim(insn.rs1, kSequencerUnit)) {
    FaultInfo info = fault_here(TPU_FAULT_SEM_TWO_WAITERS, insn.rs1);
    info.semaphore = insn.rs1;
    info.value = semaphores.value(insn.rs1);
    fault_port->raise(info,
                      two_waiters_text(insn.rs1, semaphores.waiter(insn.rs1), kSequencerUnit));
    return false;
  }
  if (semaphores.value(insn.rs1) < amount) {
    semaphores.wake_when(insn.rs1, amount, task_);
    stall(Stall::kSemaphore, insn.rs1, amount);
    task_.wait();
    return false;
  }
  semaphores.take(insn.rs1, amount);
  probe_.take([&] {
    return TakeEvent{.cycle = now,
                     .source = source(),
                     .semaphore = insn.rs1,
                     .threshold = amount,
                     .takes = true};
  });
  time_ += 1;
  return true;
}

// False: the host has not answered.
bool Sequencer::call_host(uint32_t number) {
  if (call_.take_answer()) {
    time_ += 1;
    return true;
  }
  if (call_.begin()) {
    figures_.call = number;
    lines_changed();
  }
  stall(Stall::kHost, figures_.call);
  task_.wait();
  return false;
}

bool Sequencer::issue(const DecodedCommand& command, uint64_t now) {
  CommandQueueIf* const queue = queues_.at(command.queue);
  if (queue == nullptr) {
    FaultInfo info = fault_of(command, TPU_FAULT_DESCRIPTOR);
    info.detail = spec::fault::kDetailOpcodeQueue;
    fault_port->raise(info, command.bad_text);
    return false;
  }
  if (queue->full()) {
    queue->watch(&task_, kQueueProgress << command.queue);
    stall(Stall::kQueueFull, command.queue);
    task_.wait(kQueueProgress << command.queue);
    return false;
  }
  if (scalar_.any_unknown() && !scalar_.knows_peers(command)) {
    fault_port->raise(fault_here(TPU_FAULT_NO_DATA, spec::fault::kDetailPeerChoice),
                      "data choose the core that a transfer goes to; a timing-only run has none");
    return false;
  }
  QueuedCommand& slot = queue->next_slot();
  slot.command = &command;
  slot.sequence = ++issued_ever_;
  slot.issued_at = now;
  fill_slot(command, scalar_.registers(), slot);
  if (parts_.fold != nullptr && command.queue == static_cast<uint8_t>(spec::Queue::kDmaRemote)) {
    fold_peers(*parts_.fold, slot);
  }
  queue->push();
  ++figures_.commands;
  probe_.issue([&] {
    return IssueEvent{.cycle = now,
                      .source = {.core = core_id_,
                                 .unit = command.queue,
                                 .sequence = issued_ever_,
                                 .step = launch_.job_step,
                                 .pc = command.pc,
                                 .op_id = command.op_id,
                                 .opcode = static_cast<uint8_t>(command.opcode)}};
  });
  return true;
}

// Ends the program once everything is done. Writes of peers count: one that nobody waits for must
// not land in the next program.
bool Sequencer::halt() {
  if (!queues_.idle() || !launch_.settled() || !parts_.semaphores->settled()) {
    queues_.watch(&task_, kProgress);
    stall(Stall::kHalt);
    task_.wait(kAnyChange);
    return false;
  }
  const uint32_t left = parts_.semaphores->first_nonzero();
  if (left < parts_.semaphores->count()) {
    FaultInfo info = fault_here(TPU_FAULT_SEM_NONZERO_AT_END, 0);
    info.semaphore = left;
    info.value = parts_.semaphores->value(left);
    fault_port->raise(info, "semaphore " + std::to_string(left) + " is " +
                                std::to_string(info.value) + " at the end of the program");
    return false;
  }
  finish_program();
  return false;
}

bool Sequencer::execute_memory(const spec::ScalarInsn& insn) {
  const ScalarUnit::Access access = scalar_.access(insn);
  if (!scalar_.in_memory(access)) {
    FaultInfo info = fault_here(TPU_FAULT_SMEM_RANGE, 0);
    scalar_.describe(insn, access, info);
    fault_port->raise(info, "scalar access outside of SMEM");
    return false;
  }
  if ((probe_.wants(ProbeEvent::kAccess) || parts_.sram->any()) && !tell_access(access)) {
    return false;
  }
  time_ += static_cast<uint64_t>(access.write ? 1 : params_.core.smem_load_cycles);
  scalar_.perform(insn, access);
  return true;
}

bool Sequencer::tell_access(const ScalarUnit::Access& access) {
  const AccessRange range{.owner = core_id_,
                          .memory = ProbeMemory::kSmem,
                          .low = access.address,
                          .bytes = access.bytes,
                          .write = access.write};
  const std::function<void(const RangeVisitor&)> walk = [&](const RangeVisitor& visit) {
    visit(range);
  };
  probe_.access(
      {.cycle = now_cycles(), .source = source(), .extents = std::span(&range, 1), .walk = walk});
  const SramDamage::Bad bad = parts_.sram->any() ? parts_.sram->touch(range) : std::nullopt;
  if (bad) {
    fault_port->raise(sram_fault(fault_here(0, 0), *bad), sram_fault_text(*bad));
  }
  return !bad;
}

void Sequencer::stall(Stall why, uint32_t index, uint32_t wanted) {
  stall_.begin(why, now_cycles(), index, wanted);
  activity_.set(false);
  probe_.wait(0, [this] { return wait_event(true); });
}

void Sequencer::end_stall() {
  if (stall_.why() == Stall::kNone) {
    return;
  }
  probe_.wait(stall_.why() != Stall::kHalt ? now_cycles() - stall_.since() : 0,
              [this] { return wait_event(false); });
  if (stall_.why() == Stall::kQueueFull) {
    queues_.at(stall_.index())->watch(nullptr, 0);
  } else if (stall_.why() == Stall::kHalt) {
    queues_.watch(nullptr, 0);
  }
  stall_.end();
  activity_.set(true);
}

ProbeSource Sequencer::source() const {
  return {.core = core_id_,
          .unit = static_cast<uint32_t>(kSequencerUnit),
          .sequence = issued_ever_,
          .step = launch_.job_step,
          .pc = pc_,
          .op_id = op()};
}

// Of the stall that begins or ends at this cycle.
WaitEvent Sequencer::wait_event(bool begin) const {
  const uint32_t value =
      stall_.why() == Stall::kSemaphore ? parts_.semaphores->value(stall_.index()) : 0;
  return stall_.event(now_cycles(), source(), value, begin);
}

uint32_t Sequencer::op() const { return program_ == nullptr ? TPU_OP_NONE : program_->op_at(pc_); }

FaultInfo Sequencer::fault_here(uint16_t code, uint32_t detail) const {
  FaultInfo info;
  info.code = code;
  info.detail = detail;
  info.pc = pc_;
  info.op_id = op();
  return info;
}

std::optional<spec::UnitWait> Sequencer::waits() const {
  using For = spec::UnitWait::For;
  if (stall_.why() == Stall::kNone) {
    return std::nullopt;
  }
  const WaitEvent event = wait_event(true);
  spec::UnitWait wait{.at = {core_id_, "sequencer", pc_, op()}};
  switch (event.what) {
    case WaitEvent::For::kSemaphore:
      wait.what = For::kSemaphore;
      wait.index = event.index;
      wait.wanted = event.wanted;
      wait.value = event.value;
      break;
    case WaitEvent::For::kQueue:
      wait.what = For::kQueue;
      wait.queue = spec::kQueueNames[event.index];
      break;
    case WaitEvent::For::kHost:
      wait.what = For::kHost;
      wait.index = event.index;
      break;
    default:
      wait.what = For::kEngines;
  }
  return wait;
}

}  // namespace tpu::model
