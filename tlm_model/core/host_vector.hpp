// Vectors of 16 bytes for copies and transposes: SSE2, or NEON. Stores around the caches (stream),
// and requests for memory, are hints: a host without them stores as always.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <emmintrin.h>
#else
#include <arm_neon.h>
#endif

namespace tpu::model {

#if defined(__x86_64__)
using Vector16 = __m128i;

inline Vector16 load16(const uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
inline void store16(uint8_t* to, Vector16 value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
}
// `to` is aligned to 16 bytes.
inline void stream16(uint8_t* to, Vector16 value) {
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), value);
}
// Before other threads are told of what was streamed.
inline void end_stream() { _mm_sfence(); }
// Into the second-level cache.
inline void ask_for(const uint8_t* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1);
}

// By turns an element of a and of b: of their lower halves, of their upper halves.
inline Vector16 low_halves16(Vector16 a, Vector16 b) { return _mm_unpacklo_epi16(a, b); }
inline Vector16 high_halves16(Vector16 a, Vector16 b) { return _mm_unpackhi_epi16(a, b); }
inline Vector16 low_halves32(Vector16 a, Vector16 b) { return _mm_unpacklo_epi32(a, b); }
inline Vector16 high_halves32(Vector16 a, Vector16 b) { return _mm_unpackhi_epi32(a, b); }
inline Vector16 low_halves64(Vector16 a, Vector16 b) { return _mm_unpacklo_epi64(a, b); }
inline Vector16 high_halves64(Vector16 a, Vector16 b) { return _mm_unpackhi_epi64(a, b); }
#else
using Vector16 = uint8x16_t;

inline Vector16 load16(const uint8_t* from) { return vld1q_u8(from); }
inline void store16(uint8_t* to, Vector16 value) { vst1q_u8(to, value); }
inline void stream16(uint8_t* to, Vector16 value) { vst1q_u8(to, value); }
inline void end_stream() {}
inline void ask_for(const uint8_t* at) { __builtin_prefetch(at, 0, 2); }

inline Vector16 low_halves16(Vector16 a, Vector16 b) {
  return vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
}
inline Vector16 high_halves16(Vector16 a, Vector16 b) {
  return vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
}
inline Vector16 low_halves32(Vector16 a, Vector16 b) {
  return vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
}
inline Vector16 high_halves32(Vector16 a, Vector16 b) {
  return vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
}
inline Vector16 low_halves64(Vector16 a, Vector16 b) {
  return vreinterpretq_u8_u64(vzip1q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}
inline Vector16 high_halves64(Vector16 a, Vector16 b) {
  return vreinterpretq_u8_u64(vzip2q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}
#endif

}  // namespace tpu::model
