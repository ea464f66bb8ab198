// Which vector instructions compute an elementwise op or a reduction, by kind and element type.
#include <bit>
#include <limits>

#include "codegen/vpu_build.hpp"

namespace tpu::compiler {

using spec::VpuOp;

namespace {

[[noreturn]] void refuse(const Op& op, Elem e) {
  throw Error("not supported on " + std::string(elem_name(e)), std::string(kind_name(op.kind)),
              op.loc);
}

// f32 and bf16, signed, unsigned and i1 forms of an op; kLoad marks "does not exist".
struct Forms {
  VpuOp f = VpuOp::kLoad, s = VpuOp::kLoad, u = VpuOp::kLoad, b = VpuOp::kLoad;
};

VpuOp pick(const Op& op, const Forms& forms, Elem e) {
  VpuOp out = VpuOp::kLoad;
  if (is_float(e)) {
    out = forms.f;
  } else if (e == Elem::kI32) {
    out = forms.s;
  } else if (e == Elem::kU32) {
    out = forms.u;
  } else if (e == Elem::kI1) {
    out = forms.b;
  }
  if (out == VpuOp::kLoad) {
    refuse(op, e);
  }
  return out;
}

Forms unary_forms(Kind kind) {
  constexpr VpuOp kNone = VpuOp::kLoad;
  switch (kind) {
    case Kind::kAbs:
      return {VpuOp::kAbsF, VpuOp::kAbsI, VpuOp::kMov, kNone};
    case Kind::kNegate:
      return {VpuOp::kNegF, VpuOp::kNegI, VpuOp::kNegI, kNone};
    case Kind::kSign:
      return {VpuOp::kSignF, VpuOp::kSignI, kNone, kNone};
    case Kind::kNot:
      return {kNone, VpuOp::kNot, VpuOp::kNot, kNone};
    case Kind::kPopcnt:
      return {kNone, VpuOp::kPopcnt, VpuOp::kPopcnt, kNone};
    case Kind::kClz:
      return {kNone, VpuOp::kClz, VpuOp::kClz, kNone};
    case Kind::kCeil:
      return {VpuOp::kCeilF};
    case Kind::kFloor:
      return {VpuOp::kFloorF};
    case Kind::kRoundAfz:
      return {VpuOp::kRoundAfzF};
    case Kind::kRoundEven:
      return {VpuOp::kRoundRneF};
    case Kind::kExp:
      return {VpuOp::kExpF};
    case Kind::kExpm1:
      return {VpuOp::kExpm1F};
    case Kind::kLog:
      return {VpuOp::kLogF};
    case Kind::kLog1p:
      return {VpuOp::kLog1pF};
    case Kind::kLogistic:
      return {VpuOp::kLogisticF};
    case Kind::kTanh:
      return {VpuOp::kTanhF};
    case Kind::kSqrt:
      return {VpuOp::kSqrtF};
    case Kind::kRsqrt:
      return {VpuOp::kRsqrtF};
    default:
      return {};
  }
}

Forms binary_forms(Kind kind) {
  constexpr VpuOp kNone = VpuOp::kLoad;
  switch (kind) {
    case Kind::kAdd:
      return {VpuOp::kAddF, VpuOp::kAddI, VpuOp::kAddI, VpuOp::kOr};
    case Kind::kSubtract:
      return {VpuOp::kSubF, VpuOp::kSubI, VpuOp::kSubI, kNone};
    case Kind::kMultiply:
      return {VpuOp::kMulF, VpuOp::kMulI, VpuOp::kMulI, VpuOp::kAnd};
    case Kind::kDivide:
      return {VpuOp::kDivF, VpuOp::kDivS, VpuOp::kDivU, kNone};
    case Kind::kRemainder:
      return {VpuOp::kRemF, VpuOp::kRemS, VpuOp::kRemU, kNone};
    case Kind::kMaximum:
      return {VpuOp::kMaxF, VpuOp::kMaxS, VpuOp::kMaxU, VpuOp::kOr};
    case Kind::kMinimum:
      return {VpuOp::kMinF, VpuOp::kMinS, VpuOp::kMinU, VpuOp::kAnd};
    case Kind::kPower:
      return {VpuOp::kPowF};
    case Kind::kAnd:
      return {kNone, VpuOp::kAnd, VpuOp::kAnd, VpuOp::kAnd};
    case Kind::kOr:
      return {kNone, VpuOp::kOr, VpuOp::kOr, VpuOp::kOr};
    case Kind::kXor:
      return {kNone, VpuOp::kXor, VpuOp::kXor, VpuOp::kXor};
    case Kind::kShiftLeft:
      return {kNone, VpuOp::kShl, VpuOp::kShl, kNone};
    case Kind::kShiftRightArith:
      return {kNone, VpuOp::kSar, VpuOp::kSar, kNone};
    case Kind::kShiftRightLogical:
      return {kNone, VpuOp::kShr, VpuOp::kShr, kNone};
    default:
      return {};
  }
}

constexpr uint32_t kOneF = 0x3f800000u;
constexpr uint32_t kInfF = 0x7f800000u;

}  // namespace

void VpuSelector::put(VpuOp op, int rd, int a, int b, int c, uint32_t imm, uint8_t mode) {
  VirtualInsn insn;
  insn.op = op;
  const std::string_view form = spec::kVpuOps[static_cast<size_t>(op) - 1].form;
  const auto has = [&](std::string_view what) { return form.find(what) != std::string_view::npos; };
  insn.rd = has("rd") ? rd : -1;
  insn.rs = {has("rs1") ? a : -1, has("rs2") ? b : -1, has("rs3") ? c : -1};
  insn.imm = imm;
  insn.mode = mode;
  out_.push_back(insn);
}

int VpuSelector::make(VpuOp op, int a, int b, int c, uint32_t imm) {
  const int rd = next_++;
  put(op, rd, a, b, c, imm);
  return rd;
}

int VpuSelector::elementwise(const Op& op, const std::vector<int>& in) {
  const Elem e = op.type().elem;
  int out = -1;
  switch (op.kind) {
    case Kind::kSelect:
      return make(VpuOp::kSelect, in[0], in[1], in[2]);
    case Kind::kClamp: {
      const VpuOp hi = pick(op, binary_forms(Kind::kMinimum), e);
      const int low = make(pick(op, binary_forms(Kind::kMaximum), e), in[1], in[0]);
      return make(hi, low, in[2]);
    }
    case Kind::kCompare:
      return compare(op, in[0], in[1]);
    case Kind::kConvert:
      return convert(op, in[0]);
    default:
      out = in.size() == 1 ? unary(op, in[0]) : binary(op, in[0], in[1]);
      break;
  }
  return e == Elem::kBf16 ? make(VpuOp::kRbf16, out) : out;
}

int VpuSelector::unary(const Op& op, int x) {
  const Elem e = op.operand_type(0).elem;
  switch (op.kind) {
    case Kind::kNot:
      return e == Elem::kI1 ? make(VpuOp::kXor, x, imm(1))
                            : make(pick(op, unary_forms(op.kind), e), x);
    case Kind::kSign:
      if (e == Elem::kU32) {
        return make(VpuOp::kMinU, x, imm(1));
      }
      break;
    case Kind::kIsFinite:
      if (is_float(e)) {
        return make(VpuOp::kCmpF, make(VpuOp::kAbsF, x), imm(kInfF), -1,
                    static_cast<uint32_t>(spec::VpuCompare::kLt));
      }
      refuse(op, e);
    case Kind::kBitcastConvert:
      if (elem_bytes(e) == 4 && elem_bytes(op.type().elem) == 4) {
        return x;
      }
      refuse(op, e);
    case Kind::kReducePrecision: {
      const auto& a = op.as<ReducePrecisionAttrs>();
      if (a.exponent_bits == 8 && a.mantissa_bits == 7) {
        return make(VpuOp::kRbf16, x);
      }
      if (a.exponent_bits == 8 && a.mantissa_bits == 23) {
        return x;
      }
      throw Error("only bfloat16 (8, 7) and float32 (8, 23) are supported",
                  std::string(kind_name(op.kind)), op.loc);
    }
    default:
      break;
  }
  return make(pick(op, unary_forms(op.kind), e), x);
}

int VpuSelector::binary(const Op& op, int a, int b) {
  return make(pick(op, binary_forms(op.kind), op.operand_type(0).elem), a, b);
}

int VpuSelector::compare(const Op& op, int a, int b) {
  const auto& attrs = op.as<CompareAttrs>();
  const Elem e = op.operand_type(0).elem;
  if (attrs.type == CompareType::kTotalOrder) {
    throw Error("total order of floats is not supported; compare with type FLOAT", "compare",
                op.loc);
  }
  spec::VpuCompare how{};
  switch (attrs.direction) {
    case CompareDirection::kEq:
      how = spec::VpuCompare::kEq;
      break;
    case CompareDirection::kNe:
      how = spec::VpuCompare::kNe;
      break;
    case CompareDirection::kGe:
      how = spec::VpuCompare::kGe;
      break;
    case CompareDirection::kGt:
      how = spec::VpuCompare::kGt;
      break;
    case CompareDirection::kLe:
      how = spec::VpuCompare::kLe;
      break;
    case CompareDirection::kLt:
      how = spec::VpuCompare::kLt;
      break;
  }
  const VpuOp f = pick(op, {VpuOp::kCmpF, VpuOp::kCmpS, VpuOp::kCmpU, VpuOp::kCmpU}, e);
  return make(f, a, b, -1, static_cast<uint32_t>(how));
}

// Integers that live in less than 32 bits wrap to their width.
int VpuSelector::narrow(int x, Elem to) {
  const int64_t bytes = elem_bytes(to);
  if (bytes == 4) {
    return x;
  }
  const int shift = imm(static_cast<uint32_t>(32 - 8 * bytes));
  return make(is_signed(to) ? VpuOp::kSar : VpuOp::kShr, make(VpuOp::kShl, x, shift), shift);
}

int VpuSelector::convert(const Op& op, int x) {
  const Elem from = op.operand_type(0).elem, to = op.type().elem;
  if (elem_bytes(from) == 8 || elem_bytes(to) == 8) {
    refuse(op, elem_bytes(from) == 8 ? from : to);
  }
  if (to == Elem::kI1) {
    return make(is_float(from) ? VpuOp::kCmpF : VpuOp::kCmpU, x, imm(0), -1,
                static_cast<uint32_t>(spec::VpuCompare::kNe));
  }
  if (is_float(to)) {
    const bool from_unsigned = is_unsigned(from) || from == Elem::kI1;
    const int f = is_float(from) ? x : make(from_unsigned ? VpuOp::kU2f : VpuOp::kI2f, x);
    return to == Elem::kBf16 && from != Elem::kBf16 ? make(VpuOp::kRbf16, f) : f;
  }
  if (is_float(from)) {
    if (elem_bytes(to) != 4) {
      refuse(op, to);
    }
    return make(is_signed(to) ? VpuOp::kF2i : VpuOp::kF2u, x);
  }
  return narrow(x, to);
}

uint32_t reduce_identity(const Op& op, Kind kind, Elem elem) {
  const bool f = is_float(elem);
  switch (kind) {
    case Kind::kAdd:
    case Kind::kOr:
    case Kind::kXor:
      return 0;
    case Kind::kMultiply:
      return f ? kOneF : 1;
    case Kind::kAnd:
      return elem == Elem::kI1 ? 1 : ~0u;
    case Kind::kMaximum:
      return f ? (kInfF | 0x80000000u) : (elem == Elem::kI32 ? 0x80000000u : 0u);
    case Kind::kMinimum:
      return f ? kInfF : (elem == Elem::kI32 ? 0x7fffffffu : (elem == Elem::kI1 ? 1u : ~0u));
    default:
      refuse(op, elem);
  }
}

VpuOp reduce_op(const Op& op, Kind kind, Elem elem) { return pick(op, binary_forms(kind), elem); }

spec::VpuReduce reduce_tree(const Op& op, Kind kind, Elem elem) {
  switch (reduce_op(op, kind, elem)) {
    case VpuOp::kAddF:
      return spec::VpuReduce::kAddF;
    case VpuOp::kMulF:
      return spec::VpuReduce::kMulF;
    case VpuOp::kMinF:
      return spec::VpuReduce::kMinF;
    case VpuOp::kMaxF:
      return spec::VpuReduce::kMaxF;
    case VpuOp::kAddI:
      return spec::VpuReduce::kAddI;
    case VpuOp::kMulI:
      return spec::VpuReduce::kMulI;
    case VpuOp::kMinS:
      return spec::VpuReduce::kMinS;
    case VpuOp::kMaxS:
      return spec::VpuReduce::kMaxS;
    case VpuOp::kMinU:
      return spec::VpuReduce::kMinU;
    case VpuOp::kMaxU:
      return spec::VpuReduce::kMaxU;
    case VpuOp::kAnd:
      return spec::VpuReduce::kAnd;
    case VpuOp::kOr:
      return spec::VpuReduce::kOr;
    case VpuOp::kXor:
      return spec::VpuReduce::kXor;
    default:
      refuse(op, elem);
  }
}

}  // namespace tpu::compiler
