// Whether the host has the instructions that Verilated units are compiled for
// (cmake/Verilate.cmake).
#pragma once

namespace tpu::rtl {

inline bool host_runs_units() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
#else
  return true;
#endif
}

}  // namespace tpu::rtl
