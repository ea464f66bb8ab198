// Products and fused multiply-adds of a host in flush mode (flush_mode.hpp), with the semantics of
// f32.hpp but for the bits of NaNs. Sums, differences, quotients and square roots need no help:
// tiny sums are exact, and no quotient lies in the range below.
// A host that judges tininess before rounding makes zero of exact results from just below the
// smallest normal number, those that round to it. These are computed once more.
#pragma once

#include <cmath>
#include <cstdint>

#include "arith/f32.hpp"

namespace tpu::spec {

#if defined(__x86_64__)
inline constexpr bool kHostTinyAfterRounding = true;
#else
inline constexpr bool kHostTinyAfterRounding = false;
#endif

namespace detail {

// The smallest exact result that rounds to the smallest normal number, less a little for sums
// that a double rounds.
inline constexpr double kAlmostNormal = 0x1.fffffep-127;

// `flushed` is what the host gave for a * b + c: zero.
inline float fma_from_zero(float a, float b, float c, float flushed) {
  const double product = static_cast<double>(a) * static_cast<double>(b);  // exact
  const double near = std::abs(product + static_cast<double>(c));
  if (!(near >= kAlmostNormal)) {
    return flushed;
  }
  return f32_from_bits(f32_fma_bits(f32_bits(a), f32_bits(b), f32_bits(c)));
}

}  // namespace detail

// a * b + c with one rounding.
inline float host_fma(float a, float b, float c) {
  const float result = std::fma(a, b, c);
  if constexpr (!kHostTinyAfterRounding) {
    if (result == 0.0f) [[unlikely]] {
      return detail::fma_from_zero(a, b, c, result);
    }
  }
  return result;
}

// a * b.
inline float host_mul(float a, float b) {
  const float result = a * b;
  if constexpr (!kHostTinyAfterRounding) {
    if (result == 0.0f) [[unlikely]] {
      return detail::fma_from_zero(a, b, 0.0f, result);
    }
  }
  return result;
}

#if defined(__aarch64__)
// For code that computes many sums first and asks then: whether a result since the last clear was
// flushed, early or not. The arithmetic in between is in functions that are not inlined.
inline void clear_host_underflow() { asm volatile("msr fpsr, xzr" : : : "memory"); }
inline bool host_underflowed() {
  uint64_t status = 0;
  asm volatile("mrs %0, fpsr" : "=r"(status) : : "memory");
  constexpr uint64_t kUnderflow = 1U << 3;
  return (status & kUnderflow) != 0;
}
#endif

// `value` rounded to f32.
inline float host_narrow(double value) {
  const auto result = static_cast<float>(value);
  if constexpr (!kHostTinyAfterRounding) {
    constexpr double kRoundsToNormal = 0x1.ffffffp-127;  // halfway, to even
    if (result == 0.0f && std::abs(value) >= kRoundsToNormal) [[unlikely]] {
      return std::copysign(f32_from_bits(kF32MinNormal), result);
    }
  }
  return result;
}

// A number for code that is written for lanes of several kinds: `*` is host_mul.
class HostF32 {
 public:
  HostF32(float value) : value_(value) {}  // NOLINT: literals mix with lanes
  explicit operator float() const { return value_; }

  friend HostF32 operator+(HostF32 a, HostF32 b) { return a.value_ + b.value_; }
  friend HostF32 operator-(HostF32 a, HostF32 b) { return a.value_ - b.value_; }
  friend HostF32 operator*(HostF32 a, HostF32 b) { return host_mul(a.value_, b.value_); }
  friend HostF32 operator/(HostF32 a, HostF32 b) { return a.value_ / b.value_; }
  friend bool operator==(HostF32 a, HostF32 b) { return a.value_ == b.value_; }
  friend bool operator!=(HostF32 a, HostF32 b) { return a.value_ != b.value_; }
  friend bool operator<(HostF32 a, HostF32 b) { return a.value_ < b.value_; }
  friend bool operator<=(HostF32 a, HostF32 b) { return a.value_ <= b.value_; }
  friend bool operator>(HostF32 a, HostF32 b) { return a.value_ > b.value_; }
  friend bool operator>=(HostF32 a, HostF32 b) { return a.value_ >= b.value_; }

 private:
  float value_;
};

}  // namespace tpu::spec
