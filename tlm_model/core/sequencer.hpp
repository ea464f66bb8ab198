// Sequencer of a core: runs a program image from HBM. Executes scalar instructions, resolves
// registers and issues commands to the engine queues; a full queue or `swait` stalls it, nothing
// else does. `halt` waits for all engines and checks the semaphores. Also the control interface of
// the core (spec/regs/seq.toml), the watchdog, and the state that a launch has. Not modelled:
// instruction fetch from HBM (the image is decoded at START).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <systemc>
#include <vector>

#include "command/fold.hpp"
#include "core/decoded_programs.hpp"
#include "core/engine_queues.hpp"
#include "core/fault_report.hpp"
#include "core/gang_watch.hpp"
#include "core/host_call.hpp"
#include "core/loop_marks.hpp"
#include "core/ports.hpp"
#include "core/program.hpp"
#include "core/program_scout.hpp"
#include "core/scalar_unit.hpp"
#include "core/semaphores.hpp"
#include "core/sequencer_registers.hpp"
#include "core/sequencer_stall.hpp"
#include "core/slots.hpp"
#include "core/sram_damage.hpp"
#include "core/unknown_words.hpp"
#include "kernel/activity.hpp"
#include "kernel/agenda.hpp"
#include "kernel/hbm_if.hpp"
#include "kernel/lazy_alarm.hpp"
#include "kernel/register_socket.hpp"
#include "kernel/step_counter.hpp"
#include "probe/core_probe.hpp"
#include "tpu/board_report.hpp"

namespace tpu::model {

class FaultUnit;

// Blocks that the sequencer drives, all of the same core.
struct SequencerParts {
  EngineQueues::Queues queues;
  Semaphores* semaphores;
  LocalMemory* smem;
  const Slots* slots;
  ProgramCache* programs;
  StepCounter* steps;
  const spec::Fold* fold;      // null: of a board that stands for itself
  UnknownWords* smem_unknown;  // no-data runs, else null
  bool* hung;                  // executes nothing until its launch is stopped
  SramDamage* sram;
  GangWatch::Work gang_work;
  GangWatch::Ask ask_boards;
  ProgramScout::BehindCut behind_cut;
};

class Sequencer : public sc_core::sc_module, private SequencerControl {
  SequencerFigures figures_;
  SequencerRegisters registers_;

 public:
  SC_HAS_PROCESS(Sequencer);
  RegisterSocket csr_tsock{"csr_tsock", registers_};
  sc_core::sc_port<HbmIf> hbm_port{"hbm_port"};
  sc_core::sc_port<FaultIf> fault_port{"fault_port"};
  sc_core::sc_out<bool> done_irq_o{"done_irq_o"};
  sc_core::sc_out<bool> fault_irq_o{"fault_irq_o"};
  sc_core::sc_out<bool> drained_irq_o{"drained_irq_o"};
  sc_core::sc_out<bool> call_irq_o{"call_irq_o"};

  Sequencer(sc_core::sc_module_name name, uint32_t core_id, const spec::BoardParams& params,
            Agenda& agenda, Activity& activity, CoreProbe& probe, LaunchState& launch);

  void connect(const SequencerParts& parts);
  // Called by the fault unit after it has kept the record.
  void on_fault();
  // The last write of a peer that was under way has landed.
  void on_landed();
  // Registers, state and engines as after power-on; HBM, VMEM, slot banks and TAG stay.
  void reset() override;

  // First cycle in which the core may send something to another board, or report to its hart,
  // unless something arrives; at the end of a cycle. 0: may be with the next event. kNever: it
  // runs nothing. Of a board in a pod.
  uint64_t silent();

  // Of one that runs nothing. Programs are decoded again when they start.
  void visit_state(spec::Archive& archive);

  uint32_t state() const { return state_; }
  // It waits for the host's answer.
  bool calls_host() const { return call_.open(); }
  struct Progress {
    uint32_t step = 0;
    std::vector<LoopMarks::Position> loops;  // that it is in, by its marks, the outermost first
  };
  Progress progress() const { return {launch_.step, marks_.all(op())}; }
  uint32_t pc() const { return pc_; }
  uint32_t op() const;  // that the instruction at pc() works for, or OP_NONE
  const Program* program() const { return program_.get(); }
  // The core that a scalar register names.
  uint32_t core_in_register(size_t index) const;
  // What it waits for, if anything. For reports of hangs.
  std::optional<spec::UnitWait> waits() const;

 private:
  using Stall = SequencerStall::Why;

  void run_method();
  void watchdog_method();
  void irq_method();

  // SequencerControl.
  void start() override;
  void abort() override;
  void answer() override;
  void lines_changed() override { irq_event_.notify(sc_core::SC_ZERO_TIME); }
  uint32_t state_register() const override;

  bool load_program();
  void stop(uint32_t state);
  void finish_program();

  bool step_until_wait(uint64_t now);  // true: continue in this cycle
  bool execute_scalar(const ProgramItem& item);
  bool execute_memory(const spec::ScalarInsn& insn);
  bool execute_timed(const ProgramItem& item, uint64_t now);
  bool issue(const DecodedCommand& command, uint64_t now);
  bool call_host(uint32_t number);
  bool wait_for_semaphore(const spec::ScalarInsn& insn, uint64_t now);
  bool halt();
  // The caller sets the trigger.
  void stall(Stall why, uint32_t index = 0, uint32_t wanted = 0);
  void end_stall();
  ProbeSource source() const;
  WaitEvent wait_event(bool begin) const;
  ProgramEvent program_event(bool begin, bool complete) const;
  // False after a fault.
  bool tell_access(const ScalarUnit::Access& access);
  FaultInfo fault_here(uint16_t code, uint32_t detail) const;

  const uint32_t core_id_;
  const spec::BoardParams params_;
  CoreProbe& probe_;
  LaunchState& launch_;
  SequencerParts parts_{};
  EngineQueues queues_;
  ActivityFlag activity_;

  uint32_t state_;
  bool refused_ = false;
  bool draining_ = false;
  FaultReport report_;

  struct Loaded {
    uint32_t version;
    uint64_t bytes;  // of the image
    std::shared_ptr<const Program> program;
  };
  std::map<uint64_t, Loaded> loaded_;  // by image address
  std::shared_ptr<const Program> program_;

  ScalarUnit scalar_;
  uint32_t& pc_ = figures_.pc;
  uint64_t time_ = 0;     // the sequencer's own clock, at or after the present cycle
  bool charged_ = false;  // the instruction at pc_ has had its cycles
  SequencerStall stall_;
  HostCall call_;
  uint64_t issued_ever_ = 0;  // commands, of all programs
  GangWatch watch_;           // for the watchdog
  LoopMarks marks_;
  ProgramScout scout_;

  // Reasons of its task: progress of a queue, of any queue while all are watched, or settled
  // semaphores.
  static constexpr uint32_t kQueueProgress = 2;  // of the first queue, shifted for the others
  static constexpr uint32_t kProgress = uint32_t{1} << 29;
  static constexpr uint32_t kSettled = uint32_t{1} << 30;
  static constexpr uint32_t kAnyChange = (uint32_t{1} << 31) - 1;
  static_assert(spec::kQueueCount < 28);
  Task task_;
  LazyAlarm watchdog_{"watchdog_event"};
  sc_core::sc_event irq_event_{"irq_event"};
};

}  // namespace tpu::model
