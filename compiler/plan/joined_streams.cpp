#include "plan/joined_streams.hpp"

#include <algorithm>
#include <cstdlib>

#include "plan/tile_box.hpp"

namespace tpu::compiler {

void join_stream(const Nest& nest, size_t first, LoopPlan& plan) {
  const NestAccess& a = nest.accesses[first];
  int64_t lo = a.view.offset, hi = lo, points = 1, span = 1, longest = 0;
  for (size_t l = 0; l < nest.loops.size(); ++l) {
    const int64_t s = std::abs(a.view.stride[l]);
    if (s != 0 && nest.loops[l].n > 1) {
      points *= nest.loops[l].n;
      span += s * (nest.loops[l].n - 1);
      longest = std::max(longest, s);
    }
  }
  std::vector<size_t> members;
  for (size_t i = first + 1; i < nest.accesses.size(); ++i) {
    const NestAccess& other = nest.accesses[i];
    if (other.value == a.value && other.view.stride == a.view.stride) {
      members.push_back(i);
      lo = std::min(lo, other.view.offset);
      hi = std::max(hi, other.view.offset);
    }
  }
  const auto taps = static_cast<int64_t>(members.size()) + 1;
  const int64_t bytes = (hi - lo) * elem_bytes(a.value->type.elem);
  if (members.empty() || hi - lo > 2 * longest || 4 * bytes > plan.piece_limit ||
      span + hi - lo > 2 * taps * points) {
    return;
  }
  for (const size_t i : members) {
    plan.in_stream[i] = plan.in_stream[first];
  }
  plan.streams.back().view.offset = lo;
  plan.streams.back().reach = hi - lo;
}

// Bytes that a load of the piece costs: each run of memory takes whole granules.
static int64_t cost_of(const Piece& piece, int64_t element_bytes, int64_t granule_bytes) {
  const bool dense = !piece.dims.empty() && piece.dims.back().src == 1;
  const int64_t run = dense ? piece.dims.back().n : 1;
  return piece.elements / run * round_up(run * element_bytes, granule_bytes);
}

int64_t loaded_bytes(const Nest& nest, const LoopPlan& plan, const spec::BoardParams& board) {
  const Dims zero(plan.tile.size(), 0);
  int64_t bytes = 0;  // of a tile
  for (const Stream& s : plan.streams) {
    if (!s.output) {
      bytes += cost_of(make_piece(s.view, zero, plan.tile, false, s.reach),
                       elem_bytes(s.value->type.elem), board.dma.granule_bytes);
    }
  }
  for (size_t l = 0; l < plan.tile.size(); ++l) {
    bytes *= ceil_div(nest.loops[l].n, plan.tile[l]);
  }
  return bytes;
}

}  // namespace tpu::compiler
