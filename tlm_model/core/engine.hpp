// Shell of every engine of a core: an in-order command queue and the life of a command: wait at the
// head, start, free (the next may start), done (results visible, signals sent, in order). The
// engine adds cost and data work by the hooks start_command and finish_command. One task of the
// agenda; a command costs three or four turns.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <systemc>
#include <vector>

#include "core/cut_sender.hpp"
#include "core/engine_context.hpp"
#include "core/engines/non_finite.hpp"
#include "core/head_wait.hpp"
#include "core/late_work.hpp"
#include "core/ports.hpp"
#include "core/program.hpp"
#include "core/ring.hpp"
#include "core/signal_sender.hpp"
#include "kernel/activity.hpp"
#include "kernel/cycles.hpp"

namespace tpu::model {

// Visits the runs of `pattern`, whose addresses are those of the memory that `where` names.
void visit_pattern(const spec::StridePattern& pattern, const AccessRange& where,
                   const RangeVisitor& visit);

class Engine : public sc_core::sc_module, public CommandQueueIf {
 public:
  sc_core::sc_port<SemaphoreIf> sem_port{"sem_port"};
  sc_core::sc_port<FaultIf> fault_port{"fault_port"};
  SignalIciPort ici_port{"ici_port"};  // remote signals

  Engine(sc_core::sc_module_name name, spec::Queue queue, const EngineContext& context);

  bool full() const override { return queue_.full(); }
  QueuedCommand& next_slot() override { return queue_.at(queue_.size()); }
  void push() override;
  bool idle() const override { return queue_.empty() && flights_.empty(); }
  QueueHead head() const override;
  const QueuedCommand* started(size_t index) const override {
    return index < flights_.size() ? &flight(index).queued : nullptr;
  }
  const QueuedCommand* queued(size_t index) const override {
    return index < queue_.size() ? &queue_.at(index) : nullptr;
  }
  QueueStarts starts() const override { return {begun_, next_start_, leaving_ != 0}; }
  void watch(Task* task, uint32_t reason) override {
    watcher_ = task;
    watch_reason_ = reason;
  }
  void stop() override;
  void resume() override { stopped_ = false; }
  // Of an engine that is idle.
  void visit_state(spec::Archive& archive) {
    archive(next_start_, stopped_);
    archive.need(is_near(next_start_), "an engine starts too late");
  }

 protected:
  // A started command. done_at may be kNever until the engine knows it (settle).
  struct Flight {
    size_t index = 0;  // of this record, for data that belongs to it
    uint64_t start = 0;
    uint64_t free_at = 0;
    uint64_t done_at = 0;
    bool leaves = false;       // something goes to another board that is not on its way yet
    bool data_leaves = false;  // also data: set by the engine when it starts
    QueuedCommand queued;
  };

  // Starts the work of a checked, non-empty command at the present cycle and sets free_at and
  // done_at. Returns false after raising a fault.
  virtual bool start_command(Flight& flight) = 0;
  // Called before the head of the flight is looked at: sets done_at if it has become known.
  virtual void settle(Flight& /*flight*/) {}
  // At done_at, before signals. Its data may come later, unless somebody looks at them now.
  virtual void finish_command(Flight& flight) = 0;
  // Once done_at is known, of a flight with data_leaves: adds what it writes to its peer.
  virtual void leave(const Flight& /*flight*/, CutDelivery& /*delivery*/) {}
  // Earliest cycle at which the head may start beside the predecessor's free_at.
  virtual uint64_t earliest_start(const QueuedCommand& /*queued*/) const { return 0; }

  FaultInfo fault_at(const Flight& flight, uint16_t code) const;
  // The slot of an operand in HBM; `index`: as in addend.
  static uint32_t slot_of(const Flight& flight, size_t index, const Operand& operand);
  // An operand outside of a memory or slot of `size` bytes; `index`: as in addend.
  FaultInfo range_fault_at(const Flight& flight, uint16_t code, size_t index,
                           const Operand& operand, uint64_t size) const;
  CutSender& cut() { return cut_; }
  const EngineContext& context() const { return context_; }
  CoreProbe& probe() const { return context_.probe; }
  ProbeSource source(const QueuedCommand& queued) const {
    return command_source(context_, unit_, queued);
  }
  // Before the work of a command begins that reads `bytes` of VMEM, which are the operand's: how
  // many bytes behind their place the host has them, until `work` is done.
  ptrdiff_t read_vmem(LateWork& work, const Operand& operand, uint64_t base,
                      const spec::StridePattern& bytes);
  // And that writes `bytes`: all around the operand, or (not `whole`) some of them.
  void write_vmem(LateWork& work, const Operand& operand, uint64_t base, bool whole,
                  const spec::StridePattern& bytes);
  // Tells probe and ECC what the command touches; only when one of them wants to know
  // (EngineContext::wants_access). False after a fault: it reads what ECC cannot correct.
  bool tell_access(const Flight& flight, std::span<const AccessRange> extents,
                   const std::function<void(const RangeVisitor&)>& walk);
  // Tells the probe what a scan of its results has found.
  void tell_non_finite(const Flight& flight, const NonFiniteScan& scan) const;
  // Started commands that are not done, oldest first.
  size_t flight_count() const { return flights_.size(); }
  const Flight& flight(size_t index) const { return flights_.at(index); }
  Task& task() { return task_; }
  size_t flight_capacity() const { return flights_.capacity(); }

 private:
  void run_method();
  bool finish_due(uint64_t now);
  bool start_head(uint64_t now);
  // `earliest`: what held it back, earliest_start().
  void begin(Flight& flight, uint64_t now, uint64_t earliest);
  uint64_t next_wake(uint64_t now) const;
  void update_activity(uint64_t now);
  void notify_progress();

  const EngineContext context_;
  const int unit_;
  Task task_;
  Ring<QueuedCommand> queue_;
  Ring<Flight> flights_;
  HeadWait head_wait_;
  SignalSender signals_;
  CutSender cut_;
  uint64_t next_start_ = 0;
  uint64_t begun_ = 0;
  bool stopped_ = false;
  size_t leaving_ = 0;  // flights with something for another board
  ActivityFlag activity_;
  Task* watcher_ = nullptr;  // of its progress
  uint32_t watch_reason_ = 0;
};

}  // namespace tpu::model
