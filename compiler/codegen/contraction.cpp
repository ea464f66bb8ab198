// Loops of contractions.
#include "codegen/contraction.hpp"

#include <algorithm>

namespace tpu::compiler {

Dims free_dims(int64_t rank, const Dims& batch, const Dims& contract) {
  Dims free;
  for (int64_t d = 0; d < rank; ++d) {
    if (std::find(batch.begin(), batch.end(), d) == batch.end() &&
        std::find(contract.begin(), contract.end(), d) == contract.end()) {
      free.push_back(d);
    }
  }
  return free;
}

namespace {

void merge_dims(std::vector<Contraction::Dim>& dims) {
  std::erase_if(dims, [](const Contraction::Dim& d) { return d.n == 1; });
  for (size_t i = dims.size(); i-- > 1;) {
    const auto& in = dims[i];
    auto& out = dims[i - 1];
    if (out.lhs == in.n * in.lhs && out.rhs == in.n * in.rhs && out.out == in.n * in.out) {
      dims[i].n *= out.n;
      dims.erase(dims.begin() + static_cast<ptrdiff_t>(i) - 1);
    }
  }
}

// out[n, m] = sum rhs[k, n] * lhs[m, k]: the sides change places.
void turn(Contraction& c) {
  const int64_t rows = Contraction::count(c.m), cols = Contraction::count(c.n);
  for (auto& d : c.m) {
    d.out /= cols;
  }
  for (auto& d : c.n) {
    d.out *= rows;
  }
  std::swap(c.lhs, c.rhs);
  std::swap(c.lhs_offset, c.rhs_offset);
  std::swap(c.m, c.n);
  for (auto* dims : {&c.batch, &c.m, &c.n, &c.k}) {
    for (auto& d : *dims) {
      std::swap(d.lhs, d.rhs);
    }
  }
}

bool forward(const std::vector<Contraction::Dim>& a, const std::vector<Contraction::Dim>& b) {
  const auto positive = [](const Contraction::Dim& d) { return d.lhs >= 0 && d.rhs >= 0; };
  return std::all_of(a.begin(), a.end(), positive) && std::all_of(b.begin(), b.end(), positive);
}

Contraction loops_of(const Op& op, const std::array<ContractionSide, 2>& side) {
  const auto& a = op.as<DotAttrs>();
  Contraction c;
  c.lhs = side[0].buffer;
  c.rhs = side[1].buffer;
  c.lhs_offset = side[0].offset;
  c.rhs_offset = side[1].offset;
  const Dims &ls = side[0].strides, &rs = side[1].strides;
  const Dims &ld = op.operand_type(0).dims, &rd = op.operand_type(1).dims;
  const Dims os = row_major_strides(op.type().dims);
  const auto at = [](const Dims& v, int64_t d) { return v[static_cast<size_t>(d)]; };
  size_t o = 0;
  for (size_t i = 0; i < a.lhs_batch.size(); ++i) {
    c.batch.push_back(
        {at(ld, a.lhs_batch[i]), at(ls, a.lhs_batch[i]), at(rs, a.rhs_batch[i]), os[o++]});
  }
  for (const int64_t d : free_dims(op.operand_type(0).rank(), a.lhs_batch, a.lhs_contract)) {
    c.m.push_back({at(ld, d), at(ls, d), 0, os[o++]});
  }
  for (const int64_t d : free_dims(op.operand_type(1).rank(), a.rhs_batch, a.rhs_contract)) {
    c.n.push_back({at(rd, d), 0, at(rs, d), os[o++]});
  }
  for (size_t i = 0; i < a.lhs_contract.size(); ++i) {
    c.k.push_back(
        {at(ld, a.lhs_contract[i]), at(ls, a.lhs_contract[i]), at(rs, a.rhs_contract[i]), 0});
  }
  return c;
}

}  // namespace

Contraction make_contraction(const Op& op, const std::array<ContractionSide, 2>& side,
                             bool turned) {
  Contraction c = loops_of(op, side);
  if (turned) {
    turn(c);
  }
  for (auto* dims : {&c.batch, &c.m, &c.n, &c.k}) {
    merge_dims(*dims);
  }
  return c;
}

bool rows_can_stream(const Contraction& c) {
  const bool k_runs = c.k.empty() || c.k[0].lhs == 1;
  const bool m_runs = c.m.empty() || c.m[0].lhs == 1;
  return c.k.size() <= 1 && c.m.size() <= 1 && (k_runs || m_runs) && forward(c.k, c.m);
}

bool weights_can_load(const Contraction& c) {
  return c.k.size() <= 1 && c.n.size() <= 1 && forward(c.k, c.n);
}

int64_t Contraction::count(const std::vector<Dim>& dims) {
  int64_t n = 1;
  for (const Dim& d : dims) {
    n *= d.n;
  }
  return n;
}

}  // namespace tpu::compiler
