// TensorCore: sequencer, semaphores, engines, VMEM, SMEM, binding slots, fault record and counters,
// wired together. Its HBM and the interconnect are outside (chip and board bind the ports); so is
// the control hart, which reaches the core through the register sockets, the slot memory and the
// interrupt lines.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <systemc>
#include <vector>

#include "command/fold.hpp"
#include "core/engines/dma.hpp"
#include "core/engines/mxu.hpp"
#include "core/engines/vpu.hpp"
#include "core/engines/xlu.hpp"
#include "core/fault_unit.hpp"
#include "core/perf_unit.hpp"
#include "core/ports.hpp"
#include "core/semaphores.hpp"
#include "core/sequencer.hpp"
#include "core/slots.hpp"
#include "core/sram_damage.hpp"
#include "core/unknown_words.hpp"
#include "kernel/cycles.hpp"
#include "kernel/local_memory.hpp"
#include "kernel/remote_if.hpp"
#include "kernel/step_counter.hpp"
#include "probe/core_probe.hpp"
#include "tpu/board_report.hpp"

namespace tpu::model {

// What the cores of a board share; all of it outlives them.
struct CoreServices {
  Agenda& agenda;
  Activity& activity;
  JobPool& pool;
  EqualWrites& equal_writes;
  FluidShare& fluid;
  ProgramCache& programs;
  StepCounter& steps;
  const ProbeSet& probes;            // who listens to the cores
  bool no_data = false;              // timing only: no command's data are computed
  uint64_t schedule_seed = 0;        // of random legal schedules; 0: none
  const spec::Fold* fold = nullptr;  // of the pod that the board is folded for
  VpuSimd vpu_simd = vpu_best_simd();
  // What of this path ("board.chip0.core1.sem", "..dma_in") is Verilog; empty: nothing.
  std::function<VerilogUse(const std::string& path)> verilog{};
  // Makes the engines of the MXU with this SystemC path ("board.chip0.core1.mxu0").
  std::function<MxuUnit(const std::string& path)> make_mxu;
};

class Core : public sc_core::sc_module, private RemoteIf {
 public:
  sc_core::sc_port<HbmIf> hbm_port{"hbm_port"};  // own bank
  sc_core::sc_port<IciIf> ici_port{"ici_port"};
  sc_core::sc_export<RemoteIf> remote_export{"remote_export"};  // for the interconnect
  sc_core::sc_out<bool> done_irq_o{"done_irq_o"};
  sc_core::sc_out<bool> fault_irq_o{"fault_irq_o"};
  sc_core::sc_out<bool> drained_irq_o{"drained_irq_o"};
  sc_core::sc_out<bool> call_irq_o{"call_irq_o"};

  Core(sc_core::sc_module_name name, uint32_t core_id, const spec::BoardParams& params,
       const CoreServices& services, uint64_t hbm_bytes);
  ~Core() override;

  // Register blocks, each 4 KiB (spec/regs): bind to csr_tsock. Memories: bind to mem_tsock.
  Sequencer& seq() const { return *seq_; }
  Semaphores& sem() { return *sem_; }
  FaultUnit& fault() { return *fault_; }
  PerfUnit& perf() { return *perf_; }
  Slots& slots() { return *slots_; }
  LocalMemory& vmem() { return *vmem_; }
  LocalMemory& smem() { return *smem_; }
  Mxu& mxu(size_t index) { return *mxus_[index]; }
  size_t mxus() const { return mxus_.size(); }

  // Faults on purpose: queues of the core, or its sequencer (kSequencerUnit), that stop; damaged
  // words of VMEM and SMEM, which ECC looks at.
  struct Faulty {
    HungUnits hung{};
    SramDamage sram;
  };
  Faulty& faulty() { return faulty_; }
  // What started commands do to data is done when this returns.
  void settle_data();
  // The present launch, or the last one.
  const LaunchState& launch() const { return launch_; }
  // Where a slot of it lies in HBM; none, if it has no such slot.
  Slots::Range slot(uint32_t index) const { return slots_->resolve(launch_, index); }

  void reset() {
    seq_->reset();
    faulty_.sram.written(ProbeMemory::kSmem, 0, smem_->bytes());
  }
  uint32_t core_id() const { return core_id_; }

  // Debug port: all counters of spec/regs/perf.toml at this cycle.
  PerfUnit::Values counters() const { return probe_.counters().at(now_cycles()); }
  CoreTimes::Values times() const { return probe_.counters().times(now_cycles()); }
  CoreProbe& probe() { return probe_; }
  // Nothing queued, in flight or on its way, and no program running.
  bool quiet() const;
  // A command that would signal a semaphore, and how many are in front of it in its queue; without
  // that it is not issued yet.
  struct Signaller {
    spec::CommandPlace at;
    std::optional<uint32_t> behind;
  };

  // The sequencer, if it waits, and the head of each queue that is not empty; who would end their
  // waits is left open.
  std::vector<spec::UnitWait> waits() const;
  // The next command of this core that would signal `semaphore` of core `of`: a queued one
  // (`issued`), or the next in the program's text.
  std::optional<Signaller> signaller(uint32_t of, uint32_t semaphore, bool issued) const;
  // Of a core that is quiet.
  void visit_state(spec::Archive& archive);
  // Queues in order of spec::Queue; null where the core lacks the engine.
  const CommandQueueIf* queue(size_t index) const { return queues_[index]; }

 private:
  RemoteAnswer remote_open(const RemoteWrite& write, RemotePlace* place) override;
  void remote_landed(const RemoteWrite& write, std::span<const uint8_t> data) override;
  RemoteAnswer remote_signal(const RemoteSignal& signal) override;
  RemoteAnswer::Status accept_remote(GangStep from);
  RemoteAnswer place_remote(const RemoteWrite& write, RemotePlace* place);
  uint64_t work_done() const override { return probe_.counters().progress(); }
  bool work_in_flight() const override;
  uint64_t remote_base(const RemoteWrite& write) const override;
  void await_answers(int change) override;
  GangWork gang_work();
  bool ask_boards(const CutIf::Told& told);

  VerilogUse verilog_use(const CoreServices& services, std::string_view block) const;
  void make_memories(uint64_t hbm_bytes, JobPool& pool);
  void make_engines(const CoreServices& services);
  void bind_engine(Engine& engine);
  spec::CommandPlace place_of(const DecodedCommand& command) const;
  std::optional<spec::CommandPlace> signaller_from(uint32_t first, uint32_t last, uint32_t of,
                                                   uint32_t semaphore) const;

  const uint32_t core_id_;
  const spec::BoardParams params_;
  CoreProbe probe_;
  LaunchState launch_;
  Faulty faulty_;
  UnknownWords smem_unknown_;
  ResourceId local_bandwidth_;

  std::unique_ptr<LocalMemory> vmem_;
  std::unique_ptr<DeferredCopies> copies_;
  std::unique_ptr<LocalMemory> smem_;
  std::unique_ptr<Slots> slots_;
  std::unique_ptr<Sequencer> seq_;
  std::unique_ptr<Semaphores> sem_;
  std::unique_ptr<FaultUnit> fault_;
  std::unique_ptr<PerfUnit> perf_;
  std::vector<std::unique_ptr<Mxu>> mxus_;
  std::unique_ptr<Vpu> vpu_;
  std::unique_ptr<Xlu> xlu_;
  std::vector<std::unique_ptr<Dma>> dmas_;
  std::vector<Engine*> engines_;
  std::array<CommandQueueIf*, spec::kQueueCount> queues_{};
};

}  // namespace tpu::model
