// The matmuls that the matrix engine's benchmarks share: dense row-major operands.
#pragma once

#include "mxu/mxu_engine.hpp"

namespace tpu::benchmarks {

// out[m, n] = lhs[m, k] x rhs[k, n]. `Operand`: float, or uint16_t for bf16.
template <class Operand>
model::MxuJob dense_job(int64_t m, int64_t k, int64_t n, const Operand* lhs, const Operand* rhs,
                        float* out) {
  model::MxuJob job;
  job.lhs = reinterpret_cast<const uint8_t*>(lhs);
  job.rhs = reinterpret_cast<const uint8_t*>(rhs);
  job.out = reinterpret_cast<uint8_t*>(out);
  job.lhs_is_bf16 = job.rhs_is_bf16 = sizeof(Operand) == 2;
  job.m_count[3] = m;
  job.k_count[2] = k;
  job.n_count[1] = n;
  job.m_lhs_stride[3] = k * job.lhs_element();
  job.k_rhs_stride[2] = n * job.rhs_element();
  job.m_out_stride[3] = n * 4;
  job.n_rhs_stride[1] = job.rhs_element();
  job.n_out_stride[1] = 4;
  return job;
}

template <class Operand>
model::MxuJob square_job(int64_t n, const Operand* lhs, const Operand* rhs, float* out) {
  return dense_job(n, n, n, lhs, rhs, out);
}

inline double square_flops(int64_t n) {
  return 2.0 * static_cast<double>(n) * static_cast<double>(n * n);
}

}  // namespace tpu::benchmarks
