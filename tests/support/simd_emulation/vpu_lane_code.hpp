// The lane code of the vector unit that tests run: that of the host, and that for AVX-512 with its
// instructions emulated, which every host with AVX2 can run.
#pragma once

#include <string>
#include <vector>

#include "emulated_kernels.hpp"
#include "vpu/vpu_simd.hpp"

namespace tpu::test {

struct LaneCode {
  std::string name;
  model::VpuOpTable table;
};

inline std::vector<LaneCode> lane_codes() {
  std::vector<LaneCode> codes;
  for (const model::VpuSimd simd : model::vpu_host_simds()) {
    codes.push_back({std::string(model::vpu_simd_name(simd)), model::vpu_ops(simd)});
  }
#if defined(__x86_64__)
  if (codes.size() > 1) {
    codes.push_back({"emulated avx512", model::emulated_vpu_ops_avx512()});
  }
#endif
  return codes;
}

}  // namespace tpu::test
