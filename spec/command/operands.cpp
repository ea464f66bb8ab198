// Patterns of operands.
#include "command/operands.hpp"

namespace tpu::spec {
namespace {

template <size_t kCount, typename Stride>
void add(StridePattern& pattern, const std::array<uint32_t, kCount>& counts,
         const std::array<Stride, kCount>& strides) {
  for (size_t i = 0; i < kCount; ++i) {
    pattern.add(counts[i], strides[i]);
  }
}

int64_t matmul_element(uint8_t type) { return type == static_cast<uint8_t>(Elem::kBf16) ? 2 : 4; }

template <typename C>
StridePattern window(const C& c, bool dst) {
  StridePattern pattern(0, c.elem_bytes);
  add(pattern, c.counts, dst ? c.dst_strides : c.src_strides);
  return pattern;
}

}  // namespace

CommandOperands<3> operands(const MatmulCommand& c) {
  const int64_t k = int64_t{c.k[0]} * c.k[1] * c.k[2];
  StridePattern out(0, sizeof(float));
  StridePattern lhs(0, k * matmul_element(c.lhs_type));
  StridePattern rhs(0, matmul_element(c.rhs_type));
  add(out, c.m, c.m_out);
  add(out, c.n, c.n_out);
  add(lhs, c.t, c.t_lhs);
  add(lhs, c.m, c.m_lhs);
  add(rhs, c.t, c.t_rhs);
  add(rhs, c.k, c.k_rhs);
  add(rhs, c.n, c.n_rhs);
  return {{{c.out, out, true}, {c.lhs, lhs}, {c.rhs, rhs}}};
}

CommandOperands<2> operands(const TransposeCommand& c) {
  StridePattern src(0, int64_t{c.cols} * c.elem_bytes), dst(0, int64_t{c.rows} * c.elem_bytes);
  src.add(c.batch, c.src_batch);
  src.add(c.rows, c.src_pitch);
  dst.add(c.batch, c.dst_batch);
  dst.add(c.cols, c.dst_pitch);
  return {{{c.src, src}, {c.dst, dst, true}}};
}

CommandOperands<2> operands(const DmaCommand& c) {
  const bool remote = c.head.queue == static_cast<uint8_t>(Queue::kDmaRemote);
  return {{{c.src, window(c, false)}, {c.dst, window(c, true), true, remote}}};
}

CommandOperands<1> operands(const FillCommand& c) {
  StridePattern dst(0, c.elem_bytes);
  add(dst, c.counts, c.dst_strides);
  return {{{c.dst, dst, true}}};
}

StridePattern indexed_window(const DmaIndexedCommand& c) { return window(c, c.scatter()); }

CommandOperands<3> operands(const DmaIndexedCommand& c) {
  const StridePattern span(0, c.span);
  StridePattern other = window(c, !c.scatter());
  other.add(c.records, c.record_stride);
  const StridePattern list(0, int64_t{4} * c.records);
  return {{{c.src, c.scatter() ? other : span},
           {c.dst, c.scatter() ? span : other, true},
           {c.list, list}}};
}

}  // namespace tpu::spec
