// A matmul command as the work of an engine.
#pragma once

#include <algorithm>

#include "mxu/mxu_engine.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::model {

// What the command computes; pointers unset.
inline MxuJob mxu_job(const spec::MatmulCommand& c) {
  MxuJob job;
  job.lhs_is_bf16 = c.lhs_type == static_cast<uint8_t>(spec::Elem::kBf16);
  job.rhs_is_bf16 = c.rhs_type == static_cast<uint8_t>(spec::Elem::kBf16);
  job.accumulate = c.accumulate();
  job.rhs_transposed = c.rhs_transposed();
  std::ranges::copy(c.m, job.m_count.begin());
  std::ranges::copy(c.m_lhs, job.m_lhs_stride.begin());
  std::ranges::copy(c.m_out, job.m_out_stride.begin());
  std::ranges::copy(c.t, job.t_count.begin());
  std::ranges::copy(c.t_lhs, job.t_lhs_stride.begin());
  std::ranges::copy(c.t_rhs, job.t_rhs_stride.begin());
  std::ranges::copy(c.k, job.k_count.begin());
  std::ranges::copy(c.k_rhs, job.k_rhs_stride.begin());
  std::ranges::copy(c.n, job.n_count.begin());
  std::ranges::copy(c.n_rhs, job.n_rhs_stride.begin());
  std::ranges::copy(c.n_out, job.n_out_stride.begin());
  return job;
}

}  // namespace tpu::model
