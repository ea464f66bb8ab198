// Choice of the host's vector instructions for the vector unit. All give the same bits.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tpu::model {

enum class VpuSimd : uint8_t { kScalar, kNeon, kAvx2, kAvx512 };

/// The widest that this host has.
VpuSimd vpu_best_simd();
/// All that this host has, narrowest first.
std::vector<VpuSimd> vpu_host_simds();
/// "scalar", "neon", "avx2", "avx512", "avx512_bf16" and "amx" (= avx512 here), "auto" or "" (the
/// widest).
/// Throws VpuError for other names and for what this host lacks.
VpuSimd vpu_simd_from_name(std::string_view name);
std::string_view vpu_simd_name(VpuSimd simd);

struct VpuOpTable;
/// The lane code (vpu_ops.hpp), which needs a host that has the instructions.
VpuOpTable vpu_ops(VpuSimd simd);

}  // namespace tpu::model
