// Registers of a sequencer (spec/regs/seq.toml): what describes a launch, its causes of interrupts,
// and the control actions of the owner. What the engines read too is in LaunchState.
#pragma once

#include <cstdint>

#include "core/ports.hpp"
#include "core/slots.hpp"
#include "kernel/register_block.hpp"
#include "tpu/spec/seq_regs.hpp"

namespace tpu::model {

// What the registers ask of the sequencer.
class SequencerControl {
 public:
  virtual ~SequencerControl() = default;
  virtual void start() = 0;
  virtual void abort() = 0;
  virtual void reset() = 0;
  virtual void answer() = 0;
  virtual void lines_changed() = 0;  // IRQ_STATUS or IRQ_ENABLE have another value
  virtual uint32_t state_register() const = 0;
};

// What the registers PC, COMMANDS and CALL show.
struct SequencerFigures {
  uint32_t pc = 0;
  uint32_t commands = 0;  // issued since START
  uint32_t call = 0;      // number of the last host call
};

class SequencerRegisters : public RegisterBlock {
 public:
  // `core`: on its board, which has `cores`.
  SequencerRegisters(SequencerControl& control, LaunchState& launch, SequencerFigures& figures,
                     uint32_t core, uint32_t cores);

  void connect(const Slots& slots) { slots_ = &slots; }
  void raise(uint32_t causes) {
    cell(spec::seq::kIrqStatus) |= causes;
    control_.lines_changed();
  }
  void clear_causes() {
    cell(spec::seq::kIrqStatus) = 0;
    control_.lines_changed();
  }
  uint32_t active_causes() const { return reg(spec::seq::kIrqStatus) & reg(spec::seq::kIrqEnable); }
  uint64_t program_address() const {
    return wide_reg(spec::seq::kProgramLo, spec::seq::kProgramHi);
  }
  uint32_t program_version() const { return reg(spec::seq::kProgramVersion); }
  // 0: off.
  uint64_t watchdog_cycles() const {
    return wide_reg(spec::seq::kWatchdogLo, spec::seq::kWatchdogHi);
  }
  void reset() { reset_registers(); }
  void visit_state(spec::Archive& archive) { visit_registers(archive); }

 private:
  static RegisterMap registers();
  void start() { control_.start(); }
  void abort() { control_.abort(); }
  void reset_core() { control_.reset(); }
  void answer() { control_.answer(); }
  void lines_changed() { control_.lines_changed(); }
  uint32_t state() const { return control_.state_register(); }
  void bank_written() { launch_.slot_bank %= spec::seq::kSlotBanks; }
  void count_written();
  void check_slots(uint32_t value);
  void check_gang(uint32_t value);
  uint32_t replica_register() const;
  void replica_written(uint32_t value);
  void mask_written();
  void tag_written();

  SequencerControl& control_;
  LaunchState& launch_;
  const uint32_t core_;
  const uint32_t cores_;
  const Slots* slots_ = nullptr;
};

}  // namespace tpu::model
