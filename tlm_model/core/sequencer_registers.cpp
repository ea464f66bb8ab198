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
       on_write<&Self::check_slots>(seq::kSlotCheck), on_write<&Self::check_gang>(seq::kGangCheck),
       on_write<&Self::mask_written>(seq::kMask), on_write<&Self::tag_written>(seq::kTag),
       on_write<&Self::answer>(seq::kAnswer)});
  return kMap.view();
}

SequencerRegisters::SequencerRegisters(SequencerControl& control, LaunchState& launch,
                                       SequencerFigures& figures, uint32_t core, uint32_t cores)
    : RegisterBlock(registers()), control_(control), launch_(launch), core_(core), cores_(cores) {
  bind(seq::kPc, figures.pc);
  bind(seq::kCommands, figures.commands);
  bind(seq::kCall, figures.call);
  bind(seq::kSlotBank, launch.slot_bank);
  bind(seq::kSlotCount, launch.slot_count);
  bind(seq::kStep, launch.step);
  bind(seq::kReplica, launch.place);
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

// 0: rows that are no gang of this core.
void SequencerRegisters::check_gang(uint32_t value) {
  const spec::CoreSet gang =
      slots_->gang((value & seq::kGangCheckBankMask) != 0 ? 1 : 0, value & seq::kGangCheckRowMask,
                   (value & seq::kGangCheckRowsMask) >> seq::kGangCheckRowsShift);
  const bool good = gang.has(core_) && gang.end() <= cores_;
  cell(seq::kGangResult) =
      good ? gang.size() << seq::kGangResultCoresShift | gang.lowest() << seq::kGangResultRootShift
           : 0;
}

void SequencerRegisters::mask_written() {
  const uint32_t rows = launch_.place >> seq::kReplicaGangRowsShift;
  launch_.gang = rows == 0 ? spec::CoreSet(launch_.mask)
                           : slots_->gang(launch_.slot_bank, launch_.slot_count, rows);
  if (rows != 0) {
    launch_.cores = launch_.gang.size();
  }
}

// Binds the gang: its packets are taken from now on.
void SequencerRegisters::tag_written() {
  launch_.tag_open = true;
  launch_.first_open_step = 0;
}

}  // namespace tpu::model
