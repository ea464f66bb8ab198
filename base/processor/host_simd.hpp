// Instruction sets that the simulation has kernels for, and which of them this processor has.
#pragma once

#include <vector>

namespace tpu::base {

enum class HostSimd { kScalar, kNeon, kAvx2, kAvx512, kAvx512Bf16, kAmx };

/// What this processor has and its operating system permits: kScalar, then by the speed of the
/// matrix kernels, the fastest last. It asks Linux for the tiles of AMX, for the whole process.
std::vector<HostSimd> host_simd();

/// True if this processor has the set.
bool has_simd(HostSimd simd);

/// "scalar", "neon", "avx2", "avx512", "avx512_bf16", "amx".
const char* simd_name(HostSimd simd);

}  // namespace tpu::base
