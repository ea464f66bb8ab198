// Sets the host's mode for subnormal numbers for the life of an object, so that its arithmetic has
// the semantics of f32.hpp: on x86-64 that of SSE, AVX and AVX-512 (FTZ and DAZ of MXCSR), on
// aarch64 that of NEON (FZ of FPCR). x86-64 judges tininess after rounding, as f32.hpp does.
// aarch64 judges it before rounding: products and fused multiply-adds need host_f32.hpp there. NaN
// payloads are not covered: canonicalise results. The register belongs to the OS thread and
// SystemC's coroutine switch does not save it: never wait() while one is alive.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#elif !defined(__aarch64__)
#error "tpuboard needs x86-64 or aarch64"
#endif

#include <cstdint>

namespace tpu::spec {

class ScopedFlushMode {
 public:
  ScopedFlushMode() : saved_(read()) { write(kFlushNearestMasked); }
  ~ScopedFlushMode() { write(saved_); }
  ScopedFlushMode(const ScopedFlushMode&) = delete;
  ScopedFlushMode& operator=(const ScopedFlushMode&) = delete;

  // The mode of the calling thread, without flags of past operations.
  static uint64_t mode() { return read() & ~uint64_t{kFlags}; }

 private:
#if defined(__x86_64__)
  using Register = unsigned;
  static constexpr Register kFlags = 0x3fu;
  // FTZ | DAZ, round to nearest, all exceptions masked.
  static constexpr Register kFlushNearestMasked = 0x8000u | 0x0040u | 0x1f80u;
  static Register read() { return _mm_getcsr(); }
  static void write(Register mode) { _mm_setcsr(mode); }
#else
  using Register = uint64_t;
  static constexpr Register kFlags = 0;
  static constexpr Register kFlushNearestMasked = uint64_t{1} << 24;  // FZ alone
  static Register read() {
    Register mode = 0;
    asm volatile("mrs %0, fpcr" : "=r"(mode) : : "memory");
    return mode;
  }
  static void write(Register mode) { asm volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
#endif
  Register saved_;
};

}  // namespace tpu::spec
