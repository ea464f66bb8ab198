// Registers of a sequencer.
#include "core/sequencer_registers.hpp"

#include <algorithm>

#include "tpu/spec/seq_table.hpp"

namespace tpu::model {

namespace seq = spec::seq;
static_assert(seq::kIdReset == seq::kIdValue);

RegisterMap SequencerRegisters::registers() {
  using Self = SequencerRegisters;
  static constexpr auto kMap = make_register_map(
      seq::kTable,
      {on_write<&Self::start>(seq::kStart), on_write<&Self::abort>(seq::kAbort),
       on_write<&Self::reset_core>(seq::kReset), on_value<&Self::state>(seq::kState),
       on_write<&Self::lines_changed>(seq::kIrqStatus),
       on_write<&Self::lines_changed>(seq::kIrqEnable),
       on_write<&Self::bank_written>(seq::kSlotBank),
       on_write<&Self::count_written>(seq::kSlotCount),
       on_write<&Self::check_slots>(seq::kSlotCheck), on_write<&Self::tag_written>(seq::kTag),
       on_write<&Self::answer>(seq::kAnswer)});
  return kMap.view();
}

SequencerRegisters::SequencerRegisters(SequencerControl& control, LaunchState& launch,
                                       SequencerFigures& figures)
    : RegisterBlock(registers()), control_(control), launch_(launch) {
  bind(seq::kPc, figures.pc);
  bind(seq::kCommands, figures.commands);
  bind(seq::kCall, figures.call);
  bind(seq::kSlotBank, launch.slot_bank);
  bind(seq::kSlotCount, launch.slot_count);
  bind(seq::kStep, launch.step);
  bind(seq::kReplica, launch.replica);
  bind(seq::kCores, launch.cores);
  bind(seq::kMask, launch.mask);
  bind(seq::kTag, launch.tag);
  bind(seq::kLaunch, launch.launch);
}

void SequencerRegisters::count_written() {
  launch_.slot_count = std::min(launch_.slot_count, seq::kSlotEntries);
}

void SequencerRegisters::check_slots(uint32_t value) {
  const uint32_t count = std::min(value & seq::kSlotCheckCountMask, seq::kSlotEntries);
  const uint32_t bad = slots_->check((value & seq::kSlotCheckBankMask) != 0 ? 1 : 0, count);
  cell(seq::kSlotResult) = bad < count ? (bad | seq::kSlotResultBadMask) : 0;
}

// Binds the gang: its packets are taken from now on.
void SequencerRegisters::tag_written() {
  launch_.tag_open = true;
  launch_.first_open_step = 0;
}

}  // namespace tpu::model
