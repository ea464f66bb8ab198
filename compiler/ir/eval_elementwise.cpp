// Elementwise ops on arrays. Floats are computed in f32 and rounded to the result's type; integers
// are computed in 64 bits and wrapped. Division by zero, shifts and NaN follow StableHLO as JAX
// runs it.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "arith/bf16.hpp"
#include "arith/f32.hpp"
#include "arith/host_f32.hpp"
#include "arith/trigonometric.hpp"
#include "ir/compare_values.hpp"
#include "ir/elements.hpp"
#include "ir/op_traits.hpp"

namespace tpu::compiler::eval {
namespace {

// Host scalars as lanes of the transcendentals; exact while the host flushes subnormals.
struct ScalarLane {
  using F = spec::HostF32;
  using U = uint32_t;
  using I = int32_t;
  using M = bool;
  static F splat(float v) { return v; }
  static F fma(F a, F b, F c) {
    return spec::host_fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
  }
  static F sqrt(F x) { return std::sqrt(static_cast<float>(x)); }
  static F select(M m, F a, F b) { return m ? a : b; }
  static U select(M m, U a, U b) { return m ? a : b; }
  static U bits(F x) { return std::bit_cast<U>(static_cast<float>(x)); }
  static F value(U x) { return std::bit_cast<float>(x); }
  static U sra(U x, int n) { return static_cast<U>(static_cast<I>(x) >> n); }
  static F to_float(U x) { return static_cast<float>(static_cast<I>(x)); }
  static U trunc(F x) { return static_cast<U>(static_cast<I>(static_cast<float>(x))); }
  static M both(M a, M b) { return a && b; }
  static M either(M a, M b) { return a || b; }
  static bool any(M m) { return m; }
};
using Semantics = spec::Trigonometric<ScalarLane>;

int width_of(Elem e) { return e == Elem::kI1 ? 1 : static_cast<int>(elem_bytes(e) * 8); }

// Value of the low `width` bits, unsigned.
uint64_t low_bits(int64_t v, int width) {
  return width == 64 ? static_cast<uint64_t>(v)
                     : static_cast<uint64_t>(v) & ((uint64_t{1} << width) - 1);
}

float sign_of(float x) {
  if (std::isnan(x) || x == 0) {
    return canonical(x);
  }
  return x > 0 ? 1.0f : -1.0f;
}

// Operations on the sign bit: NaN payloads and subnormals stay.
bool is_sign_rule(Kind kind) { return kind == Kind::kAbs || kind == Kind::kNegate; }

float with_sign_rule(Kind kind, float x) {
  const uint32_t bits = spec::f32_bits(x);
  return spec::f32_from_bits(kind == Kind::kAbs ? bits & spec::kF32MagnitudeMask
                                                : bits ^ spec::kF32SignMask);
}

constexpr bool takes_floats(Kind kind) {
  const Takes takes = traits_of(kind).takes;
  return takes == Takes::kAny || takes == Takes::kNumbers || takes == Takes::kFloats ||
         takes == Takes::kFloatsOrComplex;
}
constexpr bool takes_integers(Kind kind) {
  const Takes takes = traits_of(kind).takes;
  return takes == Takes::kAny || takes == Takes::kNumbers || takes == Takes::kBits ||
         takes == Takes::kIntegers;
}
constexpr bool is_unary(Kind kind) {  // those with attributes have functions of their own
  return traits_of(kind).group == Group::kUnary && kind != Kind::kReducePrecision;
}
constexpr bool is_binary(Kind kind) { return traits_of(kind).group == Group::kBinary; }

constexpr KindTable<float (*)(float)> kUnaryFloats{
    {Kind::kAbs, [](float x) { return with_sign_rule(Kind::kAbs, x); }},
    {Kind::kNegate, [](float x) { return with_sign_rule(Kind::kNegate, x); }},
    {Kind::kSign, sign_of},
    {Kind::kSqrt, [](float x) { return std::sqrt(x); }},
    {Kind::kRsqrt, [](float x) { return static_cast<float>(Semantics::rsqrt(x)); }},
    {Kind::kExp, [](float x) { return static_cast<float>(Semantics::exp(x)); }},
    {Kind::kExpm1, [](float x) { return static_cast<float>(Semantics::expm1(x)); }},
    {Kind::kLog, [](float x) { return static_cast<float>(Semantics::log(x)); }},
    {Kind::kLog1p, [](float x) { return static_cast<float>(Semantics::log1p(x)); }},
    {Kind::kTanh, [](float x) { return static_cast<float>(Semantics::tanh(x)); }},
    {Kind::kLogistic, [](float x) { return static_cast<float>(Semantics::logistic(x)); }},
    {Kind::kSine, [](float x) { return static_cast<float>(Semantics::sin(x)); }},
    {Kind::kCosine, [](float x) { return static_cast<float>(Semantics::cos(x)); }},
    {Kind::kTan, [](float x) { return static_cast<float>(Semantics::tan(x)); }},
    {Kind::kCbrt, [](float x) { return static_cast<float>(Semantics::cbrt(x)); }},
    {Kind::kErf, [](float x) { return static_cast<float>(Semantics::erf(x)); }},
    {Kind::kFloor, [](float x) { return std::floor(canonical(x)); }},
    {Kind::kCeil, [](float x) { return std::ceil(canonical(x)); }},
    {Kind::kRoundEven, [](float x) { return std::nearbyint(canonical(x)); }},
    {Kind::kRoundAfz, [](float x) { return std::round(canonical(x)); }},
    {Kind::kReal, [](float x) { return canonical(x); }},
    {Kind::kImag, [](float) { return 0.0f; }},
};
static_assert(kUnaryFloats.has_all([](Kind k) { return is_unary(k) && takes_floats(k); }));

constexpr KindTable<int64_t (*)(int64_t, Elem)> kUnaryIntegers{
    {Kind::kAbs,
     [](int64_t x, Elem e) {
       return is_signed(e) && x < 0 ? static_cast<int64_t>(-static_cast<uint64_t>(x)) : x;
     }},
    {Kind::kNegate,
     [](int64_t x, Elem) { return static_cast<int64_t>(-static_cast<uint64_t>(x)); }},
    {Kind::kSign,
     [](int64_t x, Elem e) -> int64_t { return x == 0 ? 0 : (is_signed(e) && x < 0 ? -1 : 1); }},
    {Kind::kNot, [](int64_t x, Elem e) { return e == Elem::kI1 ? (x ^ 1) : ~x; }},
    {Kind::kPopcnt,
     [](int64_t x, Elem e) -> int64_t { return std::popcount(low_bits(x, width_of(e))); }},
    {Kind::kClz,
     [](int64_t x, Elem e) -> int64_t {
       return std::countl_zero(low_bits(x, width_of(e))) - (64 - width_of(e));
     }},
};
static_assert(kUnaryIntegers.has_all([](Kind k) { return is_unary(k) && takes_integers(k); }));

template <bool kMaximum>
float extreme_float(float a, float b) {
  a = canonical(a);
  b = canonical(b);
  if (std::isnan(a) || std::isnan(b)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const bool a_less = a < b || (a == b && std::signbit(a));
  return kMaximum == a_less ? b : a;
}

constexpr KindTable<float (*)(float, float)> kBinaryFloats{
    {Kind::kAdd, [](float a, float b) { return a + b; }},
    {Kind::kSubtract, [](float a, float b) { return a - b; }},
    {Kind::kMultiply, [](float a, float b) { return spec::host_mul(a, b); }},
    {Kind::kDivide, [](float a, float b) { return a / b; }},
    {Kind::kPower, [](float a, float b) { return static_cast<float>(Semantics::pow(a, b)); }},
    {Kind::kAtan2, [](float a, float b) { return static_cast<float>(Semantics::atan2(a, b)); }},
    {Kind::kRemainder, [](float a, float b) { return std::fmod(canonical(a), canonical(b)); }},
    {Kind::kMaximum, extreme_float<true>},
    {Kind::kMinimum, extreme_float<false>},
};
static_assert(kBinaryFloats.has_all([](Kind k) { return is_binary(k) && takes_floats(k); }));

int64_t power_int(int64_t base, int64_t exponent, Elem e) {
  if (is_signed(e) && exponent < 0) {
    return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  }
  uint64_t result = 1;
  auto b = static_cast<uint64_t>(base);
  for (auto n = static_cast<uint64_t>(exponent); n != 0; n >>= 1) {
    result *= (n & 1) != 0 ? b : 1;
    b *= b;
  }
  return static_cast<int64_t>(result);
}

template <bool kQuotient>
int64_t divide_int(int64_t a, int64_t b, Elem e) {
  if (b == 0) {
    return kQuotient ? -1 : a;
  }
  if (!is_signed(e)) {
    const auto x = static_cast<uint64_t>(a);
    const auto y = static_cast<uint64_t>(b);
    return static_cast<int64_t>(kQuotient ? x / y : x % y);
  }
  if (b == -1) {
    return kQuotient ? static_cast<int64_t>(-static_cast<uint64_t>(a)) : 0;
  }
  return kQuotient ? a / b : a % b;
}

template <Kind kKind>
int64_t shift_int(int64_t a, int64_t b, Elem e) {
  const int width = width_of(e);
  const uint64_t amount = low_bits(b, width);
  const bool too_far = amount >= static_cast<uint64_t>(width);
  if constexpr (kKind == Kind::kShiftLeft) {
    return too_far ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << amount);
  } else if constexpr (kKind == Kind::kShiftRightLogical) {
    return too_far ? 0 : static_cast<int64_t>(low_bits(a, width) >> amount);
  } else {
    // Arithmetic: the sign bit of the element, also for unsigned types.
    const int64_t extended =
        width == 64 ? a : static_cast<int64_t>(low_bits(a, width) << (64 - width)) >> (64 - width);
    return extended >> (too_far ? 63 : static_cast<int>(amount));
  }
}

bool less(int64_t a, int64_t b, Elem e) {
  return is_signed(e) ? a < b : static_cast<uint64_t>(a) < static_cast<uint64_t>(b);
}

int64_t wrapped(uint64_t x) { return static_cast<int64_t>(x); }
uint64_t bits_of(int64_t x) { return static_cast<uint64_t>(x); }

constexpr KindTable<int64_t (*)(int64_t, int64_t, Elem)> kBinaryIntegers{
    {Kind::kAdd,
     [](int64_t a, int64_t b, Elem e) {
       return e == Elem::kI1 ? (a | b) : wrapped(bits_of(a) + bits_of(b));
     }},
    {Kind::kSubtract, [](int64_t a, int64_t b, Elem) { return wrapped(bits_of(a) - bits_of(b)); }},
    {Kind::kMultiply,
     [](int64_t a, int64_t b, Elem e) {
       return e == Elem::kI1 ? (a & b) : wrapped(bits_of(a) * bits_of(b));
     }},
    {Kind::kDivide, divide_int<true>},
    {Kind::kRemainder, divide_int<false>},
    {Kind::kMaximum, [](int64_t a, int64_t b, Elem e) { return less(a, b, e) ? b : a; }},
    {Kind::kMinimum, [](int64_t a, int64_t b, Elem e) { return less(b, a, e) ? b : a; }},
    {Kind::kPower, power_int},
    {Kind::kAnd, [](int64_t a, int64_t b, Elem) { return a & b; }},
    {Kind::kOr, [](int64_t a, int64_t b, Elem) { return a | b; }},
    {Kind::kXor, [](int64_t a, int64_t b, Elem) { return a ^ b; }},
    {Kind::kMultiplyHigh,
     [](int64_t a, int64_t b, Elem) { return wrapped((low_bits(a, 32) * low_bits(b, 32)) >> 32); }},
    {Kind::kShiftLeft, shift_int<Kind::kShiftLeft>},
    {Kind::kShiftRightLogical, shift_int<Kind::kShiftRightLogical>},
    {Kind::kShiftRightArith, shift_int<Kind::kShiftRightArith>},
};
static_assert(kBinaryIntegers.has_all([](Kind k) { return is_binary(k) && takes_integers(k); }));

// Orders all floats: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
int32_t total_order_key(float x) {
  const auto bits = std::bit_cast<int32_t>(x);
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}

Tensor compare(const Op& op, const Tensors& in, const Dims& dims) {
  const auto& a = op.as<CompareAttrs>();
  const Elem e = in[0]->type.elem;
  Tensor out = make_tensor({Elem::kI1, dims});
  std::vector<int64_t> r(static_cast<size_t>(out.type.count()));
  if (is_float(e)) {
    const auto x = load_floats(*in[0]);
    const auto y = load_floats(*in[1]);
    for (size_t i = 0; i < r.size(); ++i) {
      r[i] =
          a.type == CompareType::kTotalOrder
              ? compare_values(a.direction, total_order_key(x[i]), total_order_key(y[i]),
                               std::less<int32_t>())
              : compare_values(a.direction, canonical(x[i]), canonical(y[i]), std::less<float>());
    }
  } else {
    const auto x = load_ints(*in[0]);
    const auto y = load_ints(*in[1]);
    for (size_t i = 0; i < r.size(); ++i) {
      r[i] = compare_values(a.direction, x[i], y[i],
                            [e](int64_t p, int64_t q) { return less(p, q, e); });
    }
  }
  store_ints(r, out);
  return out;
}

int64_t to_int(float x, Elem e) {
  if (std::isnan(x)) {
    return 0;
  }
  const int width = width_of(e);
  const double v = std::trunc(static_cast<double>(x));
  const double high = std::ldexp(1.0, is_signed(e) ? width - 1 : width);  // first value too large
  const double low = is_signed(e) ? -high : 0.0;
  if (v >= high) {
    return is_signed(e) ? static_cast<int64_t>(low_bits(-1, width - 1))
                        : static_cast<int64_t>(low_bits(-1, width));
  }
  if (v <= low) {
    return is_signed(e) ? std::numeric_limits<int64_t>::min() >> (64 - width) : 0;
  }
  return v < 0 ? static_cast<int64_t>(v) : static_cast<int64_t>(static_cast<uint64_t>(v));
}

Tensor convert(const Tensor& in, const Type& type) {
  Tensor out = make_tensor(type);
  const Elem to = type.elem;
  if (is_float(in.type.elem)) {
    const auto x = load_floats(in);
    if (is_float(to)) {
      store_floats(x, out);
      return out;
    }
    std::vector<int64_t> y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      y[i] = to == Elem::kI1 ? !(canonical(x[i]) == 0) : to_int(canonical(x[i]), to);
    }
    store_ints(y, out);
    return out;
  }
  auto x = load_ints(in);
  if (is_float(to)) {
    std::vector<float> y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      y[i] = in.type.elem == Elem::kU64 ? static_cast<float>(static_cast<uint64_t>(x[i]))
                                        : static_cast<float>(x[i]);
    }
    store_floats(y, out);
    return out;
  }
  if (to == Elem::kI1) {
    for (int64_t& v : x) {
      v = v != 0;
    }
  }
  store_ints(x, out);
  return out;
}

Tensor select(const Tensors& in) {
  Tensor out = *in[2];
  const auto p = load_ints(*in[0]);
  const auto size = static_cast<size_t>(elem_bytes(out.type.elem));
  const size_t n = out.data.size() / size;
  for (size_t i = 0; i < n; ++i) {
    if (p[p.size() == 1 ? 0 : i] != 0) {
      std::memcpy(out.data.data() + i * size, in[1]->data.data() + i * size, size);
    }
  }
  return out;
}

Tensor clamp(const Tensors& in) {
  Tensor out = make_tensor(in[1]->type);
  const Elem e = out.type.elem;
  const auto run = [](const auto& low, auto x, const auto& high, auto larger, auto smaller) {
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = larger(x[i], low[low.size() == 1 ? 0 : i]);
      x[i] = smaller(x[i], high[high.size() == 1 ? 0 : i]);
    }
    return x;
  };
  if (is_float(e)) {
    store_floats(run(load_floats(*in[0]), load_floats(*in[1]), load_floats(*in[2]),
                     extreme_float<true>, extreme_float<false>),
                 out);
  } else {
    const auto larger = [e](int64_t a, int64_t b) { return less(a, b, e) ? b : a; };
    const auto smaller = [e](int64_t a, int64_t b) { return less(b, a, e) ? b : a; };
    store_ints(run(load_ints(*in[0]), load_ints(*in[1]), load_ints(*in[2]), larger, smaller), out);
  }
  return out;
}

Tensor multiply_add(const Tensors& in) {
  Tensor out = make_tensor(in[0]->type);
  auto x = load_floats(*in[0]);
  const auto y = load_floats(*in[1]), z = load_floats(*in[2]);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = canonical(spec::host_fma(x[i], y[i], z[i]));
  }
  store_floats(x, out);
  return out;
}

// Rounds the significand to nearest even, then lets the exponent overflow to infinity or underflow
// to zero: there are no subnormal numbers in the narrow format.
uint32_t reduced(uint32_t bits, int64_t exponent_bits, int64_t mantissa_bits) {
  if (spec::f32_is_nan(bits)) {
    return spec::kF32CanonicalNan;
  }
  if (mantissa_bits < 23) {
    const uint32_t last = uint32_t{1} << (23 - mantissa_bits);
    bits += (last >> 1) - 1 + ((bits & last) != 0 ? 1 : 0);
    bits &= ~(last - 1);
  }
  if (exponent_bits < 8) {
    const uint32_t bias = (uint32_t{1} << (exponent_bits - 1)) - 1;
    const uint32_t exponent = bits & spec::kF32Infinity;
    const uint32_t sign = bits & spec::kF32SignMask;
    if (exponent > ((127 + bias) << 23)) {
      return sign | spec::kF32Infinity;
    }
    if (exponent <= ((127 - bias) << 23)) {
      return sign;
    }
  }
  return bits;
}

Tensor reduce_precision(const Op& op, const Tensor& in) {
  const auto& a = op.as<ReducePrecisionAttrs>();
  if (is_exact(a, in.type.elem)) {
    return in;
  }
  auto x = load_floats(in);
  const bool is_bf16 = a.exponent_bits == 8 && a.mantissa_bits == 7;
  for (float& v : x) {
    v = is_bf16 ? spec::bf16_to_f32(spec::bf16_from_f32(v))
                : canonical(spec::f32_from_bits(
                      reduced(spec::f32_bits(v), a.exponent_bits, a.mantissa_bits)));
  }
  Tensor out = make_tensor(in.type);
  store_floats(x, out);
  return out;
}

template <typename Function>
Function known(Function function, Kind kind, Elem e) {
  if (function == nullptr) {
    throw Error(
        "internal: the interpreter has no function for this op on " + std::string(elem_name(e)),
        source_name(kind));
  }
  return function;
}

Tensor is_finite(const Tensor& in) {
  const auto x = load_floats(in);
  std::vector<int64_t> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = std::isfinite(x[i]);
  }
  Tensor out = make_tensor({Elem::kI1, in.type.dims});
  store_ints(y, out);
  return out;
}

Tensor unary(Kind kind, const Tensor& in, Elem to) {
  Tensor out = make_tensor({to, in.type.dims});
  if (!is_float(in.type.elem)) {
    const auto function = known(kUnaryIntegers.find(kind), kind, in.type.elem);
    auto x = load_ints(in);
    for (int64_t& v : x) {
      v = function(v, in.type.elem);
    }
    store_ints(x, out);
    return out;
  }
  const auto function = known(kUnaryFloats.find(kind), kind, in.type.elem);
  auto x = load_floats(in);
  for (float& v : x) {
    v = is_sign_rule(kind) ? function(v) : canonical(function(v));
  }
  store_floats(x, out);
  return out;
}

Tensor binary(Kind kind, const Tensors& in, const Type& type) {
  Tensor out = make_tensor(type);
  if (is_float(type.elem)) {
    const auto function = known(kBinaryFloats.find(kind), kind, type.elem);
    auto x = load_floats(*in[0]);
    const auto y = load_floats(*in[1]);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = canonical(function(x[i], y[i]));
    }
    store_floats(x, out);
  } else {
    const auto function = known(kBinaryIntegers.find(kind), kind, type.elem);
    auto x = load_ints(*in[0]);
    const auto y = load_ints(*in[1]);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = function(x[i], y[i], type.elem);
    }
    store_ints(x, out);
  }
  return out;
}

Tensor ternary(Kind kind, const Tensors& operands) {
  static constexpr KindTable<Tensor (*)(const Tensors&)> kFunctions{
      {Kind::kSelect, select}, {Kind::kClamp, clamp}, {Kind::kMultiplyAdd, multiply_add}};
  static_assert(kFunctions.has_all([](Kind k) { return traits_of(k).group == Group::kTernary; }));
  return kFunctions.find(kind)(operands);
}

}  // namespace

Tensor elementwise(const Op& op, const Tensors& operands, const Dims& dims) {
  if (op.kind == Kind::kCompare) {
    return compare(op, operands, dims);
  }
  if (op.kind == Kind::kConvert) {
    return convert(*operands[0], {op.type().elem, dims});
  }
  if (op.kind == Kind::kReducePrecision) {
    return reduce_precision(op, *operands[0]);
  }
  if (op.kind == Kind::kBitcastConvert) {
    return {op.type(), operands[0]->data};
  }
  if (op.kind == Kind::kIsFinite) {
    return is_finite(*operands[0]);
  }
  if (traits_of(op.kind).group == Group::kTernary) {
    return ternary(op.kind, operands);
  }
  return operands.size() == 1 ? unary(op.kind, *operands[0], op.type().elem)
                              : binary(op.kind, operands, {op.type().elem, dims});
}

}  // namespace tpu::compiler::eval
