// Integers of the sequencer: expressions of counters and constants, and scalars that come from
// buffers through SMEM. A register holds the value with its sign (unsigned types: zeros above).
#include <algorithm>

#include "emit/context.hpp"

namespace tpu::compiler {

using spec::ScalarOp;

static void scalar_binary(EmitContext& ctx, const Op& op, int reg);

void scalar(EmitContext& ctx, const Value* v, int reg) {
  if (v->def == nullptr) {
    ctx.sink.insn(ScalarOp::kLds32, reg, 0, 0, static_cast<int32_t>(ctx.counters.at(v)));
    ctx.sink.wrap(reg, v->type.elem);
    return;
  }
  const Op& op = *v->def;
  switch (op.kind) {
    case Kind::kConstant:
      ctx.sink.load_immediate(reg, op.as<ConstantAttrs>().value.as_int(0));
      return;
    case Kind::kPartitionId:
    case Kind::kReplicaId:
      ctx.sink.insn(ScalarOp::kAddi, reg, kPartitionRegister, 0, 0);
      return;
    case Kind::kReshape:
    case Kind::kBroadcastInDim:
      scalar(ctx, op.operands[0], reg);
      return;
    case Kind::kConvert:
      scalar(ctx, op.operands[0], reg);
      if (op.type().elem == Elem::kI1) {
        ctx.sink.insn(ScalarOp::kSeq, reg, reg, 0, 0);
        ctx.sink.insn(ScalarOp::kXori, reg, reg, 0, 1);
      } else {
        ctx.sink.wrap(reg, op.type().elem);
      }
      return;
    case Kind::kNegate:
      scalar(ctx, op.operands[0], reg);
      ctx.sink.insn(ScalarOp::kSub, reg, 0, reg, 0);
      ctx.sink.wrap(reg, op.type().elem);
      return;
    case Kind::kNot:
      scalar(ctx, op.operands[0], reg);
      ctx.sink.insn(ScalarOp::kXori, reg, reg, 0, op.type().elem == Elem::kI1 ? 1 : -1);
      ctx.sink.wrap(reg, op.type().elem);
      return;
    case Kind::kSelect:  // b + p * (a - b)
      scalar(ctx, op.operands[1], reg);
      scalar(ctx, op.operands[2], reg + 1);
      scalar(ctx, op.operands[0], reg + 2);
      ctx.sink.insn(ScalarOp::kSub, reg, reg, reg + 1, 0);
      ctx.sink.insn(ScalarOp::kMul, reg, reg, reg + 2, 0);
      ctx.sink.insn(ScalarOp::kAdd, reg, reg, reg + 1, 0);
      return;
    default:  // rejects what it does not know
      scalar_binary(ctx, op, reg);
      return;
  }
}

static void scalar_binary(EmitContext& ctx, const Op& op, int reg) {
  scalar(ctx, op.operands[0], reg);
  const int other = reg + 1;
  if (op.kind == Kind::kRemainder || op.kind == Kind::kDivide) {
    // By 2^k, towards zero: negative numbers are raised by 2^k - 1 first.
    const int64_t n = op.operands[1]->def->as<ConstantAttrs>().value.as_int(0);
    ctx.sink.insn(ScalarOp::kSari, other, reg, 0, 63);
    ctx.sink.insn(ScalarOp::kAndi, other, other, 0, static_cast<int32_t>(n - 1));
    ctx.sink.insn(ScalarOp::kAdd, other, other, reg, 0);
    if (op.kind == Kind::kDivide) {
      ctx.sink.insn(ScalarOp::kSari, reg, other, 0, __builtin_ctzll(static_cast<uint64_t>(n)));
    } else {
      ctx.sink.insn(ScalarOp::kAndi, other, other, 0, static_cast<int32_t>(-n));
      ctx.sink.insn(ScalarOp::kSub, reg, reg, other, 0);
    }
    return;
  }
  scalar(ctx, op.operands[1], other);
  if (op.kind == Kind::kCompare) {
    const CompareDirection d = op.as<CompareAttrs>().direction;
    const bool equal = d == CompareDirection::kEq || d == CompareDirection::kNe;
    const bool swapped = d == CompareDirection::kGt || d == CompareDirection::kLe;
    ctx.sink.insn(equal ? ScalarOp::kSeq : ScalarOp::kSlt, reg, swapped ? other : reg,
                  swapped ? reg : other, 0);
    if (d == CompareDirection::kNe || d == CompareDirection::kLe || d == CompareDirection::kGe) {
      ctx.sink.insn(ScalarOp::kXori, reg, reg, 0, 1);
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
      case Kind::kXor:
        return ScalarOp::kXor;
      default:
        fail_unknown_kind(op, "the code of the sequencer");
    }
  }();
  ctx.sink.insn(code, reg, reg, other, 0);
  ctx.sink.wrap(reg, op.type().elem);
}

std::map<size_t, int64_t> fetch_scalars(EmitContext& ctx, const std::vector<ScalarPlace>& from,
                                        uint32_t id) {
  std::map<size_t, int64_t> places;
  std::vector<const ScalarPlace*> missing;  // found ones first: none of them may lose its place
  for (const ScalarPlace& s : from) {
    if (const auto held = ctx.fetched.find(s)) {
      places[s.index] = *held;
    } else {
      missing.push_back(&s);
    }
  }
  for (const ScalarPlace* s : missing) {
    const auto again = ctx.fetched.find(*s);  // two starts may be one value
    places[s->index] = again ? *again : ctx.fetched.add(*s);
    if (!again) {
      ctx.sink.copy_bytes(s->from, smem_addr(places[s->index]), s->bytes, s->bytes, id);
    }
  }
  if (!missing.empty()) {
    Control wait;
    wait.kind = Control::Kind::kWait;
    wait.item = static_cast<int>(ctx.sink.listing.items.size()) - 1;
    ctx.sink.listing.append(wait);
  }
  return places;
}

// ui64 above the signed range becomes a large positive number.
void read_scalar(CommandSink& sink, int64_t address, Elem elem, int reg) {
  const auto at = static_cast<int32_t>(address);
  sink.insn(elem_bytes(elem) == 8 ? ScalarOp::kLds64 : ScalarOp::kLds32, reg, 0, 0, at);
  if (elem == Elem::kU64) {
    sink.insn(ScalarOp::kShri, reg + 1, reg, 0, 63);
    sink.insn(ScalarOp::kXori, reg + 2, reg + 1, 0, 1);
    sink.insn(ScalarOp::kMul, reg, reg, reg + 2, 0);
    sink.insn(ScalarOp::kShli, reg + 1, reg + 1, 0, 62);
    sink.insn(ScalarOp::kOr, reg, reg, reg + 1, 0);
    return;
  }
  sink.wrap(reg, elem == Elem::kI1 ? Elem::kU8 : elem);
}

}  // namespace tpu::compiler
