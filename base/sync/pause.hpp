// A hint to the processor between two looks at a sign of another thread.
#pragma once

namespace tpu::base {

inline void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("isb" : : : "memory");  // `yield` takes no time on most processors
#endif
}

}  // namespace tpu::base
