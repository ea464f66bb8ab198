// The typed ports by which the blocks of a core meet: sequencer -> engine queues, engines ->
// semaphores and fault unit. Interfaces and plain records only; core.cpp binds them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <systemc>

#include "command/operands.hpp"
#include "file/archive.hpp"
#include "gang/core_set.hpp"
#include "kernel/agenda.hpp"
#include "probe/events.hpp"
#include "tpu/spec/isa.hpp"
#include "tpu/spec/rings.h"
#include "tpu/spec/seq_regs.hpp"

namespace tpu::model {

struct DecodedCommand;

inline constexpr size_t kMaxOperands = spec::kVpuAccesses;  // the most of any command

// A command in an engine queue, scalar registers resolved.
struct QueuedCommand {
  const DecodedCommand* command = nullptr;
  uint64_t sequence = 0;  // of the core's commands
  uint64_t issued_at = 0;
  uint32_t peer = 0;  // dma_remote
  std::array<uint32_t, 2> signal_peer{};
  std::array<int64_t, spec::kHbmOperands> slot{};     // of operand i, if it is in HBM
  std::array<uint32_t, spec::kVpuScalars> scalars{};  // vpu_kernel
  std::array<int64_t, kMaxOperands> addend{};         // added to the offset of operand i

  // Becomes `other`, but for addends beyond its `operands`: most commands have few.
  void take(const QueuedCommand& other, size_t operands) {
    command = other.command;
    sequence = other.sequence;
    issued_at = other.issued_at;
    peer = other.peer;
    signal_peer = other.signal_peer;
    slot = other.slot;
    scalars = other.scalars;
    std::copy_n(other.addend.begin(), operands, addend.begin());
  }
};

// State of a queue's head, for fault records and deadlock reports.
struct QueueHead {
  const DecodedCommand* command = nullptr;  // null: empty
  bool waiting = false;                     // for `semaphore`
  uint32_t semaphore = 0;
  uint32_t wanted = 0;
};

// What a queue has started.
struct QueueStarts {
  uint64_t begun = 0;    // commands, ever
  uint64_t next = 0;     // no other one starts before this cycle
  bool leaving = false;  // one of them has something for another board that is not on its way yet
};

// An engine's queue as the sequencer sees it.
class CommandQueueIf : public virtual sc_core::sc_interface {
 public:
  virtual bool full() const = 0;
  // Slot to fill, then push(). Only when not full.
  virtual QueuedCommand& next_slot() = 0;
  virtual void push() = 0;
  virtual bool idle() const = 0;  // nothing queued, nothing in flight
  virtual QueueHead head() const = 0;
  // i-th command that is started and not done, oldest first; null beyond the end.
  virtual const QueuedCommand* started(size_t index) const = 0;
  bool in_flight() const { return started(0) != nullptr; }
  // i-th command that is queued and not started, null beyond the end.
  virtual const QueuedCommand* queued(size_t index) const = 0;
  virtual QueueStarts starts() const = 0;
  // Notifies the task, for this reason, when a command leaves the queue or is done; null: nobody.
  virtual void watch(Task* task, uint32_t reason) = 0;
  // Drops queued commands; started ones end without signals.
  virtual void stop() = 0;
  // Permits commands again, after stop().
  virtual void resume() = 0;
  // What started commands do to data is done when this returns; their time is as ever.
  virtual void settle_data() {}
};

class SemaphoreIf : public virtual sc_core::sc_interface {
 public:
  virtual uint32_t value(uint32_t semaphore) const = 0;
  // Names `unit` as the one that waits for this semaphore in this program; false if another does,
  // or has done.
  virtual bool claim(uint32_t semaphore, int unit) = 0;
  virtual int waiter(uint32_t semaphore) const = 0;  // the unit that was named; below 0: none
  // Notifies `wake` when the value is at least `wanted`. One waiter a semaphore; replaced by the
  // next call.
  virtual void wake_when(uint32_t semaphore, uint32_t wanted, Task& wake) = 0;
  virtual void take(uint32_t semaphore, uint32_t amount) = 0;
  // Visible core.semaphore_cycles later.
  virtual void add(uint32_t semaphore, uint32_t amount) = 0;
};

struct FaultInfo {
  uint16_t code = 0;  // FAULT_* of spec/formats/rings.toml
  int unit = kSequencerUnit;
  uint32_t pc = 0;
  uint32_t op_id = TPU_OP_NONE;
  uint64_t address = 0;
  uint64_t length = 0;
  uint32_t slot = 0;
  uint32_t detail = 0;
  uint32_t semaphore = 0;
  uint32_t wanted = 0;
  uint32_t value = 0;
  int64_t data = 0;   // value from data, or constant of the program, that led outside
  int64_t limit = 0;  // largest such value that does not
};

// Of a command: its place and op.
FaultInfo fault_of(const DecodedCommand& command, uint16_t code, int unit = kSequencerUnit);

// For people, of FAULT_SEM_TWO_WAITERS: `unit` waits for a semaphore that `first` has claimed.
std::string two_waiters_text(uint32_t semaphore, int first, int unit);

class FaultIf : public virtual sc_core::sc_interface {
 public:
  // Keeps the first fault of a launch and stops the core. `text`, if any, says more for people.
  virtual void raise(const FaultInfo& info, std::string text = {}) = 0;
  // Drops the record; START does.
  virtual void clear() = 0;
};

// What the engines need of the running launch; kept by the sequencer.
struct LaunchState {
  uint32_t step = 0;           // of the launch
  uint64_t job_step = 0;       // of the board (kernel/step_counter.hpp)
  uint64_t issued_before = 0;  // commands of the core before this step
  uint32_t place = 0;          // as the register REPLICA
  uint32_t cores = 0;
  uint32_t mask = 0;  // as the register MASK
  spec::CoreSet gang{};
  uint32_t beyond = UINT32_MAX;  // cores from here on are those of boards that this one is folded
                                 // for, and in each of its gangs
  uint32_t tag = 0;
  uint32_t launch = 0;
  uint32_t slot_bank = 0;
  uint32_t slot_count = 0;
  bool tag_open = false;         // remote packets with `tag` are taken,
  uint32_t first_open_step = 0;  // those of earlier steps not
  uint32_t inbound = 0;          // writes of peers that were taken and have not landed yet
  uint32_t unanswered = 0;       // messages to other boards; none of a core that is quiet

  // Nothing is on its way to this core.
  bool settled() const { return inbound == 0 && unanswered == 0; }

  // The core of this board that traces show in place of another board's.
  uint32_t shown(uint32_t core) const { return core < beyond ? core : core % beyond; }
  bool gang_has(uint32_t core) const { return core >= beyond || gang.has(core); }
  uint32_t replica() const { return place & spec::seq::kReplicaIdMask; }

  void visit_state(spec::Archive& archive) {
    archive(step, job_step, place, cores, mask, gang, tag, launch, slot_bank, slot_count, tag_open,
            first_open_step, inbound);
    archive.need(slot_bank < spec::seq::kSlotBanks && slot_count <= spec::seq::kSlotEntries,
                 "a launch has slots that its core has not");
  }
};

}  // namespace tpu::model
