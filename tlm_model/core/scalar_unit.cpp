// Scalar registers, loads and stores.
#include "core/scalar_unit.hpp"

#include <algorithm>
#include <cstring>

#include "core/ports.hpp"
#include "tpu/spec/fault_regs.hpp"

namespace tpu::model {

void ScalarUnit::clear_memory() {
  smem_->clear();
  if (unknown_words_ != nullptr) {
    std::fill(unknown_words_->begin(), unknown_words_->end(), false);
  }
}

// Fields that an instruction does not use are 0, and x0 is known.
bool ScalarUnit::depends_on_unknown(const spec::ScalarInsn& insn) const {
  const bool half = static_cast<spec::ScalarOp>(insn.op) == spec::ScalarOp::kLih;
  return ((unknown_ >> insn.rs1 | unknown_ >> insn.rs2 | (half ? unknown_ >> insn.rd : 0)) & 1) !=
         0;
}

bool ScalarUnit::knows_peers(const DecodedCommand& command) const {
  if (command.queue != static_cast<uint8_t>(spec::Queue::kDmaRemote) || command.bad != 0) {
    return true;
  }
  uint32_t used = uint32_t{1} << command.peer_reg;
  for (const spec::Signal& signal : command.signal) {
    used |= signal.peer_reg < 32 ? uint32_t{1} << signal.peer_reg : 0;
  }
  return (unknown_ & used) == 0;
}

ScalarUnit::Access ScalarUnit::access(const spec::ScalarInsn& insn) const {
  const auto op = static_cast<spec::ScalarOp>(insn.op);
  return {.address = x_[insn.rs1] + static_cast<uint64_t>(static_cast<int64_t>(insn.imm)),
          .bytes = op == spec::ScalarOp::kLds64 ? 8U : 4U,
          .write = op == spec::ScalarOp::kSts32};
}

void ScalarUnit::describe(const spec::ScalarInsn& insn, const Access& access,
                          FaultInfo& info) const {
  info.address = access.address;
  info.length = access.bytes;
  if (insn.rs1 != 0) {
    info.detail = spec::fault::kDetailAddress;
    info.data = static_cast<int64_t>(x_[insn.rs1]);
    info.limit = static_cast<int64_t>(smem_->bytes() - access.bytes) - insn.imm;
  } else {
    info.data = insn.imm;
    info.limit = static_cast<int64_t>(smem_->bytes() - access.bytes);
  }
}

void ScalarUnit::perform(const spec::ScalarInsn& insn, const Access& access) {
  uint8_t* const at = smem_->data() + access.address;
  if (access.write) {
    const auto value = static_cast<uint32_t>(x_[insn.rs2]);
    std::memcpy(at, &value, sizeof value);
    mark_words(access, is_unknown(insn.rs2));
  } else if (!words_known(access)) {
    set(insn.rd, 0);
    set_unknown(insn.rd);
  } else if (access.bytes == 8) {
    uint64_t value;
    std::memcpy(&value, at, sizeof value);
    set(insn.rd, value);
  } else {
    int32_t value;
    std::memcpy(&value, at, sizeof value);
    set(insn.rd, static_cast<uint64_t>(static_cast<int64_t>(value)));
  }
}

// Words of SMEM that a transfer would have filled are unknown.
bool ScalarUnit::words_known(const Access& access) const {
  for (uint64_t word = access.address / 4;
       unknown_words_ != nullptr && word <= (access.address + access.bytes - 1) / 4; ++word) {
    if ((*unknown_words_)[word]) {
      return false;
    }
  }
  return true;
}

void ScalarUnit::mark_words(const Access& access, bool unknown) {
  for (uint64_t word = access.address / 4;
       unknown_words_ != nullptr && word <= (access.address + access.bytes - 1) / 4; ++word) {
    (*unknown_words_)[word] = unknown;
  }
}

}  // namespace tpu::model
