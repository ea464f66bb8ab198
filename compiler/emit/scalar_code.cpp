// Integers of the sequencer: expressions of counters and constants, and scalars that come from
// buffers through SMEM. A register holds the value with its sign (unsigned types: zeros above).
#include <algorithm>

#include "emit/emitter.hpp"

namespace tpu::compiler {

using spec::ScalarOp;

namespace {

constexpr int64_t kSmemScalars = 16;  // SMEM of scalars on their way; counters lie behind

int unused_bits(Elem e) { return e == Elem::kI1 ? 63 : 64 - 8 * static_cast<int>(elem_bytes(e)); }

}  // namespace

void Emitter::load_immediate(int reg, int64_t value) {
  insn(ScalarOp::kLi, reg, 0, 0, static_cast<int32_t>(value));
  if (value != static_cast<int32_t>(value)) {
    insn(ScalarOp::kLih, reg, 0, 0, static_cast<int32_t>(value >> 32));
  }
}

// Cuts a result to its element type.
void Emitter::wrap(int reg, Elem elem) {
  const int shift = unused_bits(elem);
  if (shift == 0) {
    return;
  }
  insn(ScalarOp::kShli, reg, reg, 0, shift);
  insn(is_signed(elem) ? ScalarOp::kSari : ScalarOp::kShri, reg, reg, 0, shift);
}

void Emitter::scalar(const Value* v, int reg) {
  if (v->def == nullptr) {
    insn(ScalarOp::kLds32, reg, 0, 0, static_cast<int32_t>(counters_.at(v)));
    wrap(reg, v->type.elem);
    return;
  }
  const Op& op = *v->def;
  switch (op.kind) {
    case Kind::kConstant:
      load_immediate(reg, op.as<ConstantAttrs>().value.as_int(0));
      return;
    case Kind::kPartitionId:
    case Kind::kReplicaId:
      insn(ScalarOp::kAddi, reg, kPartitionRegister, 0, 0);
      return;
    case Kind::kReshape:
    case Kind::kBroadcastInDim:
      scalar(op.operands[0], reg);
      return;
    case Kind::kConvert:
      scalar(op.operands[0], reg);
      if (op.type().elem == Elem::kI1) {
        insn(ScalarOp::kSeq, reg, reg, 0, 0);
        insn(ScalarOp::kXori, reg, reg, 0, 1);
      } else {
        wrap(reg, op.type().elem);
      }
      return;
    case Kind::kNegate:
      scalar(op.operands[0], reg);
      insn(ScalarOp::kSub, reg, 0, reg, 0);
      wrap(reg, op.type().elem);
      return;
    case Kind::kNot:
      scalar(op.operands[0], reg);
      insn(ScalarOp::kXori, reg, reg, 0, op.type().elem == Elem::kI1 ? 1 : -1);
      wrap(reg, op.type().elem);
      return;
    case Kind::kSelect:  // b + p * (a - b)
      scalar(op.operands[1], reg);
      scalar(op.operands[2], reg + 1);
      scalar(op.operands[0], reg + 2);
      insn(ScalarOp::kSub, reg, reg, reg + 1, 0);
      insn(ScalarOp::kMul, reg, reg, reg + 2, 0);
      insn(ScalarOp::kAdd, reg, reg, reg + 1, 0);
      return;
    default:
      scalar_binary(op, reg);
      return;
  }
}

void Emitter::scalar_binary(const Op& op, int reg) {
  scalar(op.operands[0], reg);
  const int other = reg + 1;
  if (op.kind == Kind::kRemainder || op.kind == Kind::kDivide) {
    // By 2^k, towards zero: negative numbers are raised by 2^k - 1 first.
    const int64_t n = op.operands[1]->def->as<ConstantAttrs>().value.as_int(0);
    insn(ScalarOp::kSari, other, reg, 0, 63);
    insn(ScalarOp::kAndi, other, other, 0, static_cast<int32_t>(n - 1));
    insn(ScalarOp::kAdd, other, other, reg, 0);
    if (op.kind == Kind::kDivide) {
      insn(ScalarOp::kSari, reg, other, 0, __builtin_ctzll(static_cast<uint64_t>(n)));
    } else {
      insn(ScalarOp::kAndi, other, other, 0, static_cast<int32_t>(-n));
      insn(ScalarOp::kSub, reg, reg, other, 0);
    }
    return;
  }
  scalar(op.operands[1], other);
  if (op.kind == Kind::kCompare) {
    const CompareDirection d = op.as<CompareAttrs>().direction;
    const bool equal = d == CompareDirection::kEq || d == CompareDirection::kNe;
    const bool swapped = d == CompareDirection::kGt || d == CompareDirection::kLe;
    insn(equal ? ScalarOp::kSeq : ScalarOp::kSlt, reg, swapped ? other : reg, swapped ? reg : other,
         0);
    if (d == CompareDirection::kNe || d == CompareDirection::kLe || d == CompareDirection::kGe) {
      insn(ScalarOp::kXori, reg, reg, 0, 1);
    }
    return;
  }
  // Addition and multiplication of truth values are or and and.
  const bool truth = op.type().elem == Elem::kI1;
  const auto code = [&] {
    switch (op.kind) {
      case Kind::kAdd:
        return truth ? ScalarOp::kOr : ScalarOp::kAdd;
      case Kind::kSubtract:
        return ScalarOp::kSub;
      case Kind::kMultiply:
        return ScalarOp::kMul;
      case Kind::kMinimum:
        return ScalarOp::kMin;
      case Kind::kMaximum:
        return ScalarOp::kMax;
      case Kind::kAnd:
        return ScalarOp::kAnd;
      case Kind::kOr:
        return ScalarOp::kOr;
      default:
        return ScalarOp::kXor;
    }
  }();
  insn(code, reg, reg, other, 0);
  wrap(reg, op.type().elem);
}

void Emitter::control(Control::Kind kind, int label, int64_t trips) {
  Control c;
  c.kind = kind;
  c.label = label;
  c.trips = trips;
  listing.append(c);
}

void Emitter::branch(ScalarOp op, int rs1, int rs2, int label) {
  Control c;
  c.kind = Control::Kind::kBranch;
  c.label = label;
  c.insn = {static_cast<uint8_t>(op), 0, static_cast<uint8_t>(rs1), static_cast<uint8_t>(rs2), 0};
  listing.append(c);
}

// Scalar i goes to the i-th 8 bytes behind kSmemScalars.
void Emitter::fetch_scalars(const std::vector<NestAccess>& from, uint32_t id) {
  int last = -1;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].value == nullptr) {
      continue;
    }
    const Buffer& b = buffer(from[i].value);
    const int64_t bytes = elem_bytes(b.value->type.elem);
    const int64_t at = from[i].view.offset * bytes;
    copy_bytes(where(b, at), smem_addr(kSmemScalars + 8 * static_cast<int64_t>(i)), bytes, bytes,
               id);
    last = static_cast<int>(listing.items.size()) - 1;
  }
  if (last >= 0) {
    Control wait;
    wait.kind = Control::Kind::kWait;
    wait.item = last;
    listing.append(wait);
  }
}

// Reads the i-th fetched scalar. ui64 above the signed range becomes a large positive number.
void Emitter::read_scalar(size_t index, Elem elem, int reg) {
  const auto at = static_cast<int32_t>(kSmemScalars + 8 * static_cast<int64_t>(index));
  insn(elem_bytes(elem) == 8 ? ScalarOp::kLds64 : ScalarOp::kLds32, reg, 0, 0, at);
  if (elem == Elem::kU64) {
    insn(ScalarOp::kShri, reg + 1, reg, 0, 63);
    insn(ScalarOp::kXori, reg + 2, reg + 1, 0, 1);
    insn(ScalarOp::kMul, reg, reg, reg + 2, 0);
    insn(ScalarOp::kShli, reg + 1, reg + 1, 0, 62);
    insn(ScalarOp::kOr, reg, reg, reg + 1, 0);
    return;
  }
  wrap(reg, elem == Elem::kI1 ? Elem::kU8 : elem);
}

}  // namespace tpu::compiler
