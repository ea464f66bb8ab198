// Texts of fault records; meanings: spec/formats/rings.toml.
#include "src/texts/fault_text.hpp"

#include <fmt/format.h>

#include <array>
#include <memory>

#include "exe/code_text.hpp"
#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::driver {
namespace {

struct FaultName {
  const char* name;
  const char* meaning;
};
constexpr std::array<FaultName, 23> kFaults = {
    {{"NONE", "no fault recorded"},
     {"DESCRIPTOR", "malformed command or instruction field"},
     {"SLOT_RANGE", "access outside of its binding slot"},
     {"VMEM_RANGE", "access outside of VMEM"},
     {"SMEM_RANGE", "access outside of SMEM"},
     {"HBM_ECC", "uncorrectable memory error"},
     {"ILLEGAL_INSN", "unknown instruction, or pc outside of the program"},
     {"SEM_OVERFLOW", "semaphore above its range"},
     {"SEM_NONZERO_AT_END", "a semaphore is not zero at the end of the program"},
     {"SEM_TWO_WAITERS", "a second queue waits for a semaphore"},
     {"REMOTE_STRAY", "remote write or signal of an unknown gang"},
     {"WATCHDOG", "no progress for the time of the watchdog"},
     {"DEADLOCK", "nothing is in flight and the program is not done"},
     {"PEER_LOST", "a core of the gang does not answer"},
     {"HOST_DMA", "host transfer inside a launch failed"},
     {"FW_TRAP", "the control hart trapped"},
     {"LINK_DOWN", "an inter-chip link is down"},
     {"RTL_MISMATCH", "the Verilog and the model differ"},
     {"GANG_MISMATCH", "cores arrived with different launches"},
     {"HOST_ABORT", "aborted by the host"},
     {"NOT_STARTED", "a core of the gang rejected the launch"},
     {"NO_DATA", "the program's control flow depends on data that a timing-only run does not have"},
     {"SRAM_ECC", "uncorrectable error of on-chip memory"}}};

// What a DESCRIPTOR fault's detail says; meanings: spec/regs/fault.toml.
constexpr std::array<const char*, 13> kDescriptorDetails = {
    "",
    "the opcode is not for this queue, or the core lacks the engine",
    "its length does not fit the command",
    "it names a semaphore that does not exist, takes from one semaphore in both waits, or signals "
    "another core from a queue other than dma_remote",
    "it names a scalar register above 31",
    "an operand is in a memory that the command does not reach",
    "element type, element size, counts or strides are not allowed",
    "",
    "its VPU program or kernel is malformed",
    "the header of the program image is wrong",
    "an entry of the slot table is wrong",
    "there is no such core",
    "its destination overlaps an operand, or itself"};

constexpr std::array<const char*, 16> kTraps = {"misaligned instruction address",
                                                "instruction access fault",
                                                "illegal instruction",
                                                "breakpoint",
                                                "misaligned load address",
                                                "load access fault",
                                                "misaligned store address",
                                                "store access fault",
                                                "environment call",
                                                "environment call",
                                                "environment call",
                                                "environment call",
                                                "instruction page fault",
                                                "load page fault",
                                                "unknown cause",
                                                "store page fault"};

constexpr uint8_t kQueueWaits = 1;
constexpr uint8_t kQueueRuns = 2;

std::string engine_name(uint8_t engine) {
  if (engine < spec::kQueueNames.size()) {
    return std::string(spec::kQueueNames[engine]);
  }
  switch (engine) {
    case spec::fault::kEngineSequencer:
      return "sequencer";
    case spec::fault::kEngineHart:
      return "hart";
    case spec::fault::kEngineHostDma:
      return "host DMA";
    default:
      return fmt::format("engine {}", engine);
  }
}

std::string command_name(uint8_t opcode) {
  for (const auto& command : spec::kCommands) {
    if (static_cast<uint8_t>(command.opcode) == opcode) {
      return std::string(command.name);
    }
  }
  return fmt::format("opcode {}", opcode);
}

std::string heads_text(const tpu_fault_record_t& record) {
  std::string text;
  for (size_t i = 0; i < spec::kQueueNames.size(); ++i) {
    const tpu_queue_head_t& head = record.heads[i];
    if (head.state == kQueueWaits) {
      text += fmt::format("\n  {}: {} waits for semaphore {}", spec::kQueueNames[i],
                          command_name(head.opcode), head.sem);
    } else if (head.state == kQueueRuns) {
      text += fmt::format("\n  {}: {} runs", spec::kQueueNames[i], command_name(head.opcode));
    }
  }
  return text;
}

bool about_semaphores(uint16_t code) {
  return code == TPU_FAULT_SEM_OVERFLOW || code == TPU_FAULT_SEM_NONZERO_AT_END ||
         code == TPU_FAULT_SEM_TWO_WAITERS || code == TPU_FAULT_WATCHDOG ||
         code == TPU_FAULT_DEADLOCK;
}

bool about_ranges(uint16_t code) {
  return code == TPU_FAULT_SLOT_RANGE || code == TPU_FAULT_VMEM_RANGE ||
         code == TPU_FAULT_SMEM_RANGE;
}

std::string limit_text(const tpu_fault_record_t& record) {
  return record.limit < 0 ? "nothing is" : fmt::format("{} at most is", record.limit);
}

// Of an address that no register brings. What is not above the limit starts below address 0.
std::string constant_text(const tpu_fault_record_t& record) {
  return fmt::format(
      ": the address is a constant of the program, not a value from data: it is {}, {}",
      record.value,
      record.value > record.limit ? limit_text(record) + " inside"
                                  : "and the operand reaches below address 0 from there");
}

// The detail in words, behind a comma.
std::string detail_text(const tpu_fault_record_t& record) {
  const uint32_t detail = record.detail;
  if (detail == 0) {
    return about_ranges(record.code) ? constant_text(record) : std::string();
  }
  if (record.code == TPU_FAULT_SLOT_RANGE && detail == spec::fault::kDetailSlot) {
    return fmt::format(
        ": the slot register holds {}, {} in the launch's table", record.value,
        record.value > record.limit ? limit_text(record) : "and the slot that it leads to is not");
  }
  if (about_ranges(record.code) && (detail & spec::fault::kDetailAddress) != 0) {
    return fmt::format(
        ": a value from data left the range that the program allows: the address register holds "
        "{}, {} inside",
        record.value, limit_text(record));
  }
  if (about_ranges(record.code)) {
    return fmt::format(": record {} of the list names {}, {} inside",
                       detail - spec::fault::kDetailRecord, record.value, limit_text(record));
  }
  switch (record.code) {
    case TPU_FAULT_DESCRIPTOR:
      if (detail == spec::fault::kDetailSlotTable) {
        return fmt::format(": entry {} of the slot table is wrong", record.slot);
      }
      if (detail < kDescriptorDetails.size() && *kDescriptorDetails[detail] != 0) {
        return fmt::format(": {}", kDescriptorDetails[detail]);
      }
      break;
    case TPU_FAULT_NO_DATA:
      return detail == spec::fault::kDetailPeerChoice
                 ? ": data choose the core that a transfer goes to; run it without "
                   "SimOptions::no_data"
                 : ": data decide about a loop or a branch; give the loop a constant trip count, "
                   "or run it without SimOptions::no_data";
    case TPU_FAULT_REMOTE_STRAY:
      return detail == spec::fault::kDetailPeerOutside
                 ? fmt::format(": core {} is not in the gang", record.address)
                 : fmt::format(": a packet of gang {} arrived", record.address);
    case TPU_FAULT_SRAM_ECC:
      return fmt::format(": a word of {} is lost; run the program again",
                         detail == spec::fault::kDetailVmem ? "VMEM" : "SMEM");
    case TPU_FAULT_LINK_DOWN:
      return fmt::format(": from chip {} to chip {}", detail & 0xFFFF, detail >> 16);
    case TPU_FAULT_SEM_TWO_WAITERS:  // the semaphore's number, told below
    case TPU_FAULT_GANG_MISMATCH:    // the status's number, told by the code
    case TPU_FAULT_PEER_LOST:
      return {};
    default:
      break;
  }
  return fmt::format(", detail {:#x}", detail);
}

std::string step_limit_text(const tpu_fault_record_t& record) {
  std::string text = fmt::format("WATCHDOG: the step does not end (pc {}, step {}, cycle {})",
                                 record.pc, record.step, record.cycle);
  if (record.length != 0) {
    text += fmt::format(", now in iteration {} of the loop", record.length);
  }
  return text + "; a longer mgmt.watchdog_us or more mgmt.step_watchdogs allow longer steps" +
         heads_text(record);
}

// What raised the fault, and where. The firmware's own records have no statement and no step.
std::string place_text(const tpu_fault_record_t& record) {
  switch (record.engine) {
    case spec::fault::kEngineHart:
      return fmt::format("cycle {}", record.cycle);
    case spec::fault::kEngineHostDma:
      return fmt::format("{}, cycle {}", engine_name(record.engine), record.cycle);
    default:
      return fmt::format("engine {}, pc {}, step {}, cycle {}", engine_name(record.engine),
                         record.pc, record.step, record.cycle);
  }
}

std::string record_text(const tpu_fault_record_t& record, const std::string& trap_place) {
  if (record.code == TPU_FAULT_FW_TRAP) {
    return "FW_TRAP: " + trap_text(record, trap_place);
  }
  if (record.code == TPU_FAULT_WATCHDOG && record.detail == spec::fault::kDetailStepLimit) {
    return step_limit_text(record);
  }
  const FaultName fault =
      record.code < kFaults.size() ? kFaults[record.code] : FaultName{"unknown fault code", "?"};
  std::string text = fmt::format("{}: {} ({})", fault.name, fault.meaning, place_text(record));
  text += detail_text(record);
  if (record.length != 0) {
    text += fmt::format(", address {:#x}, {} bytes", record.address, record.length);
    if (record.code == TPU_FAULT_SLOT_RANGE) {
      text += fmt::format(", slot {}", record.slot);
    }
  }
  if (about_semaphores(record.code) && (record.sem_wanted != 0 || record.sem_value != 0)) {
    text += fmt::format(", semaphore {}: wanted {}, has {}", record.sem_id, record.sem_wanted,
                        record.sem_value);
  }
  return text + heads_text(record);
}

}  // namespace

std::string trap_text(const tpu_fault_record_t& record, const std::string& place) {
  constexpr uint32_t kInterrupt = 0x80000000u;
  const uint32_t cause = record.hart_mcause;
  std::string what;
  if (record.detail == TPU_STATUS_TIMEOUT) {
    what = "ran for longer than mgmt.watchdog_us without a rest or a heartbeat";
  } else if ((cause & kInterrupt) != 0) {
    what = fmt::format("trapped: interrupt {}", cause & ~kInterrupt);
  } else {
    what = fmt::format("trapped: {}", cause < kTraps.size() ? kTraps[cause] : "unknown cause");
  }
  return fmt::format(
      "the control hart {}{} (mepc {:#010x}, mcause {:#x}, mtval {:#010x}, cycle {})", what,
      place.empty() ? "" : " in " + place, record.hart_mepc, cause, record.hart_mtval,
      record.cycle);
}

ErrorPlace op_place(const exe::ExecutableT& program, uint32_t op_id, int device) {
  ErrorPlace place{.device = device, .op = {}, .source = {}};
  if (op_id < program.ops.size()) {
    const exe::OpInfoT& op = *program.ops[op_id];
    place.op = op.name;
    if (!op.file.empty()) {
      place.source = fmt::format("{}:{}", op.file, op.line);
    }
  }
  return place;
}

namespace {

// The statement where the fault was raised, between its neighbours; empty where the fault is of no
// statement.
std::string statements_text(const tpu_fault_record_t& record, const exe::ExecutableT& program) {
  switch (record.code) {
    case TPU_FAULT_NONE:
    case TPU_FAULT_PEER_LOST:
    case TPU_FAULT_HOST_DMA:
    case TPU_FAULT_FW_TRAP:
    case TPU_FAULT_LINK_DOWN:
    case TPU_FAULT_GANG_MISMATCH:
    case TPU_FAULT_HOST_ABORT:
    case TPU_FAULT_NOT_STARTED:
      return {};
    default:
      break;
  }
  std::string text;
  for (const exe::CodeLine& line : exe::code_around(program, record.pc, 1)) {
    text +=
        fmt::format("\n{} word {}: {}", line.word == record.pc ? ">" : " ", line.word, line.text);
  }
  return text;
}

}  // namespace

bool lost_of_program(const tpu_fault_record_t& record, const exe::ExecutableT& program) {
  return record.slot >= program.slots.size() ||
         program.slots[record.slot]->kind == exe::SlotKind::constant;
}

namespace {

// Whose word it is that ECC could not correct.
std::string lost_array_text(const tpu_fault_record_t& record, const exe::ExecutableT& program) {
  if (record.slot >= program.slots.size()) {
    return "the code of the program";
  }
  const exe::SlotT& slot = *program.slots[record.slot];
  const auto named = [&](const auto& tensors) {
    return slot.index < tensors.size() && !tensors[slot.index]->name.empty()
               ? fmt::format(" '{}'", tensors[slot.index]->name)
               : std::string();
  };
  const bool argument = slot.kind == exe::SlotKind::argument;
  const bool result = slot.kind == exe::SlotKind::result;
  return fmt::format("{} {}{}", argument ? "argument" : exe::EnumNameSlotKind(slot.kind),
                     slot.index,
                     argument ? named(program.args)
                     : result ? named(program.results)
                              : "");
}

ErrorCode fault_code(uint16_t code) {
  switch (code) {
    case TPU_FAULT_HBM_ECC:
    case TPU_FAULT_SRAM_ECC:
      return ErrorCode::kDataLoss;
    case TPU_FAULT_GANG_MISMATCH:
    case TPU_FAULT_PEER_LOST:
      return ErrorCode::kInternal;
    default:
      return ErrorCode::kDeviceFault;
  }
}

}  // namespace

std::shared_ptr<const Error> fault_error(const tpu_fault_record_t& record,
                                         const exe::ExecutableT& program, int device,
                                         const std::string& stall_text,
                                         const std::string& core_text,
                                         const std::string& trap_place) {
  ErrorPlace place =
      op_place(program, record.code == TPU_FAULT_NONE ? TPU_OP_NONE : record.op_id, device);
  tpu_fault_record_t told = record;
  if (record.code == TPU_FAULT_HOST_ABORT && !stall_text.empty()) {
    told.code = TPU_FAULT_DEADLOCK;  // the driver took it off because nothing was in flight
  }
  std::string text = fmt::format("{}: {}", program.name, record_text(told, trap_place));
  if (record.code == TPU_FAULT_HBM_ECC) {
    text += fmt::format(" of {}, whose contents are lost", lost_array_text(record, program));
  }
  text += core_text;
  text += statements_text(record, program);  // a deadlock has none: the stall's text has the words
  if (!stall_text.empty()) {
    text += "\nwhat waits for what:\n" + stall_text;
  }
  return std::make_shared<Error>(fault_code(record.code), text, std::move(place));
}

}  // namespace tpu::driver
