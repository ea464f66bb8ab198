// What one thread of this host can do at best: what `tpuboard bench --profile` measures the
// simulation's work against. How each is measured: docs/performance.md.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tpu::driver {

/// Instruction sets of the matrix engine that this host has, the best one last: avx2, avx512,
/// avx512_bf16, amx; neon on aarch64.
std::vector<std::string> host_simd();

/// Of one thread, in its processor time. 0: this host or instruction set has none.
struct HostLimits {
  double copy_bytes_per_second = 0;         ///< bytes copied, of spans that fit no cache
  double cached_copy_bytes_per_second = 0;  ///< bytes copied, of spans in the second-level cache
  double fma_flops = 0;                     ///< f32 multiply-adds, two operations each
  double bf16_flops = 0;                    ///< pairs of bf16 products, summed in f32
  double amx_flops = 0;                     ///< bf16 products of tiles, summed in f32

  nlohmann::ordered_json json() const;
};

/// Takes a third of a second. `simd`: one of host_simd(); vector instructions of 512 bits count
/// from avx512 on, products of bf16 from avx512_bf16 on, tiles with amx. Others have none of these.
/// Throws std::bad_alloc when the host lacks the memory (128 MiB).
HostLimits measure_host_limits(const std::string& simd);

}  // namespace tpu::driver
