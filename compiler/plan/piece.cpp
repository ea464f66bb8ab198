#include "plan/piece.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace tpu::compiler {

namespace {

// Runs of so many elements waste little of their granules.
constexpr int64_t kLongRun = 8192;

// Elements of the longest run that the loops (innermost first) pass upwards without holes.
int64_t run_of(const View& view, const Dims& count, const std::vector<size_t>& loops) {
  int64_t run = 1;
  for (const size_t l : loops) {
    if (view.stride[l] != run) {
      break;
    }
    run *= count[l];
  }
  return run;
}

// A piece that is one run.
Piece whole_run(const View& view, int64_t base, int64_t lo, int64_t hi) {
  Piece p;
  p.first = base + lo;
  p.origin = -lo;
  p.elements = hi - lo + 1;
  p.stride = view.stride;
  p.dims = {{p.elements, 1, 1}};
  return p;
}

// Loops whose steps are hardly longer than the run inside of them become part of the run.
Piece run_with_reach(const View& view, int64_t base, const Dims& count,
                     const std::vector<size_t>& loops, int64_t reach) {
  Piece p;
  int64_t lo = 0, hi = reach;
  size_t inside = 0;
  while (inside < loops.size() && std::abs(view.stride[loops[inside]]) <= 2 * (hi - lo + 1)) {
    const int64_t s = view.stride[loops[inside]];
    (s < 0 ? lo : hi) += s * (count[loops[inside]] - 1);
    ++inside;
  }
  p = whole_run(view, base, lo, hi);
  for (size_t i = inside; i < loops.size(); ++i) {
    const size_t l = loops[i];
    p.stride[l] = p.elements;
    p.dims.insert(p.dims.begin(), {count[l], view.stride[l], p.elements});
    p.elements *= count[l];
  }
  return p;
}

}  // namespace

Piece make_piece(const View& view, const Dims& start, const Dims& count, bool exact, int64_t reach,
                 int64_t most) {
  int64_t base = view.offset, lo = 0, hi = 0, product = 1, step = 0;
  std::vector<size_t> loops;
  for (size_t l = 0; l < count.size(); ++l) {
    const int64_t s = view.stride[l];
    base += s * start[l];
    if (s == 0 || count[l] == 1) {
      continue;
    }
    (s < 0 ? lo : hi) += s * (count[l] - 1);
    product *= count[l];
    step = step == 0 ? std::abs(s) : std::min(step, std::abs(s));
    loops.push_back(l);
  }
  std::sort(loops.begin(), loops.end(), [&](size_t a, size_t b) {
    return std::abs(view.stride[a]) < std::abs(view.stride[b]);
  });
  if (reach > 0) {
    return run_with_reach(view, base, count, loops, reach);
  }
  // One run, holes and all, if it is not much longer: a DMA of single elements costs a granule
  // each.
  const int64_t holes = exact                                   ? 0
                        : step > 1                              ? 7 * product
                        : run_of(view, count, loops) < kLongRun ? product
                                                                : product / 8;
  if (hi - lo + 1 <= product + std::min(holes, std::max<int64_t>(most - product, 0))) {
    return whole_run(view, base, lo, hi);
  }
  Piece p;
  p.first = base;
  p.stride.assign(count.size(), 0);
  p.elements = 1;
  for (const size_t l : loops) {
    p.stride[l] = p.elements;
    p.dims.insert(p.dims.begin(), {count[l], view.stride[l], p.elements});
    p.elements *= count[l];
  }
  p.dims = merged(std::move(p.dims));
  return p;
}

int64_t granule(const VpuGenOptions& o, int loop) {
  if (o.flat) {
    return kFlatBlock;
  }
  return loop == o.row_loop ? kSublanes : loop == o.col_loop ? kLanes : 1;
}

Dims store_strides(const Nest& nest, bool reduce_result) {
  return reduce_result ? nest.reduced_strides() : nest.identity().stride;
}

}  // namespace tpu::compiler
