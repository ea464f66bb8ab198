// See choose.hpp: the factors with most bytes behind them are served first.
#include "partition/choose.hpp"

#include <algorithm>
#include <tuple>

namespace tpu::compiler {
namespace {

struct Proposal {
  size_t factor;
  Axes axes;
  int64_t bytes = 0;
  bool passes = false;  // moves nothing: before sums over cores on ties

  auto rank() const { return std::tuple(bytes, passes, axes.size()); }
};

std::vector<Proposal> proposals_of(const FactorRule& rule, const std::vector<Voter>& voters,
                                   const std::vector<std::vector<Axes>>& own) {
  std::vector<Proposal> out;
  for (const auto& tensor : own) {
    for (size_t f = 0; f < tensor.size(); ++f) {
      if (rule.factors[f].kind == FactorKind::kBlocked) {
        continue;
      }
      for (size_t n = 1; n <= tensor[f].size(); ++n) {
        const Axes axes(tensor[f].begin(), tensor[f].begin() + static_cast<ptrdiff_t>(n));
        if (std::any_of(out.begin(), out.end(),
                        [&](const Proposal& p) { return p.factor == f && p.axes == axes; })) {
          continue;
        }
        Proposal p{f, axes, 0, rule.factors[f].kind == FactorKind::kPass};
        for (size_t t = 0; t < own.size(); ++t) {
          p.bytes += is_prefix(axes, own[t][f]) ? voters[t].bytes : 0;
        }
        out.push_back(std::move(p));
      }
    }
  }
  return out;
}

}  // namespace

std::vector<Axes> choose_cuts(const Mesh& mesh, const FactorRule& rule,
                              const std::vector<Voter>& voters) {
  std::vector<std::vector<Axes>> own;
  for (const Voter& v : voters) {
    own.push_back(project(mesh, rule, *v.dims, v.spec));
  }
  std::vector<Proposal> open = proposals_of(rule, voters, own);
  std::vector<Axes> out(rule.factors.size());
  while (!open.empty()) {
    const Proposal best =
        *std::max_element(open.begin(), open.end(),
                          [](const Proposal& a, const Proposal& b) { return a.rank() < b.rank(); });
    out[best.factor] = best.axes;
    std::erase_if(open, [&](const Proposal& p) {
      return p.factor == best.factor
                 ? !is_prefix(best.axes, p.axes) || p.axes.size() <= best.axes.size()
                 : !is_disjoint(p.axes, best.axes);
    });
  }
  // A factor behind one that is not cut to single elements stays whole.
  const auto check = [&](const DimFactors& tensor) {
    for (const auto& dim : tensor) {
      for (size_t k = 1; k < dim.size(); ++k) {
        const auto before = static_cast<size_t>(dim[k - 1]);
        if (num_parts(mesh, out[before]) != rule.factors[before].size) {
          out[static_cast<size_t>(dim[k])].clear();
        }
      }
    }
  };
  std::for_each(rule.operands.begin(), rule.operands.end(), [&](const auto& t) { check(t); });
  std::for_each(rule.results.begin(), rule.results.end(), [&](const auto& t) { check(t); });
  return out;
}

}  // namespace tpu::compiler
