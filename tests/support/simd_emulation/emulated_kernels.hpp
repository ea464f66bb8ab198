// The model's kernels for AVX-512 and AMX on a host that has AVX2: their own sources, compiled with
// emulated instructions. What ran here without a difference has run on no such processor: the
// compiler's code and the instructions themselves are not tested.
#pragma once

#include "mxu/mxu_fast_kernels.hpp"
#include "vpu/vpu_ops.hpp"

namespace tpu::model {

const MxuKernelSet* emulated_mxu_kernels_avx512();
const MxuKernelSet* emulated_mxu_kernels_avx512_bf16();
const MxuKernelSet* emulated_mxu_kernels_amx();
VpuOpTable emulated_vpu_ops_avx512();

}  // namespace tpu::model
