// A plain second reading of spec/isa/vpu.toml: one lane at a time, integers and the scalar number
// semantics, no shortcuts. Tests compare the vector unit's model with it to the bit.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "arith/bf16.hpp"
#include "arith/f32.hpp"
#include "arith/transcendental_scalar.hpp"
#include "tpu/spec/isa.hpp"
#include "vpu/vpu_kernel.hpp"

namespace tpu::model::reference {

using spec::Elem;
using spec::VpuOp;

inline float as_float(uint32_t bits) { return spec::f32_from_bits(spec::f32_canonical(bits)); }

inline uint32_t flushed(float value) { return spec::f32_canonical(spec::f32_bits(value)); }

inline uint32_t min_max(uint32_t a, uint32_t b, bool is_min) {
  if (spec::f32_is_nan(a) || spec::f32_is_nan(b)) {
    return spec::kF32CanonicalNan;
  }
  // Sign-magnitude numbers as ordered integers: -0 comes out one below +0.
  const auto key = [](uint32_t x) {
    x = spec::f32_canonical(x);
    const auto magnitude = static_cast<int64_t>(x & 0x7fffffffu);
    return (x >> 31) != 0 ? -magnitude - 1 : magnitude;
  };
  const bool take_a = is_min ? key(a) <= key(b) : key(a) >= key(b);
  return spec::f32_canonical(take_a ? a : b);
}

inline bool compare(double a, double b, uint32_t order) {
  switch (static_cast<spec::VpuCompare>(order)) {
    case spec::VpuCompare::kEq:
      return a == b;
    case spec::VpuCompare::kNe:
      return a != b;
    case spec::VpuCompare::kLt:
      return a < b;
    case spec::VpuCompare::kLe:
      return a <= b;
    case spec::VpuCompare::kGt:
      return a > b;
    case spec::VpuCompare::kGe:
      return a >= b;
  }
  return false;
}

inline uint32_t saturate(float value, double low, double high) {
  if (std::isnan(value)) {
    return 0;
  }
  const double cut = std::trunc(std::clamp(static_cast<double>(value), low, high));
  return static_cast<uint32_t>(static_cast<int64_t>(cut));
}

inline uint32_t remainder_f(uint32_t a, uint32_t b) {
  const double r = std::fmod(static_cast<double>(as_float(a)), static_cast<double>(as_float(b)));
  return flushed(static_cast<float>(r));
}

inline uint32_t divide_i(VpuOp op, uint32_t a, uint32_t b) {
  const bool is_signed = op == VpuOp::kDivS || op == VpuOp::kRemS;
  const bool quotient = op == VpuOp::kDivS || op == VpuOp::kDivU;
  if (b == 0) {
    return quotient ? 0xffffffffu : a;
  }
  const int64_t x = is_signed ? int64_t{static_cast<int32_t>(a)} : int64_t{a};
  const int64_t y = is_signed ? int64_t{static_cast<int32_t>(b)} : int64_t{b};
  return static_cast<uint32_t>(quotient ? x / y : x % y);
}

/// Lane-wise instructions on one lane.
inline uint32_t lane_op(VpuOp op, uint32_t a, uint32_t b, uint32_t c, uint32_t imm) {
  const auto sa = static_cast<int32_t>(a);
  const auto sb = static_cast<int32_t>(b);
  switch (op) {
    case VpuOp::kScalar:
    case VpuOp::kImm:
      return imm;
    case VpuOp::kMov:
      return a;
    case VpuOp::kAddF:
      return spec::f32_add_bits(a, b);
    case VpuOp::kSubF:
      return spec::f32_sub_bits(a, b);
    case VpuOp::kMulF:
      return spec::f32_mul_bits(a, b);
    case VpuOp::kMinF:
      return min_max(a, b, true);
    case VpuOp::kMaxF:
      return min_max(a, b, false);
    case VpuOp::kDivF:
      return spec::f32_div_bits(a, b);
    case VpuOp::kRemF:
      return remainder_f(a, b);
    case VpuOp::kPowF:
      return spec::f32_pow_bits(a, b);
    case VpuOp::kFmaF:
      return spec::f32_fma_bits(a, b, c);
    case VpuOp::kAbsF:
      return a & spec::kF32MagnitudeMask;
    case VpuOp::kNegF:
      return a ^ spec::kF32SignMask;
    case VpuOp::kSignF:
      return spec::f32_is_nan(a) || spec::f32_is_zero(a)
                 ? spec::f32_canonical(a)
                 : spec::f32_bits(std::copysign(1.0f, as_float(a)));
    case VpuOp::kFloorF:
      return flushed(std::floor(as_float(a)));
    case VpuOp::kCeilF:
      return flushed(std::ceil(as_float(a)));
    case VpuOp::kRoundAfzF:
      return flushed(std::round(as_float(a)));
    case VpuOp::kRoundRneF:
      return flushed(std::nearbyint(as_float(a)));
    case VpuOp::kRbf16:
      return spec::bf16_to_f32_bits(spec::bf16_from_f32_bits(a));
    case VpuOp::kSqrtF:
      return spec::f32_sqrt_bits(a);
    case VpuOp::kRsqrtF:
      return spec::f32_rsqrt_bits(a);
    case VpuOp::kExpF:
      return spec::f32_exp_bits(a);
    case VpuOp::kLogF:
      return spec::f32_log_bits(a);
    case VpuOp::kTanhF:
      return spec::f32_tanh_bits(a);
    case VpuOp::kLogisticF:
      return spec::f32_logistic_bits(a);
    case VpuOp::kExpm1F:
      return spec::f32_expm1_bits(a);
    case VpuOp::kLog1pF:
      return spec::f32_log1p_bits(a);
    case VpuOp::kSinF:
      return spec::f32_sin_bits(a);
    case VpuOp::kCosF:
      return spec::f32_cos_bits(a);
    case VpuOp::kTanF:
      return spec::f32_tan_bits(a);
    case VpuOp::kAtan2F:
      return spec::f32_atan2_bits(a, b);
    case VpuOp::kCbrtF:
      return spec::f32_cbrt_bits(a);
    case VpuOp::kErfF:
      return spec::f32_erf_bits(a);
    case VpuOp::kCmpF:
      return compare(as_float(a), as_float(b), imm) ? 1 : 0;
    case VpuOp::kCmpS:
      return compare(sa, sb, imm) ? 1 : 0;
    case VpuOp::kCmpU:
      return compare(a, b, imm) ? 1 : 0;
    case VpuOp::kSelect:
      return a != 0 ? b : c;
    case VpuOp::kAddI:
      return a + b;
    case VpuOp::kSubI:
      return a - b;
    case VpuOp::kAnd:
      return a & b;
    case VpuOp::kOr:
      return a | b;
    case VpuOp::kXor:
      return a ^ b;
    case VpuOp::kShl:
      return b >= 32 ? 0 : a << b;
    case VpuOp::kShr:
      return b >= 32 ? 0 : a >> b;
    case VpuOp::kSar:
      return static_cast<uint32_t>(sa >> std::min(b, 31u));
    case VpuOp::kMinS:
      return static_cast<uint32_t>(std::min(sa, sb));
    case VpuOp::kMaxS:
      return static_cast<uint32_t>(std::max(sa, sb));
    case VpuOp::kMinU:
      return std::min(a, b);
    case VpuOp::kMaxU:
      return std::max(a, b);
    case VpuOp::kMulI:
      return a * b;
    case VpuOp::kMulhiU:
      return static_cast<uint32_t>((uint64_t{a} * b) >> 32);
    case VpuOp::kDivS:
    case VpuOp::kDivU:
    case VpuOp::kRemS:
    case VpuOp::kRemU:
      return divide_i(op, a, b);
    case VpuOp::kPowS:
    case VpuOp::kPowU: {
      if (op == VpuOp::kPowS && sb < 0) {
        return a == 1 || (sa == -1 && sb % 2 == 0) ? 1 : (sa == -1 ? ~0u : 0);
      }
      uint32_t r = 1;
      for (uint32_t bit = 32; bit-- > 0;) {
        r = r * r * ((b >> bit & 1) != 0 ? a : 1);
      }
      return r;
    }
    case VpuOp::kNot:
      return ~a;
    case VpuOp::kNegI:
      return 0u - a;
    case VpuOp::kAbsI:
      return sa < 0 ? 0u - a : a;
    case VpuOp::kSignI:
      return static_cast<uint32_t>((sa > 0) - (sa < 0));
    case VpuOp::kPopcnt:
      return static_cast<uint32_t>(std::popcount(a));
    case VpuOp::kClz:
      return static_cast<uint32_t>(std::countl_zero(a));
    case VpuOp::kF2i:
      return saturate(as_float(a), -2147483648.0, 2147483647.0);
    case VpuOp::kF2u:
      return saturate(as_float(a), 0.0, 4294967295.0);
    case VpuOp::kI2f:
      return spec::f32_bits(static_cast<float>(sa));
    case VpuOp::kU2f:
      return spec::f32_bits(static_cast<float>(a));
    default:
      return 0xdeadbeefu;
  }
}

inline uint32_t reduce_op(uint32_t reduction, uint32_t a, uint32_t b) {
  switch (static_cast<spec::VpuReduce>(reduction)) {
#define TPU_REDUCTION(id, function) \
  case spec::VpuReduce::id:         \
    return lane_op(VpuOp::id, a, b, 0, 0);
    TPU_VPU_REDUCTIONS(TPU_REDUCTION)
#undef TPU_REDUCTION
  }
  return 0xdeadbeefu;
}

inline uint32_t load_element(const uint8_t* p, Elem type) {
  const uint32_t low = p[0];
  const auto half = [&] { return low | static_cast<uint32_t>(p[1]) << 8; };
  switch (type) {
    case Elem::kBf16:
      return spec::bf16_to_f32_bits(static_cast<uint16_t>(half()));
    case Elem::kI16:
      return static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(half())));
    case Elem::kUi16:
      return half();
    case Elem::kI8:
      return static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(low)));
    case Elem::kUi8:
    case Elem::kI1:
      return low;
    default: {
      uint32_t word;
      std::memcpy(&word, p, 4);
      return word;
    }
  }
}

inline void store_element(uint8_t* p, Elem type, uint32_t value) {
  if (type == Elem::kBf16) {
    value = spec::bf16_from_f32_bits(value);
  } else if (type == Elem::kI1) {
    value = value != 0 ? 1 : 0;
  }
  std::memcpy(p, &value, static_cast<size_t>(vpu_element_bytes(static_cast<uint8_t>(type))));
}

/// Runs a whole command; registers start as garbage.
class Machine {
 public:
  Machine(const VpuProgram& program, const spec::VpuKernelCommand& command,
          std::vector<spec::VpuAccess> accesses, std::vector<int64_t> bases,
          std::array<uint32_t, 4> scalars, uint8_t* vmem)
      : program_(program),
        command_(command),
        accesses_(std::move(accesses)),
        bases_(std::move(bases)),
        scalars_(scalars),
        vmem_(vmem),
        registers_(kVpuRegisters) {
    for (auto& r : registers_) {
      r.fill(0x7fbadbadu);
    }
  }

  void run() {
    const auto& n = command_.loops;
    section(0);
    for (i_[0] = 0; i_[0] < n[0]; ++i_[0]) {
      section(1);
      for (i_[1] = 0; i_[1] < n[1]; ++i_[1]) {
        section(2);
        for (i_[2] = 0; i_[2] < n[2]; ++i_[2]) {
          section(3);
          for (i_[3] = 0; i_[3] < n[3]; ++i_[3]) {
            section(4);
          }
          section(5);
        }
        section(6);
      }
      section(7);
    }
    section(8);
  }

 private:
  bool flat() const { return command_.flat(); }
  int64_t index(int loop, int depth) const {
    return loop < depth ? int64_t{i_[static_cast<size_t>(loop)]} : 0;
  }
  bool valid(int s, int l, int depth) const {
    if (flat()) {
      return index(command_.col_loop, depth) * 1024 + s * 128 + l < command_.cols;
    }
    return index(command_.row_loop, depth) * 8 + s < command_.rows &&
           index(command_.col_loop, depth) * 128 + l < command_.cols;
  }
  int64_t address(size_t access, int s, int l, int depth) const {
    const spec::VpuAccess& a = accesses_[access];
    int64_t result = bases_[access];
    for (int d = 0; d < depth; ++d) {
      result += index(d, depth) * a.loop[static_cast<size_t>(d)];
    }
    return result +
           (flat() ? int64_t{a.lane} * (s * 128 + l) : int64_t{a.sub} * s + int64_t{a.lane} * l);
  }

  void section(int which) {
    for (const spec::VpuInsn& insn : program_.section(which)) {
      execute(insn, kVpuSectionDepth[static_cast<size_t>(which)]);
    }
  }

  void execute(const spec::VpuInsn& insn, int depth) {
    const auto op = static_cast<VpuOp>(insn.op);
    if (op == VpuOp::kLred || op == VpuOp::kSred) {
      return reduce(insn, op == VpuOp::kLred);
    }
    for (int s = 0; s < 8; ++s) {
      for (int l = 0; l < 128; ++l) {
        lane(insn, op, s, l, depth);
      }
    }
  }

  void lane(const spec::VpuInsn& insn, VpuOp op, int s, int l, int depth) {
    const auto e = static_cast<size_t>(s * 128 + l);
    const bool is_valid = valid(s, l, depth);
    uint32_t& rd = registers_[insn.rd][e];
    const uint32_t rs1 = registers_[insn.rs1 % 32u][e];
    switch (op) {
      case VpuOp::kLoad:
        rd = is_valid ? load_element(vmem_ + address(insn.imm, s, l, depth), type(insn.imm)) : 0;
        return;
      case VpuOp::kStore:
        if (is_valid && (insn.rs2 % 2 == 0 || s == 0) && (insn.rs2 < 2 || l == 0)) {
          store_element(vmem_ + address(insn.imm, s, l, depth), type(insn.imm), rs1);
        }
        return;
      case VpuOp::kIndex:
        rd = static_cast<uint32_t>(address(insn.imm, s, l, depth));
        return;
      case VpuOp::kMaskid:
        rd = is_valid ? rs1 : insn.imm;
        return;
      case VpuOp::kScalar:
        rd = scalars_[insn.imm];
        return;
      default:
        rd = lane_op(op, rs1, registers_[insn.rs2 % 32u][e], registers_[insn.imm % 32u][e],
                     insn.imm);
    }
  }

  void reduce(const spec::VpuInsn& insn, bool lanes) {
    std::array<uint32_t, kVpuBlock> x = registers_[insn.rs1];
    const int count = lanes ? 128 : 8;
    const int others = lanes ? 8 : 128;
    for (int o = 0; o < others; ++o) {
      const auto at = [&](int i) -> uint32_t& {
        return x[static_cast<size_t>(lanes ? o * 128 + i : i * 128 + o)];
      };
      for (int half = count / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) {
          at(i) = reduce_op(insn.imm, at(i), at(i + half));
        }
      }
      for (int i = 1; i < count; ++i) {
        at(i) = at(0);
      }
    }
    registers_[insn.rd] = x;
  }

  Elem type(uint32_t access) const { return static_cast<Elem>(accesses_[access].type); }

  const VpuProgram& program_;
  spec::VpuKernelCommand command_;
  std::vector<spec::VpuAccess> accesses_;
  std::vector<int64_t> bases_;
  std::array<uint32_t, 4> scalars_;
  uint8_t* vmem_;
  std::vector<std::array<uint32_t, kVpuBlock>> registers_;
  std::array<uint32_t, 4> i_{};
};

}  // namespace tpu::model::reference
