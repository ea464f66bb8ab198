// Included ahead of the kernel sources for AVX-512 and AMX where they are compiled for any host:
// their instructions are emulated and their entries get names of their own.
#pragma once

#include "amx_instructions.hpp"
#include "avx512_instructions.hpp"

#define mxu_kernels_avx512 emulated_mxu_kernels_avx512
#define mxu_kernels_avx512_bf16 emulated_mxu_kernels_avx512_bf16
#define mxu_kernels_amx emulated_mxu_kernels_amx
#define vpu_ops_avx512 emulated_vpu_ops_avx512
