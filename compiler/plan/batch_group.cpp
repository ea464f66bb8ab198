// See batch_group.hpp.
#include "plan/batch_group.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "plan/dot_plan.hpp"

namespace tpu::compiler {

namespace {

using CDim = Contraction::Dim;

// A block that moves between HBM and VMEM.
struct Side {
  std::vector<BoxLoop> loops;
  int64_t batch_stride = 0, bytes = 0;

  // Bytes of the granules that `n` iterations of the batch touch, for each of them; nothing if they
  // do not lie densely.
  std::optional<double> cost(int64_t n, int64_t granule) const {
    std::vector<BoxLoop> all = loops;
    all.insert(all.begin(), {n, batch_stride});
    const TileBox box = make_box(all, false);
    if (box.elements != n * make_box(loops, false).elements) {
      return std::nullopt;
    }
    int64_t run = 1;
    for (size_t i = box.dims.size(); i-- > 0 && box.dims[i].src == run;) {
      run *= box.dims[i].n;
    }
    return static_cast<double>(box.elements / run * round_up(run * bytes, granule)) /
           static_cast<double>(n);
  }
};

// How many batches should be one command; 1: their sums do not wait, or do not go through tiles.
int64_t wanted_beside(const DotPlan& p, const spec::BoardParams& board) {
  constexpr int64_t kOfUnit = 2;
  const Contraction& c = p.w.c;
  const int64_t n = kOfUnit * board.core.mxus;
  const bool simple = p.w.rows == Mapping::Rows::kDirect && p.w.run == 1 && c.k.size() == 1 &&
                      c.n.size() == 1 && c.m.size() <= 2 && !p.w.transpose_out;
  const bool in_tiles = p.limits.narrow_out && !p.limits.direct_out && p.epilogues.empty();
  if (!simple || !in_tiles || c.batch.empty() || c.batch.back().n % n != 0 || p.m.size() != 1 ||
      p.n.size() != 1 || p.k.size() != 1) {
    return 1;
  }
  return p.m[0].iterations() <= kFewRows && c.k[0].n > board.mxu.rows ? n : 1;
}

}  // namespace

BatchGroup choose_batch_group(const DotPlan& p, int64_t out_bytes, const spec::BoardParams& board) {
  const Contraction& c = p.w.c;
  if (c.batch.empty() || p.m.size() != 1 || p.n.size() != 1 || p.k.size() != 1) {
    return {};
  }
  const CDim& batch = c.batch.back();
  const auto side = [&](const std::vector<CDim>& a, const Block& of_a, const std::vector<CDim>& b,
                        const Block& of_b, int64_t CDim::*stride, int64_t bytes) {
    return Side{box_loops(a, of_a, b, of_b, stride), batch.*stride, bytes};
  };
  const bool sides[] = {!p.limits.lhs_whole && !p.w.transposes_box(), !p.limits.rhs_whole,
                        !p.limits.out_whole && p.epilogues.empty()};
  const Side side_of[] = {side(c.m, p.m[0], c.k, p.k[0], &CDim::lhs, elem_bytes(c.lhs->type.elem)),
                          side(c.n, p.n[0], c.k, p.k[0], &CDim::rhs, elem_bytes(c.rhs->type.elem)),
                          side(c.m, p.m[0], c.n, p.n[0], &CDim::out, out_bytes)};
  constexpr int64_t kMost = 16;
  constexpr double kWorth = 0.95, kEqual = 1.02, kGain = 0.9;
  double alone[std::size(side_of)];
  std::ranges::transform(side_of, alone,
                         [&](const Side& one) { return *one.cost(1, board.dma.granule_bytes); });
  std::vector<std::pair<double, BatchGroup>> found;
  for (int64_t n = 1; n <= std::min(kMost, batch.n); ++n) {
    if (batch.n % n != 0) {
      continue;
    }
    BatchGroup group{.n = n};
    bool* const grouped[] = {&group.lhs, &group.rhs, &group.out};
    double sum = 0;
    for (size_t i = 0; i < std::size(side_of); ++i) {
      const auto together = sides[i] ? side_of[i].cost(n, board.dma.granule_bytes) : std::nullopt;
      *grouped[i] = together && *together < alone[i] * kGain;
      sum += *grouped[i] ? *together : sides[i] ? alone[i] : 0;
    }
    found.emplace_back(sum, group);
  }
  const double least =
      std::min_element(found.begin(), found.end(), [](const auto& a, const auto& b) {
        return a.first < b.first;
      })->first;
  if (least >= found.front().first * kWorth) {
    return {};
  }
  const auto smallest = [&](int64_t multiple) {  // of equal ones
    return std::ranges::find_if(found, [&](const auto& f) {
      return f.first <= least * kEqual && f.second.n % multiple == 0;
    });
  };
  const auto beside = smallest(wanted_beside(p, board));
  return (beside != found.end() ? beside : smallest(1))->second;
}

BatchesBeside batches_beside(const DotPlan& p, const spec::BoardParams& board) {
  const int64_t n = wanted_beside(p, board);
  const auto in_reach = [&](bool whole, bool grouped) {
    return whole || (grouped && p.group.n % n == 0);
  };
  if (n == 1 || p.group.out || !in_reach(p.limits.lhs_whole, p.group.lhs) ||
      !in_reach(p.limits.rhs_whole, p.group.rhs)) {
    return {};
  }
  const int64_t bytes = p.m[0].iterations() * p.n[0].iterations() * 4;
  return {n, n * bytes, bytes};
}

}  // namespace tpu::compiler
