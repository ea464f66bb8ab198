// Arithmetic and branches of the sequencer.
#include "command/scalar_ops.hpp"

#include <algorithm>

namespace tpu::spec {

ScalarClass scalar_class(ScalarOp op) {
  using Op = ScalarOp;
  if (op >= Op::kLi && op <= Op::kSeq) {
    return ScalarClass::kArithmetic;
  }
  if ((op >= Op::kJmp && op <= Op::kBge) || op == Op::kBneg) {
    return ScalarClass::kBranch;
  }
  return ScalarClass::kOther;
}

uint64_t scalar_result(const ScalarInsn& insn, const ScalarRegisters& x) {
  using Op = ScalarOp;
  const uint64_t a = x[insn.rs1];
  const uint64_t b = x[insn.rs2];
  const auto sa = static_cast<int64_t>(a);
  const auto sb = static_cast<int64_t>(b);
  const auto imm = static_cast<uint64_t>(static_cast<int64_t>(insn.imm));
  const unsigned shift = static_cast<unsigned>(insn.imm) & 63;
  switch (static_cast<Op>(insn.op)) {
    case Op::kLi:
      return imm;
    case Op::kLih:
      return imm << 32 | (x[insn.rd] & 0xffffffffu);
    case Op::kAddi:
      return a + imm;
    case Op::kMuli:
      return a * imm;
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kAnd:
      return a & b;
    case Op::kOr:
      return a | b;
    case Op::kXor:
      return a ^ b;
    case Op::kXori:
      return a ^ imm;
    case Op::kAndi:
      return a & imm;
    case Op::kShli:
      return a << shift;
    case Op::kShri:
      return a >> shift;
    case Op::kSari:
      return static_cast<uint64_t>(sa >> shift);
    case Op::kMin:
      return static_cast<uint64_t>(std::min(sa, sb));
    case Op::kMax:
      return static_cast<uint64_t>(std::max(sa, sb));
    case Op::kSlt:
      return sa < sb ? 1 : 0;
    case Op::kSltu:
      return a < b ? 1 : 0;
    case Op::kSeq:
      return a == b ? 1 : 0;
    default:
      return 0;
  }
}

bool scalar_taken(const ScalarInsn& insn, const ScalarRegisters& x) {
  using Op = ScalarOp;
  const auto a = static_cast<int64_t>(x[insn.rs1]);
  const auto b = static_cast<int64_t>(x[insn.rs2]);
  switch (static_cast<Op>(insn.op)) {
    case Op::kBeq:
      return a == b;
    case Op::kBne:
      return a != b;
    case Op::kBlt:
      return a < b;
    case Op::kBge:
      return a >= b;
    case Op::kBneg:
      return a < 0;
    default:
      return true;
  }
}

}  // namespace tpu::spec
