// Texts of statuses and fault records; meanings: spec/formats/rings.toml.
#include "src/fault_text.hpp"

#include <fmt/format.h>

#include <array>
#include <memory>

#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::driver {
namespace {

constexpr std::array<const char*, 22> kStatusNames = {
    "OK",           "BAD_OPCODE", "BAD_CRC",       "BAD_SEQ",     "BAD_FIELD", "HOST_ADDR",
    "HBM_RANGE",    "ALIGN",      "NO_PROGRAM",    "BAD_PROGRAM", "NO_SLOT",   "BUSY",
    "ISA_MISMATCH", "status 13",  "status 14",     "status 15",   "FAULT",     "ABORTED",
    "FLUSHED",      "TIMEOUT",    "GANG_MISMATCH", "PEER_LOST"};

struct FaultName {
  const char* name;
  const char* meaning;
};
constexpr std::array<FaultName, 21> kFaults = {
    {{"NONE", "no fault recorded"},
     {"DESCRIPTOR", "malformed command or instruction field"},
     {"SLOT_RANGE", "access outside of its binding slot"},
     {"VMEM_RANGE", "access outside of VMEM"},
     {"SMEM_RANGE", "access outside of SMEM"},
     {"HBM_ECC", "uncorrectable memory error"},
     {"ILLEGAL_INSN", "unknown instruction, or pc outside of the program"},
     {"SEM_OVERFLOW", "semaphore above its range"},
     {"SEM_NONZERO_AT_END", "a semaphore is not zero at the end of the program"},
     {"SEM_TWO_WAITERS", "two queues wait on one semaphore"},
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
     {"NOT_STARTED", "a core of the gang refused the launch"}}};

constexpr uint8_t kQueueWaits = 1;
constexpr uint8_t kQueueRuns = 2;

std::string engine_name(uint8_t engine) {
  if (engine < spec::kQueueNames.size()) {
    return std::string(spec::kQueueNames[engine]);
  }
  constexpr std::array<const char*, 3> kOthers = {"sequencer", "hart", "host DMA"};
  const size_t other = engine - spec::kQueueNames.size();
  return other < kOthers.size() ? kOthers[other] : fmt::format("engine {}", engine);
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

std::string record_text(const tpu_fault_record_t& record) {
  const FaultName fault =
      record.code < kFaults.size() ? kFaults[record.code] : FaultName{"unknown fault code", "?"};
  std::string text =
      fmt::format("{}: {} (engine {}, pc {}, step {}, cycle {})", fault.name, fault.meaning,
                  engine_name(record.engine), record.pc, record.step, record.cycle);
  if (record.code == TPU_FAULT_WATCHDOG && record.detail == spec::fault::kDetailStepLimit) {
    text = fmt::format("WATCHDOG: the step does not end (pc {}, step {}, cycle {})", record.pc,
                       record.step, record.cycle);
    if (record.length != 0) {
      text += fmt::format(", now in iteration {} of the loop", record.length);
    }
    return text + "; a longer mgmt.watchdog_us allows longer steps" + heads_text(record);
  }
  if (record.length != 0 || record.address != 0) {
    text += fmt::format(", address {:#x}, {} bytes", record.address, record.length);
    if (record.code == TPU_FAULT_SLOT_RANGE) {
      text += fmt::format(", slot {}", record.slot);
    }
  }
  if (about_semaphores(record.code) && (record.sem_wanted != 0 || record.sem_value != 0)) {
    text += fmt::format(", semaphore {}: wanted {}, has {}", record.sem_id, record.sem_wanted,
                        record.sem_value);
  }
  if (record.code == TPU_FAULT_FW_TRAP) {
    text += fmt::format(", mepc {:#010x}, mcause {:#x}, mtval {:#010x}", record.hart_mepc,
                        record.hart_mcause, record.hart_mtval);
  } else if (record.detail != 0 &&
             (record.code == TPU_FAULT_SLOT_RANGE || record.code == TPU_FAULT_VMEM_RANGE)) {
    text += fmt::format(", record {} of the list", record.detail - 1);
  } else if (record.detail != 0) {
    text += fmt::format(", detail {:#x}", record.detail);
  }
  return text + heads_text(record);
}

}  // namespace

bool status_holds(uint16_t status, uint16_t opcode) {
  if (status == TPU_STATUS_FLUSHED) {
    return true;
  }
  return status != TPU_STATUS_OK && opcode != TPU_OP_LOAD_PROGRAM &&
         opcode != TPU_OP_UNLOAD_PROGRAM && opcode != TPU_OP_NOP && opcode != TPU_OP_READ_COUNTERS;
}

bool status_refused(uint16_t status) {
  return status >= TPU_STATUS_BAD_OPCODE && status <= TPU_STATUS_ISA_MISMATCH;
}

const char* status_name(uint16_t status) {
  return status < kStatusNames.size() ? kStatusNames[status] : "unknown status";
}

std::shared_ptr<const Error> status_error(uint16_t status, const std::string& what, int device) {
  const bool callers_fault = status >= TPU_STATUS_NO_PROGRAM && status <= TPU_STATUS_ISA_MISMATCH;
  return std::make_shared<Error>(
      callers_fault ? ErrorCode::kInvalidArgument : ErrorCode::kInternal,
      fmt::format("{}: the device answers {}", what, status_name(status)),
      ErrorPlace{.device = device, .op = {}, .source = {}});
}

std::shared_ptr<const Error> fault_error(const tpu_fault_record_t& record,
                                         const exe::ExecutableT& program, int device,
                                         const std::string& stall_text) {
  ErrorPlace place{.device = device, .op = {}, .source = {}};
  if (record.code != TPU_FAULT_NONE && record.op_id < program.ops.size()) {
    const exe::OpInfoT& op = *program.ops[record.op_id];
    place.op = op.name;
    if (!op.file.empty()) {
      place.source = fmt::format("{}:{}", op.file, op.line);
    }
  }
  std::string text = fmt::format("{}: {}", program.name, record_text(record));
  if (!stall_text.empty()) {
    text += "\nwho waits for whom:\n" + stall_text;
  }
  const bool ours = record.code == TPU_FAULT_GANG_MISMATCH || record.code == TPU_FAULT_PEER_LOST;
  return std::make_shared<Error>(ours ? ErrorCode::kInternal : ErrorCode::kDeviceFault, text,
                                 std::move(place));
}

}  // namespace tpu::driver
