// Which vector instructions compute an elementwise op or a reduction, by kind and element type.
#include <bit>
#include <limits>

#include "ir/op_traits.hpp"
#include "vpu/vpu_build.hpp"

namespace tpu::compiler {

using spec::VpuOp;

namespace {

[[noreturn]] void refuse(const Op& op, Elem e) {
  const bool wide = elem_bytes(e) == 8;
  throw Error(
      "not supported on " + std::string(elem_name(e)) + (wide ? "; use 32-bit integers" : ""),
      source_name(op.kind), op.loc);
}

// f32 and bf16, signed, unsigned and i1 forms of an op; kLoad marks "does not exist".
struct Forms {
  VpuOp f = VpuOp::kLoad, s = VpuOp::kLoad, u = VpuOp::kLoad, b = VpuOp::kLoad;
};

VpuOp pick(const Op& op, const Forms& forms, Elem e) {
  VpuOp out = VpuOp::kLoad;
  if (is_float(e)) {
    out = forms.f;
  } else if (elem_bytes(e) == 8) {
    refuse(op, e);
  } else if (is_signed(e)) {
    out = forms.s;
  } else if (is_unsigned(e)) {
    out = forms.u;
  } else if (e == Elem::kI1) {
    out = forms.b;
  }
  if (out == VpuOp::kLoad) {
    refuse(op, e);
  }
  return out;
}

Forms forms_of(Kind kind) {
  using enum VpuOp;
  constexpr VpuOp kNo = VpuOp::kLoad;
  static constexpr Forms kForms[] = {
#define TPU_FORMS(...) {__VA_ARGS__},
#define X(id, name, attrs, in, out, regions, source, takes, linear, traits, forms) TPU_FORMS forms
      TPU_OP_KINDS(X)
#undef X
#undef TPU_FORMS
  };
  return kForms[static_cast<size_t>(kind)];
}

// True if lanes of 32 bits may hold bits beyond the width of a narrow integer afterwards.
bool may_leave_width(Kind kind) { return has_trait(kind, trait::kWraps); }

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
    case Kind::kMultiplyAdd:
      return make(VpuOp::kFmaF, in[0], in[1], in[2]);
    case Kind::kClamp: {
      const VpuOp hi = pick(op, forms_of(Kind::kMinimum), e);
      const int low = make(pick(op, forms_of(Kind::kMaximum), e), in[1], in[0]);
      return make(hi, low, in[2]);
    }
    case Kind::kCompare:
      return compare(op, in[0], in[1]);
    case Kind::kConvert:
      return convert(op, in[0]);
    default:  // by its column of the table, or rejected
      out = in.size() == 1 ? unary(op, in[0]) : binary(op, in[0], in[1]);
      break;
  }
  if (e == Elem::kBf16) {
    return make(VpuOp::kRbf16, out);
  }
  return may_leave_width(op.kind) && is_integer(e) ? narrow(out, e) : out;
}

int VpuSelector::unary(const Op& op, int x) {
  const Elem e = op.operand_type(0).elem;
  switch (op.kind) {
    case Kind::kNot:
      return e == Elem::kI1 ? make(VpuOp::kXor, x, imm(1))
                            : make(pick(op, forms_of(op.kind), e), x);
    case Kind::kSign:
      if (e == Elem::kU32) {
        return make(VpuOp::kMinU, x, imm(1));
      }
      break;
    case Kind::kIsFinite:
      if (is_float(e)) {
        const int infinite = imm(kInfF);
        return make(VpuOp::kCmpF, make(VpuOp::kAbsF, x), infinite, -1,
                    static_cast<uint32_t>(spec::VpuCompare::kLt));
      }
      refuse(op, e);
    case Kind::kBitcastConvert:
      return bitcast(op, x);
    case Kind::kReducePrecision:
      return reduce_precision(op, x);
    case Kind::kClz:
      if (elem_bytes(e) < 4) {
        const int zeros = make(VpuOp::kClz, unsigned_bits(x, e));
        return make(VpuOp::kSubI, zeros, imm(static_cast<uint32_t>(32 - 8 * elem_bytes(e))));
      }
      break;
    case Kind::kPopcnt:
      return make(pick(op, forms_of(op.kind), e), unsigned_bits(x, e));
    default:  // by its column of the table, or rejected
      break;
  }
  return make(pick(op, forms_of(op.kind), e), x);
}

int VpuSelector::binary(const Op& op, int a, int b) {
  const Elem e = op.operand_type(0).elem;
  const VpuOp form = pick(op, forms_of(op.kind), e);
  if (op.kind == Kind::kShiftRightLogical) {
    a = unsigned_bits(a, e);
  } else if (op.kind == Kind::kShiftRightArith && is_unsigned(e)) {
    a = narrow(a, e, true);
  }
  return make(form, a, b);
}

// The element's own bits, zeros above them: signed values fill their register with the sign.
int VpuSelector::unsigned_bits(int x, Elem e) {
  return is_signed(e) && elem_bytes(e) < 4
             ? make(VpuOp::kAnd, x, imm((1u << (8 * elem_bytes(e))) - 1))
             : x;
}

// Types of one size. A bf16 value stands in the upper half of its register.
int VpuSelector::bitcast(const Op& op, int x) {
  const Elem from = op.operand_type(0).elem, to = op.type().elem;
  if (elem_bytes(from) != elem_bytes(to) || elem_bytes(from) == 8) {
    refuse(op, from);
  }
  if (from == Elem::kBf16 && to != Elem::kBf16) {
    return make(is_signed(to) ? VpuOp::kSar : VpuOp::kShr, x, imm(16));
  }
  if (to == Elem::kBf16 && from != Elem::kBf16) {
    return make(VpuOp::kShl, x, imm(16));
  }
  if (to == Elem::kI1 || from == Elem::kI1) {
    return to == from ? x : convert(op, x);
  }
  return from == to || elem_bytes(to) == 4 ? x : narrow(x, to);
}

// As XLA does it: significand to nearest even, then exponents beyond the range give infinity or a
// zero. NaN stays NaN. The format of bf16 is a conversion to it.
int VpuSelector::reduce_precision(const Op& op, int x) {
  const auto& a = op.as<ReducePrecisionAttrs>();
  if (is_exact(a, op.type().elem)) {
    return x;
  }
  if (a.exponent_bits == 8 && a.mantissa_bits == 7) {
    return make(VpuOp::kRbf16, x);
  }
  int y = x;
  if (a.mantissa_bits < 23) {
    const auto cut = static_cast<uint32_t>(23 - a.mantissa_bits);
    const int one = imm(1);
    const int odd = make(VpuOp::kAnd, make(VpuOp::kShr, y, imm(cut)), one);
    const int bias = make(VpuOp::kAddI, odd, imm((1u << (cut - 1)) - 1));
    const int kept = imm(~((1u << cut) - 1));
    y = make(VpuOp::kAnd, make(VpuOp::kAddI, y, bias), kept);
  }
  if (a.exponent_bits < 8) {
    const uint32_t half = (1u << (a.exponent_bits - 1)) - 1;
    const int exponent = make(VpuOp::kAnd, y, imm(kInfF));
    const int sign = make(VpuOp::kAnd, y, imm(0x80000000u));
    const int over = make(VpuOp::kCmpU, exponent, imm((127 + half) << 23), -1,
                          static_cast<uint32_t>(spec::VpuCompare::kGt));
    const int under = make(VpuOp::kCmpU, exponent, imm((127 - half) << 23), -1,
                           static_cast<uint32_t>(spec::VpuCompare::kLe));
    y = make(VpuOp::kSelect, over, make(VpuOp::kOr, sign, imm(kInfF)), y);
    y = make(VpuOp::kSelect, under, sign, y);
  }
  const int is_nan = make(VpuOp::kCmpF, x, x, -1, static_cast<uint32_t>(spec::VpuCompare::kNe));
  y = make(VpuOp::kSelect, is_nan, imm(0x7fc00000u), y);
  return make(VpuOp::kAddF, y, imm(0x80000000u));  // subnormal numbers become zeros of their sign
}

// Orders the bits of floats as signed integers: -NaN < -inf < .. < -0 < +0 < .. < inf < NaN.
int VpuSelector::total_order(int x) {
  const int one = imm(1);
  const int below = make(VpuOp::kShr, make(VpuOp::kSar, x, imm(31)), one);
  return make(VpuOp::kXor, x, below);
}

int VpuSelector::compare(const Op& op, int a, int b) {
  const auto& attrs = op.as<CompareAttrs>();
  const Elem e = op.operand_type(0).elem;
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
  VpuOp f = pick(op, {VpuOp::kCmpF, VpuOp::kCmpS, VpuOp::kCmpU, VpuOp::kCmpU}, e);
  if (attrs.type == CompareType::kTotalOrder && is_float(e)) {
    a = total_order(a);
    b = total_order(b);
    f = VpuOp::kCmpS;
  }
  return make(f, a, b, -1, static_cast<uint32_t>(how));
}

int VpuSelector::narrow(int x, Elem to, bool with_sign) {
  const int64_t bytes = elem_bytes(to);
  if (bytes == 4) {
    return x;
  }
  const int shift = imm(static_cast<uint32_t>(32 - 8 * bytes));
  return make(with_sign || is_signed(to) ? VpuOp::kSar : VpuOp::kShr, make(VpuOp::kShl, x, shift),
              shift);
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
    const int wide = make(is_signed(to) ? VpuOp::kF2i : VpuOp::kF2u, x);
    if (elem_bytes(to) == 4) {
      return wide;
    }
    const int bits = static_cast<int>(8 * elem_bytes(to));
    if (!is_signed(to)) {
      return make(VpuOp::kMinU, wide, imm((1u << bits) - 1));
    }
    const uint32_t top = (1u << (bits - 1)) - 1;
    const int least = imm(~top);
    return make(VpuOp::kMaxS, make(VpuOp::kMinS, wide, imm(top)), least);
  }
  return narrow(x, to);
}

uint32_t reduce_identity(const Op& op, Kind kind, Elem elem) {
  const bool f = is_float(elem);
  const int bits = static_cast<int>(8 * elem_bytes(elem));
  const uint32_t lowest = is_signed(elem) ? ~0u << (bits - 1) : 0;
  const uint32_t highest = elem == Elem::kI1 ? 1 : is_signed(elem) ? ~lowest : ~0u >> (32 - bits);
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
      return f ? (kInfF | 0x80000000u) : lowest;
    case Kind::kMinimum:
      return f ? kInfF : highest;
    default:
      refuse(op, elem);
  }
}

VpuOp reduce_op(const Op& op, Kind kind, Elem elem) { return pick(op, forms_of(kind), elem); }

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
