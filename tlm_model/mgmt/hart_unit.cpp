// Control hart in simulated time: the slice loop.
#include "mgmt/hart_unit.hpp"

#include <algorithm>
#include <utility>

#include "hart/hart_csr.hpp"
#include "kernel/cycles.hpp"
#include "kernel/host_profile.hpp"
#include "tpu/spec/hart_map.h"
#include "tpu/spec/sysctl_regs.hpp"

namespace tpu::model {
namespace {

HartTiming timing_of(const spec::BoardParams& params) {
  const auto cycles = [](int64_t value) { return static_cast<uint32_t>(value); };
  return {.taken_branch_cycles = cycles(params.mgmt.taken_branch_cycles),
          .load_cycles = cycles(params.mgmt.load_cycles),
          .mul_cycles = cycles(params.mgmt.mul_cycles),
          .div_cycles = cycles(params.mgmt.div_cycles)};
}

}  // namespace

HartUnit::HartUnit(sc_core::sc_module_name name, uint32_t hart_id, const spec::BoardParams& params,
                   Irq& irq, HartClock& clock, Activity& activity, const Watchers& watchers,
                   Callbacks callbacks)
    : sc_module(name),
      params_(params),
      irq_(irq),
      clock_(clock),
      awake_(activity),
      probes_(watchers.probes),
      debugger_(watchers.debugger),
      core_id_(hart_id),
      callbacks_(std::move(callbacks)),
      hart_(hart_id, timing_of(params)),
      watchdog_cycles_(static_cast<uint64_t>(params.mgmt.watchdog_us * params.core.clock_mhz)) {
  SC_METHOD(line_method);
  sensitive << irq_.event() << control_event_;
  dont_initialize();
}

void HartUnit::set_run(bool run, uint32_t reset_pc) {
  if (run == run_) {
    return;
  }
  run_ = run;
  lost_ = hung_ = false;
  awake_since_ = now_cycles();
  ++generation_;
  reset_pc_ = reset_pc;
  if (run) {
    hart_.reset(reset_pc);
    awake_.set(true);
  }
  control_event_.notify(sc_core::SC_ZERO_TIME);
}

void HartUnit::set_halt(bool halt) {
  halt_ = halt;
  control_event_.notify(sc_core::SC_ZERO_TIME);
}

void HartUnit::hang() { hung_ = true; }

void HartUnit::derail() {
  constexpr uint32_t kNowhere = 0xFFFF0000;
  hart_.set_pc(kNowhere);
}

void HartUnit::visit_state(spec::Archive& archive) {
  archive(hart_, run_, halt_, lost_, step_, awake_since_, asleep_since_, generation_, reset_pc_);
  archive.need((step_.until == kNever || is_ahead(step_.until)) && awake_since_ <= now_cycles() &&
                   (asleep_since_ == kNever || asleep_since_ <= now_cycles()),
               "a hart runs at another time than the board");
  if (archive.loading()) {
    awake_.set(step_.until != kNever);
    control_event_.notify(sc_core::SC_ZERO_TIME);
  }
}

void HartUnit::line_method() {
  if (waits_ == Waits::kAsleep || (waits_ == Waits::kStopped && control_event_.triggered())) {
    wake();
  }
}

// What it has waited for is there: goes on until it waits again. A hart that was loaded may be in
// the middle of a step.
void HartUnit::wake() {
  if (waits_ == Waits::kHeld || waits_ == Waits::kAsleep ||
      (waits_ == Waits::kStopped && step_.until == kNever)) {
    awake_since_ = now_cycles();
  }
  if (waits_ == Waits::kAsleep) {
    tell(HartEvent::Kind::kRun);
    hart_.advance_cycles((now_cycles() - std::exchange(asleep_since_, kNever)) /
                         static_cast<uint64_t>(params_.mgmt.clock_divider));
  }
  for (;;) {
    if (step_.until == kNever) {
      if (rest()) {
        return;
      }
      begin_step();
    }
    if (step_.until != now_cycles()) {
      wait_until(step_.until, Waits::kStep);
      return;
    }
    end_step();
    tell(HartEvent::Kind::kRun);
    if (now_cycles() - awake_since_ > watchdog_cycles_ && run_ && !hart_.dead()) {
      lost_ = true;
      callbacks_.on_dead();
    }
  }
}

void HartUnit::wait_until(uint64_t cycle, Waits waits) {
  waits_ = waits;
  clock_.wake_at(cycle, core_id_, *this);
}

// True: there is nothing to run, and the hart waits until there may be.
bool HartUnit::rest() {
  if (!run_ || halt_ || lost_ || hung_ || hart_.dead()) {
    awake_.set(false);
    waits_ = Waits::kStopped;
    return true;
  }
  if (held()) {  // what the driver sees is a hart that is slow, not a board at rest
    awake_.set(true);
    wait_until(
        now_cycles() + static_cast<uint64_t>(params_.mgmt.quantum * params_.mgmt.clock_divider),
        Waits::kHeld);
    return true;
  }
  hart_.set_irq(HartIrq::kExternal, irq_.line());
  if (!hart_.sleeping()) {
    return false;
  }
  awake_.set(false);
  asleep_since_ = std::min(asleep_since_, now_cycles());
  tell(HartEvent::Kind::kSleep);
  waits_ = Waits::kAsleep;
  return true;
}

void HartUnit::tell(HartEvent::Kind kind, uint32_t data) {
  if (probes_ == nullptr) {
    return;
  }
  probes_->tell<HartEvent>(core_bit(core_id_), ProbeEvent::kHart, &ProbeSink::hart, [&] {
    HartEvent event{.cycle = now_cycles(), .core = core_id_, .kind = kind, .pc = hart_.pc()};
    if (kind == HartEvent::Kind::kMmio) {
      event.address = hart_.pending_mmio().addr;
      event.data = data;
      event.write = hart_.pending_mmio().write;
    } else {
      event.mstatus = hart_.csr(kCsrMstatus);
      event.mie = hart_.csr(kCsrMie);
      event.mip = hart_.csr(kCsrMip);
      event.mepc = hart_.csr(kCsrMepc);
      event.mcause = hart_.csr(kCsrMcause);
      event.mtval = hart_.csr(kCsrMtval);
    }
    return event;
  });
}

void HartUnit::tell_pc() {
  if (!pcs_watched() ||
      std::ranges::find(probes_->watched_pcs(), hart_.pc()) == probes_->watched_pcs().end()) {
    return;
  }
  probes_->tell<HartPcEvent>(core_bit(core_id_), ProbeEvent::kHartPc, &ProbeSink::hart_pc, [&] {
    return HartPcEvent{.cycle = now_cycles(), .core = core_id_, .pc = hart_.pc()};
  });
}

HartRun HartUnit::run_slice(uint64_t budget_cycles) {
  const HostTimer timer(HostWork::kHart);
  return debugger_ == nullptr ? run_hart(budget_cycles) : debugged_slice(budget_cycles);
}

// As Hart::run(), with stops in between: a slice ends where it would have ended without them, since
// no interrupt can come up inside of one.
HartRun HartUnit::debugged_slice(uint64_t budget_cycles) {
  HartRun slice{0, HartStop::kBudget};
  while (!held()) {
    bool stepped = false;
    const uint64_t left = budget_cycles - slice.cycles;
    const HartRun part =
        debugger_->leave(core_id_) == HartLeave::kStep ? step_hart(left, stepped) : run_hart(left);
    slice.cycles += part.cycles;
    if (part.reason == HartStop::kBreak || part.reason == HartStop::kWatch ||
        part.reason == HartStop::kTrap) {
      debugger_->hart_stands(core_id_, part.reason);
    } else if (stepped) {
      debugger_->hart_stands(core_id_, HartStop::kBudget);
    }
    if (part.reason == HartStop::kMmio || part.reason == HartStop::kWfi ||
        part.reason == HartStop::kTrap) {
      slice.reason = part.reason;
      break;
    }
    if (slice.cycles >= budget_cycles) {
      break;
    }
  }
  return slice;
}

// As Hart::run(); instruction by instruction while somebody waits for one of them.
HartRun HartUnit::run_hart(uint64_t budget_cycles) {
  if (!pcs_watched()) {
    return hart_.run(budget_cycles);
  }
  HartRun run{0, HartStop::kBudget};
  do {
    bool stepped = false;
    const HartRun part = step_hart(budget_cycles - run.cycles, stepped);
    run = {run.cycles + part.cycles, part.reason};
  } while (run.reason == HartStop::kBudget && run.cycles < budget_cycles);
  return run;
}

// One instruction, unless what the last one has cost uses the budget up.
HartRun HartUnit::step_hart(uint64_t budget_cycles, bool& stepped) {
  tell_pc();
  HartRun run = hart_.run(0);
  if (run.reason == HartStop::kBudget && run.cycles < budget_cycles) {
    const HartRun one = hart_.run(1);
    run = {run.cycles + one.cycles, one.reason};
    stepped = one.reason == HartStop::kBudget || one.reason == HartStop::kWfi;
  }
  return run;
}

// Goes on behind accesses that need not wait for their cycle, and returns the cycles that the hart
// is ahead of simulated time. Whoever watches the hart sees each access at its cycle, and one that
// takes interrupts takes them as early as it can.
uint64_t HartUnit::run_untimed(HartRun& slice) {
  const auto quantum = static_cast<uint64_t>(params_.mgmt.quantum);
  const auto bus_cycles = static_cast<uint64_t>(params_.mgmt.mmio_cycles);
  const bool watched = probes_ != nullptr && probes_->wants(ProbeEvent::kHart, core_bit(core_id_));
  uint64_t ahead = slice.cycles;
  while (slice.reason == HartStop::kMmio && ahead + bus_cycles < quantum && !watched &&
         !hart_.takes_interrupts() && callbacks_.untimed(hart_.pending_mmio())) {
    ahead += bus_cycles;
    hart_.advance_cycles(bus_cycles);
    serve_access();
    slice = run_slice(quantum - ahead);
    ahead += slice.cycles;
  }
  return ahead;
}

// A device sees an access when the instructions before it and the bus have taken their time.
void HartUnit::begin_step() {
  awake_.set(true);
  HartRun slice = run_slice(static_cast<uint64_t>(params_.mgmt.quantum));
  uint64_t hart_cycles = run_untimed(slice);
  if (slice.reason == HartStop::kMmio) {
    hart_cycles += static_cast<uint64_t>(params_.mgmt.mmio_cycles);
  }
  const auto divider = static_cast<uint64_t>(params_.mgmt.clock_divider);
  step_ = {now_cycles() + hart_cycles * divider, slice.reason, generation_};
}

void HartUnit::end_step() {
  const Step step = std::exchange(step_, {});
  if (step.generation != generation_) {
    return;
  }
  if (step.reason == HartStop::kTrap) {
    callbacks_.on_dead();
  } else if (step.reason == HartStop::kMmio && run_ && hart_.mmio_pending()) {
    hart_.advance_cycles(static_cast<uint64_t>(params_.mgmt.mmio_cycles));
    serve_access();
  }
}

void HartUnit::serve_access() {
  uint32_t data = hart_.pending_mmio().data;
  const bool served = device_access(hart_.pending_mmio(), data);
  tell(HartEvent::Kind::kMmio, data);
  if (hart_.pending_mmio().write &&
      hart_.pending_mmio().addr == TPU_HART_SYSCTL_BASE + spec::sysctl::kHeartbeat) {
    awake_since_ = now_cycles();  // at work, however much there is of it
  }
  if (served) {
    hart_.complete_mmio(data);
  } else {
    hart_.fail_mmio();
  }
  if (debugger_ == nullptr) {
    return;
  }
  if (hart_.watch_hit()) {
    debugger_->hart_stands(core_id_, HartStop::kWatch);
  } else if (debugger_->leave(core_id_) == HartLeave::kStep) {
    debugger_->hart_stands(core_id_, HartStop::kBudget);
  }
}

// The bus takes its time before (mgmt.mmio_cycles).
bool HartUnit::device_access(const MmioAccess& access, uint32_t& data) {
  auto* const bytes = reinterpret_cast<uint8_t*>(&data);
  return bus_.perform(bus_isock, access.addr, {bytes, access.size_bytes}, access.write);
}

}  // namespace tpu::model
