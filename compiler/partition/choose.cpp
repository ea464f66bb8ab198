// See choose.hpp.
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

bool is_indexed(const FactorRule& rule, size_t factor) {
  return std::any_of(rule.indexed.begin(), rule.indexed.end(),
                     [&](const IndexedFactor& f) { return f.factor == static_cast<int>(factor); });
}

// A factor behind one that is not cut to single elements stays whole; and then those behind it, of
// whatever array, until nothing changes.
void drop_hidden(const Mesh& mesh, const FactorRule& rule, std::vector<Axes>& cuts) {
  bool changed = true;
  const auto check = [&](const DimFactors& tensor) {
    for (const auto& dim : tensor) {
      for (size_t k = 1; k < dim.size(); ++k) {
        const auto before = static_cast<size_t>(dim[k - 1]);
        Axes& axes = cuts[static_cast<size_t>(dim[k])];
        if (!axes.empty() && num_parts(mesh, cuts[before]) != rule.factors[before].size) {
          axes.clear();
          changed = true;
        }
      }
    }
  };
  while (changed) {
    changed = false;
    std::for_each(rule.operands.begin(), rule.operands.end(), check);
    std::for_each(rule.results.begin(), rule.results.end(), check);
  }
}

// The proposals with most bytes behind them, behind `first` if there is one.
std::vector<Axes> by_votes(const Mesh& mesh, const FactorRule& rule, std::vector<Proposal> open,
                           const Proposal* first) {
  std::vector<Axes> out(rule.factors.size());
  while (!open.empty()) {
    const Proposal best =
        first != nullptr
            ? *first
            : *std::max_element(open.begin(), open.end(), [](const Proposal& a, const Proposal& b) {
                return a.rank() < b.rank();
              });
    first = nullptr;
    out[best.factor] = best.axes;
    std::erase_if(open, [&](const Proposal& p) {
      return p.factor == best.factor
                 ? !is_prefix(best.axes, p.axes) || p.axes.size() <= best.axes.size()
                 : !is_disjoint(p.axes, best.axes);
    });
  }
  drop_hidden(mesh, rule, out);
  return out;
}

// What a core gets in all, for operands and for results in their place.
int64_t traffic(const Mesh& mesh, const FactorRule& rule, const std::vector<Voter>& voters,
                const std::vector<Axes>& cuts) {
  Axes summed;
  for (size_t f = 0; f < cuts.size(); ++f) {
    if (rule.factors[f].kind == FactorKind::kReduce) {
      append(summed, cuts[f]);
    }
  }
  int64_t out = 0;
  for (const Voter& v : voters) {
    const Spec spec = lift(mesh, rule, *v.dims, cuts);
    if (!v.is_result) {
      out += v.is_at && v.is_at(spec) ? 0 : moved_bytes(mesh, v.bytes, v.spec, spec);
      continue;
    }
    out += moved_bytes(mesh, v.bytes, spec, v.spec);
    bool scattered = false;  // each core gets the sum of its part alone
    int64_t parts = 1;
    for (size_t d = 0; d < spec.size(); ++d) {
      parts *= num_parts(mesh, spec[d]);
      scattered =
          scattered || (is_prefix(spec[d], v.spec[d]) && spec[d].size() < v.spec[d].size() &&
                        !is_disjoint(summed, v.spec[d]));
    }
    out += summed.empty() ? 0 : (scattered ? 1 : 2) * v.bytes / parts;
  }
  return out;
}

// Into how many parts the work is cut. Every core goes over all indices of a table that is cut
// where they address it.
int64_t work_parts(const Mesh& mesh, const FactorRule& rule, const std::vector<Axes>& cuts) {
  int64_t n = 1;
  for (size_t f = 0; f < cuts.size(); ++f) {
    n *= is_indexed(rule, f) ? 1 : num_parts(mesh, cuts[f]);
  }
  return n;
}

std::vector<Axes> with_whole_table(const FactorRule& rule, std::vector<Axes> cuts) {
  for (const IndexedFactor& f : rule.indexed) {
    cuts[static_cast<size_t>(f.factor)].clear();
  }
  return cuts;
}

}  // namespace

std::vector<Axes> choose_cuts(const Mesh& mesh, const FactorRule& rule,
                              const std::vector<Voter>& voters) {
  std::vector<std::vector<Axes>> own;
  for (const Voter& v : voters) {
    own.push_back(project(mesh, rule, *v.dims, v.spec));
  }
  const std::vector<Proposal> proposals = proposals_of(rule, voters, own);
  std::vector<Axes> best = by_votes(mesh, rule, proposals, nullptr);
  int64_t least = traffic(mesh, rule, voters, best);
  const auto consider = [&](std::vector<Axes> other) {
    const int64_t bytes = traffic(mesh, rule, voters, other);
    if (bytes < least && work_parts(mesh, rule, other) >= work_parts(mesh, rule, best)) {
      best = std::move(other);
      least = bytes;
    }
  };
  if (!rule.indexed.empty()) {
    consider(with_whole_table(rule, best));
  }
  for (size_t i = 0; i < proposals.size() && least != 0; ++i) {
    consider(by_votes(mesh, rule, proposals, &proposals[i]));
  }
  return best;
}

}  // namespace tpu::compiler
