// Boxes from loops: loops that overlap form one dim of the box.
#include "plan/tile_box.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace tpu::compiler {

namespace {

constexpr int64_t kLongestStep = 8;  // holes up to this are loaded too: a DMA of single elements
                                     // costs a granule for each

struct LoopGroup {              // loops of one dim of the box
  int64_t unit = 0, reach = 0;  // elements: step, distance of the last element
  int64_t below = 1;            // elements that the dims inside span
  std::vector<size_t> loops;
};

}  // namespace

TileBox make_box(const std::vector<BoxLoop>& loops, bool exact) {
  TileBox box;
  box.stride.assign(loops.size(), 0);
  std::vector<size_t> order;
  for (size_t l = 0; l < loops.size(); ++l) {
    if (loops[l].n > 1 && loops[l].stride != 0) {
      order.push_back(l);
      box.first += std::min<int64_t>(loops[l].stride, 0) * (loops[l].n - 1);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::abs(loops[a].stride) < std::abs(loops[b].stride);
  });
  std::vector<LoopGroup> groups;  // innermost first
  int64_t span = 1;
  for (const size_t l : order) {
    const int64_t s = std::abs(loops[l].stride), reach = s * (loops[l].n - 1);
    if (groups.empty() || s >= span) {
      groups.push_back({s, reach, span, {l}});
    } else {
      LoopGroup* g = &groups.back();
      g->unit = std::gcd(g->unit, s);
      g->reach += reach;
      g->loops.push_back(l);
      while (groups.size() > 1 && g->unit < g->below) {  // the dim inside would overlap too
        LoopGroup inner = groups[groups.size() - 2];
        inner.unit = std::gcd(inner.unit, g->unit);
        inner.reach += g->reach;
        inner.loops.insert(inner.loops.end(), g->loops.begin(), g->loops.end());
        groups.resize(groups.size() - 2);
        groups.push_back(inner);
        g = &groups.back();
      }
    }
    span += reach;
  }
  if (!exact && !groups.empty() && groups[0].unit <= kLongestStep) {
    groups[0].unit = 1;
  }
  box.elements = 1;
  for (const LoopGroup& g : groups) {
    const int64_t n = g.reach / g.unit + 1;
    box.dims.insert(box.dims.begin(), {n, g.unit, box.elements});
    for (const size_t l : g.loops) {
      box.stride[l] = loops[l].stride / g.unit * box.elements;
      box.origin += std::max<int64_t>(-box.stride[l], 0) * (loops[l].n - 1);
    }
    box.elements *= n;
  }
  return box;
}

}  // namespace tpu::compiler
