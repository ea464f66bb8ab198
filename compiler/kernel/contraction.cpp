// Loops of contractions.
#include "kernel/contraction.hpp"

#include <algorithm>
#include <cstdlib>

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

OutPieces pieces_of(const Dims& from, const Dims& dims, const Dims& strides) {
  // Dims of the view by their stride in `from`, innermost first.
  std::vector<size_t> order;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] > 1) {
      order.push_back(d);
    }
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  const Dims pitch = row_major_strides(dims);
  OutPieces out(from.size());
  size_t at = 0;
  int64_t used = 1, linear = 1;  // iterations of dims[order[at]] taken, elements of `from` so far
  for (size_t f = from.size(); f-- > 0;) {
    int64_t rest = from[f];
    while (rest > 1) {
      if (at == order.size()) {
        return {};
      }
      const size_t d = order[at];
      if (strides[d] * used != linear) {
        return {};
      }
      const int64_t n = std::min(rest, dims[d] / used);
      if (rest % n != 0 || (dims[d] / used) % n != 0) {
        return {};
      }
      out[f].insert(out[f].begin(), {n, pitch[d] * used});
      rest /= n;
      used *= n;
      linear *= n;
      if (used == dims[d]) {
        ++at;
        used = 1;
      }
    }
    if (out[f].empty()) {
      out[f] = {{from[f], 1}};
    }
  }
  return out;
}

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

Contraction make_contraction(const Op& op, const std::array<ContractionSide, 2>& side,
                             const OutPieces& out) {
  const auto& a = op.as<DotAttrs>();
  Contraction c;
  c.lhs = side[0].buffer;
  c.rhs = side[1].buffer;
  c.lhs_offset = side[0].offset;
  c.rhs_offset = side[1].offset;
  const Dims &ls = side[0].strides, &rs = side[1].strides;
  const Dims &ld = op.operand_type(0).dims, &rd = op.operand_type(1).dims;
  const auto at = [](const Dims& v, int64_t d) { return v[static_cast<size_t>(d)]; };
  size_t o = 0;
  const auto add = [&](std::vector<Contraction::Dim>& dims, int64_t n, int64_t lhs, int64_t rhs) {
    int64_t inner = n;
    for (const OutPiece& p : out[o]) {
      inner /= std::max<int64_t>(p.n, 1);
      dims.push_back({p.n, lhs * inner, rhs * inner, p.stride});
    }
    ++o;
  };
  for (size_t i = 0; i < a.lhs_batch.size(); ++i) {
    add(c.batch, at(ld, a.lhs_batch[i]), at(ls, a.lhs_batch[i]), at(rs, a.rhs_batch[i]));
  }
  for (const int64_t d : free_dims(op.operand_type(0).rank(), a.lhs_batch, a.lhs_contract)) {
    add(c.m, at(ld, d), at(ls, d), 0);
  }
  for (const int64_t d : free_dims(op.operand_type(1).rank(), a.rhs_batch, a.rhs_contract)) {
    add(c.n, at(rd, d), 0, at(rs, d));
  }
  for (size_t i = 0; i < a.lhs_contract.size(); ++i) {
    c.k.push_back(
        {at(ld, a.lhs_contract[i]), at(ls, a.lhs_contract[i]), at(rs, a.rhs_contract[i]), 0});
  }
  return c;
}

Contraction swapped(Contraction c) {
  std::swap(c.lhs, c.rhs);
  std::swap(c.lhs_offset, c.rhs_offset);
  std::swap(c.m, c.n);
  for (auto* dims : {&c.batch, &c.m, &c.n, &c.k}) {
    for (auto& d : *dims) {
      std::swap(d.lhs, d.rhs);
    }
  }
  return c;
}

bool weights_can_load(const Contraction& c) {
  constexpr int64_t kFew = 128;
  const auto runs = [](const std::vector<Contraction::Dim>& dims) {
    return std::any_of(dims.begin(), dims.end(),
                       [](const Contraction::Dim& d) { return d.n > 1 && std::abs(d.rhs) == 1; });
  };
  return Contraction::count(c.n) * Contraction::count(c.k) <= kFew || runs(c.n) || runs(c.k);
}

int64_t Contraction::count(const std::vector<Dim>& dims) {
  int64_t n = 1;
  for (const Dim& d : dims) {
    n *= d.n;
  }
  return n;
}

}  // namespace tpu::compiler
