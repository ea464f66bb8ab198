// Sets the host's FTZ and DAZ bits for the life of an object, so that SSE/AVX/AVX-512 arithmetic
// has the semantics of f32.hpp (x86 judges tininess after rounding, as they do). NaN payloads are
// not covered: canonicalise results. MXCSR belongs to the OS thread and SystemC's coroutine switch
// does not save it: never wait() while one is alive.
#pragma once

#include <immintrin.h>

namespace tpu::spec {

class ScopedFlushMode {
 public:
  ScopedFlushMode() : saved_(_mm_getcsr()) { _mm_setcsr(kFlushNearestMasked); }
  ~ScopedFlushMode() { _mm_setcsr(saved_); }
  ScopedFlushMode(const ScopedFlushMode&) = delete;
  ScopedFlushMode& operator=(const ScopedFlushMode&) = delete;

 private:
  // FTZ | DAZ, round to nearest, all exceptions masked.
  static constexpr unsigned kFlushNearestMasked = 0x8000u | 0x0040u | 0x1f80u;
  unsigned saved_;
};

}  // namespace tpu::spec
