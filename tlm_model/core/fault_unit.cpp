// Filling and reading of the fault record.
#include "core/fault_unit.hpp"

#include <cstring>

#include "core/program.hpp"
#include "kernel/cycles.hpp"
#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/fault_table.hpp"

namespace tpu::model {

static_assert(sizeof(tpu_fault_record_t) == spec::fault::kRecordBytes);
static_assert(spec::fault::kRecordBytes == spec::fault::kRecordCount * sizeof(uint32_t));
static_assert(sizeof(tpu_fault_record_t::heads) == spec::kQueueCount * sizeof(tpu_queue_head_t));

FaultInfo fault_of(const DecodedCommand& command, uint16_t code, int unit) {
  FaultInfo info;
  info.code = code;
  info.unit = unit;
  info.pc = command.pc;
  info.op_id = command.op_id;
  return info;
}

std::string two_waiters_text(uint32_t semaphore, int first, int unit) {
  const auto name = [](int number) {
    return number == kSequencerUnit ? std::string("sequencer")
                                    : std::string(spec::kQueueNames[static_cast<size_t>(number)]);
  };
  return name(unit) + " waits for semaphore " + std::to_string(semaphore) + ", for which " +
         name(first) +
         " waits or has waited: a semaphore has one waiting queue for the whole program; signal "
         "another semaphore for " +
         name(unit);
}

FaultUnit::FaultUnit(sc_core::sc_module_name name, uint32_t core_id, const LaunchState& launch,
                     Heads heads, CoreProbe& probe, std::function<void()> on_fault)
    : sc_module(name),
      RegisterBlock(registers()),
      core_id_(core_id),
      launch_(launch),
      heads_(heads),
      probe_(probe),
      on_fault_(std::move(on_fault)) {}

void FaultUnit::raise(const FaultInfo& info, std::string text) {
  ++cell(spec::fault::kCount);
  probe_.fault([&] {
    return FaultEvent{.cycle = now_cycles(),
                      .source = {.core = core_id_,
                                 .unit = static_cast<uint32_t>(info.unit),
                                 .step = launch_.job_step,
                                 .pc = info.pc,
                                 .op_id = info.op_id},
                      .code = info.code,
                      .detail = info.detail,
                      .address = info.address,
                      .length = info.length,
                      .slot = info.slot,
                      .semaphore = info.semaphore,
                      .wanted = info.wanted,
                      .value = info.value,
                      .text = text};
  });
  if (!valid_) {
    valid_ = true;
    text_ = std::move(text);
    text_cycle_ = now_cycles();
    fill(info);
  }
  on_fault_();
}

void FaultUnit::fill(const FaultInfo& info) {
  record_ = {};
  record_.fault_seq = reg(spec::fault::kCount);
  record_.code = static_cast<uint8_t>(info.code);
  record_.engine =
      static_cast<uint8_t>(info.unit == kSequencerUnit ? spec::fault::kEngineSequencer
                                                       : static_cast<uint32_t>(info.unit));
  record_.core = static_cast<uint16_t>(core_id_);
  record_.launch_id = launch_.launch;
  record_.step = launch_.step;
  record_.cycle = now_cycles();
  record_.pc = info.pc;
  record_.op_id = info.op_id;
  record_.address = info.address;
  record_.length = info.length;
  record_.slot = info.slot;
  record_.detail = info.detail;
  record_.origin = static_cast<uint16_t>(core_id_);
  record_.mask = launch_.place >> spec::seq::kReplicaGangRowsShift == 0 ? launch_.mask : 0;
  for (size_t i = 0; i < heads_.size(); ++i) {
    const QueueHead head = heads_[i] != nullptr ? heads_[i]->head() : QueueHead{};
    if (head.command != nullptr) {
      record_.heads[i].opcode = static_cast<uint8_t>(head.command->opcode);
      record_.heads[i].state = static_cast<uint8_t>(head.waiting ? spec::fault::kQueueWaiting
                                                                 : spec::fault::kQueueRunning);
      record_.heads[i].sem = static_cast<uint16_t>(head.semaphore);
    }
  }
  record_.sem_id = static_cast<uint16_t>(info.semaphore);
  record_.sem_wanted = info.wanted;
  record_.sem_value = info.value;
  record_.value = info.data;
  record_.limit = info.limit;
}

void FaultUnit::clear() {
  valid_ = false;
  record_ = {};
}

RegisterMap FaultUnit::registers() {
  namespace regs = spec::fault;
  static constexpr auto kMap =
      make_register_map(regs::kTable, {on_value<&FaultUnit::record_word>(regs::kRecord),
                                       on_value<&FaultUnit::valid_register>(regs::kValid),
                                       on_write<&FaultUnit::valid_written>(regs::kValid),
                                       on_write<&FaultUnit::raise_written>(regs::kRaise)});
  return kMap.view();
}

uint32_t FaultUnit::record_word(uint32_t index) const {
  uint32_t word;
  std::memcpy(&word, reinterpret_cast<const uint8_t*>(&record_) + index * sizeof word, sizeof word);
  return word;
}

void FaultUnit::valid_written(uint32_t value) {
  if ((value & 1) != 0) {
    clear();
  }
}

void FaultUnit::raise_written(uint32_t value) {
  FaultInfo info;
  info.code = static_cast<uint16_t>(value);
  info.detail = value >> 16;
  raise(info, "raised by the control hart");
}

}  // namespace tpu::model
