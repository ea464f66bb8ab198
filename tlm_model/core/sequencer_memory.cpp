// Scalar loads and stores: SMEM, and which of its words a timing-only run does not know.
#include <cstring>

#include "core/sequencer.hpp"
#include "kernel/cycles.hpp"
#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {

bool Sequencer::execute_memory(const spec::ScalarInsn& insn) {
  const auto op = static_cast<spec::ScalarOp>(insn.op);
  const uint64_t length = op == spec::ScalarOp::kLds64 ? 8 : 4;
  const uint64_t address = x_[insn.rs1] + static_cast<uint64_t>(static_cast<int64_t>(insn.imm));
  if (address > parts_.smem->bytes() || length > parts_.smem->bytes() - address) {
    FaultInfo info = fault_here(TPU_FAULT_SMEM_RANGE, 0);
    info.address = address;
    info.length = length;
    if (insn.rs1 != 0) {
      info.detail = spec::fault::kDetailAddress;
      info.data = static_cast<int64_t>(x_[insn.rs1]);
      info.limit = static_cast<int64_t>(parts_.smem->bytes() - length) - insn.imm;
    } else {
      info.data = insn.imm;
      info.limit = static_cast<int64_t>(parts_.smem->bytes() - length);
    }
    fault_port->raise(info, "scalar access outside of SMEM");
    return false;
  }
  if (probe_.wants(ProbeEvent::kAccess)) {
    tell_access(address, length, op == spec::ScalarOp::kSts32);
  }
  uint8_t* at = parts_.smem->data() + address;
  if (op == spec::ScalarOp::kSts32) {
    const auto value = static_cast<uint32_t>(x_[insn.rs2]);
    std::memcpy(at, &value, sizeof value);
    mark_words(address, length, (unknown_ >> insn.rs2 & 1) != 0);
    time_ += 1;
    return true;
  }
  time_ += static_cast<uint64_t>(params_.core.smem_load_cycles);
  if (!words_known(address, length)) {
    set_register(insn.rd, 0);
    set_unknown(insn.rd);
  } else if (length == 8) {
    uint64_t value;
    std::memcpy(&value, at, sizeof value);
    set_register(insn.rd, value);
  } else {
    int32_t value;
    std::memcpy(&value, at, sizeof value);
    set_register(insn.rd, static_cast<uint64_t>(static_cast<int64_t>(value)));
  }
  return true;
}

// No-data runs: words of SMEM that a transfer would have filled.
bool Sequencer::words_known(uint64_t address, uint64_t bytes) const {
  for (uint64_t word = address / 4;
       parts_.smem_unknown != nullptr && word <= (address + bytes - 1) / 4; ++word) {
    if ((*parts_.smem_unknown)[word]) {
      return false;
    }
  }
  return true;
}

void Sequencer::mark_words(uint64_t address, uint64_t bytes, bool unknown) {
  for (uint64_t word = address / 4;
       parts_.smem_unknown != nullptr && word <= (address + bytes - 1) / 4; ++word) {
    (*parts_.smem_unknown)[word] = unknown;
  }
}

void Sequencer::tell_access(uint64_t address, uint64_t bytes, bool write) {
  const AccessRange range{.owner = core_id_,
                          .memory = ProbeMemory::kSmem,
                          .low = address,
                          .bytes = bytes,
                          .write = write};
  const std::function<void(const RangeVisitor&)> walk = [&](const RangeVisitor& visit) {
    visit(range);
  };
  probe_.access(
      {.cycle = now_cycles(), .source = source(), .extents = std::span(&range, 1), .walk = walk});
}

}  // namespace tpu::model
