// The kernel sets of the fast engine that tests run: those of the host, and those for AVX-512 and
// AMX by emulation, which every host with AVX2 can run.
#pragma once

#include <string>
#include <vector>

#include "emulated_kernels.hpp"
#include "mxu/mxu_fast.hpp"

namespace tpu::test {

struct KernelSet {
  std::string name;
  const model::MxuKernelSet* kernels;  // null: the reference
};

inline std::vector<KernelSet> kernel_sets() {
  std::vector<KernelSet> sets;
  for (const model::MxuSimd simd : base::host_simd()) {
    sets.push_back({base::simd_name(simd), model::mxu_kernels(simd)});
  }
#if defined(__x86_64__)
  if (sets.size() > 1) {
    sets.push_back({"emulated avx512", model::emulated_mxu_kernels_avx512()});
    sets.push_back({"emulated avx512_bf16", model::emulated_mxu_kernels_avx512_bf16()});
    sets.push_back({"emulated amx", model::emulated_mxu_kernels_amx()});
  }
#endif
  return sets;
}

}  // namespace tpu::test
