// Control hart in simulated time: runs the instruction-set simulator in slices, lets the cycles
// pass by the clock of all harts, and performs its device accesses on the bus. A hart in WFI or in
// reset costs no event. Interrupts are looked at between slices. Device accesses whose cycle makes
// no difference do not end a slice (docs/adr/0030-untimed-register-accesses.md).
#pragma once

#include <tlm_utils/simple_initiator_socket.h>

#include <cstdint>
#include <functional>
#include <systemc>

#include "hart/hart_debugger.hpp"
#include "kernel/activity.hpp"
#include "kernel/bus_access.hpp"
#include "kernel/cycles.hpp"
#include "mgmt/hart_clock.hpp"
#include "mgmt/irq.hpp"
#include "probe/probe_set.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::model {

class HartUnit : public sc_core::sc_module, private HartClock::Sleeper {
 public:
  SC_HAS_PROCESS(HartUnit);
  tlm_utils::simple_initiator_socket<HartUnit> bus_isock{"bus_isock"};

  struct Callbacks {
    std::function<void()> on_dead;  // once: a trap inside a trap handler, or the hart is lost
    std::function<bool(const MmioAccess&)> untimed;  // see RegisterBlock::untimed(); never waits
  };

  // Who looks at the hart; either may be null.
  struct Watchers {
    const ProbeSet* probes;  // are told where it stands
    HartDebugger* debugger;  // may stop it; its stops change no cycle
  };

  HartUnit(sc_core::sc_module_name name, uint32_t hart_id, const spec::BoardParams& params,
           Irq& irq, HartClock& clock, Activity& activity, const Watchers& watchers,
           Callbacks callbacks);

  Hart& hart() { return hart_; }
  const Hart& hart() const { return hart_; }

  // Level of the run control: a rise starts at `reset_pc`, a fall holds the hart in reset.
  void set_run(bool run, uint32_t reset_pc);
  void set_halt(bool halt);
  // Fetches nothing from here until its next reset.
  void hang();
  // Goes on where no memory is.
  void derail();
  bool running() const { return run_; }
  bool lost() const { return lost_; }
  bool awake() const { return awake_.active(); }
  // Loaded, it goes on as it stood, in the middle of a step too.
  void visit_state(spec::Archive& archive);

 private:
  // What has run of the hart's instructions, until its time has passed.
  struct Step {
    uint64_t until = kNever;  // none is under way
    HartStop reason{};
    uint32_t generation = 0;
    void visit_state(spec::Archive& archive) {
      archive(until);
      archive.choice(reason, HartStop::kWatch);
      archive(generation);
    }
  };

  enum class Waits : uint8_t {
    kStopped,  // for the run control
    kHeld,     // for the debugger
    kAsleep,   // for an interrupt, or the run control
    kStep,     // for the end of a step
  };

  void line_method();
  void wake() override;
  bool rest();
  void wait_until(uint64_t cycle, Waits waits);
  void begin_step();
  void end_step();
  bool held() const {
    return debugger_ != nullptr && debugger_->leave(core_id_) == HartLeave::kHold;
  }
  HartRun run_slice(uint64_t budget_cycles);
  HartRun run_hart(uint64_t budget_cycles);
  HartRun debugged_slice(uint64_t budget_cycles);
  HartRun step_hart(uint64_t budget_cycles, bool& stepped);
  uint64_t run_untimed(HartRun& slice);
  void serve_access();
  bool device_access(const MmioAccess& access, uint32_t& data);
  void tell(HartEvent::Kind kind, uint32_t data = 0);
  bool pcs_watched() const {
    return probes_ != nullptr && probes_->wants(ProbeEvent::kHartPc, core_bit(core_id_));
  }
  void tell_pc();

  const spec::BoardParams& params_;
  Irq& irq_;
  HartClock& clock_;
  ActivityFlag awake_;
  const ProbeSet* const probes_;
  HartDebugger* const debugger_;
  const uint32_t core_id_;
  const Callbacks callbacks_;
  Hart hart_;
  BusAccess bus_;
  bool run_ = false;
  bool halt_ = false;
  bool lost_ = false;
  bool hung_ = false;
  const uint64_t watchdog_cycles_;
  uint64_t awake_since_ = 0;
  Waits waits_ = Waits::kStopped;
  Step step_;
  uint64_t asleep_since_ = kNever;  // while it sleeps
  uint32_t generation_ = 0;         // counts starts, so that an old slice does not act on a new run
  uint32_t reset_pc_ = 0;
  sc_core::sc_event control_event_{"control_event"};
};

}  // namespace tpu::model
