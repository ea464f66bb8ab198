// Scalar instructions without time.
#include "program/timed_scalar.hpp"

#include <algorithm>

namespace tpu::compiler {

using spec::ScalarOp;

TimedScalars::TimedScalars(const spec::BoardParams& board, uint32_t replica, uint32_t cores,
                           uint32_t replicas)
    : replicas_(replicas > 1 ? replicas : 0),
      smem_(static_cast<size_t>(board.core.smem_kib) * 256, 0),
      replica_(replica),
      cores_(cores) {}

uint32_t TimedScalars::sources(const spec::ScalarInsn& insn) {
  const auto op = static_cast<ScalarOp>(insn.op);
  const uint32_t own = op == ScalarOp::kLih ? uint32_t{1} << (insn.rd & 31) : 0;
  return (own | uint32_t{1} << (insn.rs1 & 31) | uint32_t{1} << (insn.rs2 & 31)) & ~uint32_t{1};
}

void TimedScalars::set(uint8_t rd, uint64_t value, bool unknown) {
  if (rd == 0 || rd >= x_.size()) {
    return;
  }
  const uint32_t bit = uint32_t{1} << rd;
  x_[rd] = value;
  unknown_ = unknown ? unknown_ | bit : unknown_ & ~bit;
  varies_ &= ~bit;
}

void TimedScalars::arithmetic(const spec::ScalarInsn& insn) {
  const bool unknown = this->unknown(insn);
  if (!varies(insn) || insn.rd == 0) {
    set(insn.rd, spec::scalar_result(insn, x_), unknown);
    return;
  }
  for (spec::ScalarRegisters& x : replicas_) {
    for (const uint8_t r : {insn.rs1, insn.rs2, insn.rd}) {
      x[r] = varies(r) ? x[r] : x_[r];
    }
    x[insn.rd] = spec::scalar_result(insn, x);
  }
  set(insn.rd, replicas_[0][insn.rd], unknown);
  varies_ |= uint32_t{1} << insn.rd;
}

void TimedScalars::write_word(size_t word, int64_t value) {
  if (trial_) {
    undo_.emplace_back(word, smem_[word]);
  }
  smem_[word] = value;
}

// An access outside of SMEM is a fault of the program, not of the estimate.
bool TimedScalars::memory(const spec::ScalarInsn& insn) {
  const auto op = static_cast<ScalarOp>(insn.op);
  const uint64_t address = x_[insn.rs1] + static_cast<uint64_t>(int64_t{insn.imm});
  const size_t words = op == ScalarOp::kLds64 ? 2 : 1;
  const size_t word = address / 4;
  const bool inside =
      address < smem_.size() * 4 && address % 4 == 0 && word + words <= smem_.size();
  if (op == ScalarOp::kSts32) {
    if (inside) {
      const bool lost = (unknown_ >> insn.rs2 & 1) != 0;
      write_word(word, lost ? kUnknown : static_cast<uint32_t>(x_[insn.rs2]));
    }
    return !varies(insn);
  }
  const bool known = inside && smem_[word] != kUnknown && smem_[word + words - 1] != kUnknown;
  uint64_t value = 0;
  if (known && words == 2) {
    value = static_cast<uint64_t>(smem_[word]) | static_cast<uint64_t>(smem_[word + 1]) << 32;
  } else if (known) {
    value = static_cast<uint64_t>(int64_t{static_cast<int32_t>(smem_[word])});
  }
  const bool same = !varies(insn);
  set(insn.rd, value, !known);
  return same;
}

bool TimedScalars::execute(const spec::ScalarInsn& insn) {
  switch (static_cast<ScalarOp>(insn.op)) {
    case ScalarOp::kLds32:
    case ScalarOp::kLds64:
    case ScalarOp::kSts32:
      return memory(insn);
    case ScalarOp::kRid:
      set(insn.rd, replica_, false);
      if (!replicas_.empty() && insn.rd != 0) {
        for (size_t i = 0; i < replicas_.size(); ++i) {
          replicas_[i][insn.rd] = i;
        }
        varies_ |= uint32_t{1} << insn.rd;
      }
      return true;
    case ScalarOp::kNrep:
      set(insn.rd, cores_, false);
      return true;
    case ScalarOp::kStep:
      set(insn.rd, 0, false);
      return true;
    default:
      arithmetic(insn);
      return true;
  }
}

void TimedScalars::forget(int64_t low, int64_t high) {
  const int64_t bytes = static_cast<int64_t>(smem_.size()) * 4;
  for (int64_t at = std::max<int64_t>(low, 0); at < std::min(high, bytes); at = (at / 4 + 1) * 4) {
    if (smem_[static_cast<size_t>(at / 4)] != kUnknown) {
      write_word(static_cast<size_t>(at / 4), kUnknown);
    }
  }
}

void TimedScalars::begin_trial() {
  trial_ = true;
  undo_.clear();
  before_.x = x_;
  before_.unknown = unknown_;
  before_.varies = varies_;
  before_.replicas = replicas_;  // keeps its memory
}

void TimedScalars::end_trial(bool keep) {
  trial_ = false;
  if (keep) {
    return;
  }
  for (size_t i = undo_.size(); i-- > 0;) {
    smem_[undo_[i].first] = undo_[i].second;
  }
  x_ = before_.x;
  unknown_ = before_.unknown;
  varies_ = before_.varies;
  replicas_ = before_.replicas;
}

}  // namespace tpu::compiler
