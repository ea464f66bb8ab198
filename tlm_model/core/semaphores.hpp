// The core's counting semaphores, each up to LIMIT (spec/regs/sem.toml). A signal becomes visible
// core.semaphore_cycles, at least one, after it was made; all of one cycle count together, so
// results do not depend on the order of processes. One unit waits for a semaphore in a program.
// The values may be those of rtl/sem/semaphores.sv, or be compared with it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <systemc>
#include <vector>

#include "core/ports.hpp"
#include "core/verilog/semaphore_verilog.hpp"
#include "core/verilog/verilog_use.hpp"
#include "kernel/activity.hpp"
#include "kernel/register_socket.hpp"
#include "probe/core_probe.hpp"
#include "tpu/spec/board_params.hpp"
#include "tpu/spec/sem_regs.hpp"

namespace tpu::model {

class Semaphores : public sc_core::sc_module, public RegisterBlock, public SemaphoreIf {
 public:
  RegisterSocket csr_tsock{"csr_tsock", *this};
  sc_core::sc_port<FaultIf> fault_port{"fault_port"};

  // Throws std::runtime_error when Verilog is wanted that does not exist for this board or host.
  Semaphores(sc_core::sc_module_name name, uint32_t core_id, const spec::BoardParams& params,
             Agenda& agenda, Activity& activity, const CoreProbe& probe,
             const VerilogUse& verilog = {});

  uint32_t value(uint32_t semaphore) const override { return entries_[semaphore].value; }
  bool claim(uint32_t semaphore, int unit) override;
  int waiter(uint32_t semaphore) const override { return entries_[semaphore].waiter; }
  void wake_when(uint32_t semaphore, uint32_t wanted, Task& wake) override;
  void take(uint32_t semaphore, uint32_t amount) override;
  void add(uint32_t semaphore, uint32_t amount) override;

  // No signal is on its way.
  bool settled() const { return pending_.empty(); }
  // Notifies the task, for this reason, when signals became visible; at most one task.
  void watch(Task& task, uint32_t reason) {
    watcher_ = &task;
    watch_reason_ = reason;
  }
  uint32_t count() const { return static_cast<uint32_t>(entries_.size()); }
  // Lowest that is not zero, or count().
  uint32_t first_nonzero() const;
  void clear();
  void forget_waiters();  // a new program starts
  void count_stale() { ++cell(spec::sem::kStale); }
  // With no signal on its way.
  void visit_state(spec::Archive& archive) {
    archive.fixed(entries_);
    visit_registers(archive);
  }

 private:
  struct Entry {
    uint32_t value = 0;
    uint32_t wanted = 0;
    int waiter = -1;  // unit
    Task* wake = nullptr;
    void visit_state(spec::Archive& archive) {
      archive(value, wanted, waiter);
      archive.need(waiter >= -1 && waiter < kUnits, "a semaphore waits for no unit of its core");
    }
  };
  struct Pending {
    uint64_t at;
    uint32_t semaphore;
    uint32_t amount;
  };
  struct Applied {
    uint32_t semaphore;
    bool fits;
  };

  static RegisterMap registers();
  uint32_t value_register(uint32_t index) const;
  uint32_t first_nonzero_register() const;

  void apply_method();
  bool apply(uint32_t semaphore, uint32_t amount);
  bool raise_value(uint32_t semaphore, uint32_t amount);
  void compare(uint64_t cycle);
  uint32_t nonzero() const;
  void tell(uint32_t semaphore) const;

  const uint32_t core_id_;
  const uint64_t delay_;
  ActivityFlag activity_;
  const CoreProbe& probe_;
  std::vector<Entry> entries_;
  std::deque<Pending> pending_;   // in order of time
  std::vector<Applied> applied_;  // in this cycle
  const VerilogUse use_;
  std::unique_ptr<SemaphoreVerilog> verilog_;
  Task task_;                // for the first of them
  Task* watcher_ = nullptr;  // and why it is notified
  uint32_t watch_reason_ = 0;
};

}  // namespace tpu::model
