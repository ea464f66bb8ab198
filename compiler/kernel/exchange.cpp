// Masks of the groups of a collective.
#include "kernel/exchange.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "board/board_loader.hpp"

namespace tpu::compiler {

namespace {

int top_bit(int64_t mask) { return 63 - __builtin_clzll(static_cast<uint64_t>(mask)); }

// From `masks`, which ascend: the core of a chip, then x and y in turn. Masks that lead into both
// dimensions at once stay as they are.
void take_dimensions_in_turn(Exchange& e, int64_t row) {
  const bool of_one_board = e.masks == std::vector<int64_t>{1, 2, 4};  // whatever its shape
  if (of_one_board) {
    row = 4;
  }
  const bool straight = std::ranges::all_of(
      e.masks, [](int64_t mask) { return std::has_single_bit(static_cast<uint64_t>(mask)); });
  if (row == 0 || !straight) {
    return;
  }
  std::vector<int64_t> in_turn, x, y;
  for (const int64_t mask : e.masks) {
    (mask == 1 ? in_turn : mask < row ? x : y).push_back(mask);
  }
  if (x.empty() || y.empty()) {
    return;
  }
  std::vector<size_t> of_odd(in_turn.size());
  std::iota(of_odd.begin(), of_odd.end(), 0);
  const bool both_cores = !in_turn.empty();
  for (size_t i = 0; i < std::max(x.size(), y.size()); ++i) {
    const size_t first = in_turn.size();
    const bool turns = i < x.size() && i < y.size();
    for (const auto* dimension : {&x, &y}) {
      if (i < dimension->size()) {
        in_turn.push_back((*dimension)[i]);
      }
    }
    of_odd.push_back(turns ? first + 1 : first);
    if (turns) {
      of_odd.push_back(first);
    }
  }
  e.masks = in_turn;
  if (both_cores) {
    e.of_odd = of_odd;
  }
}

}  // namespace

int64_t row_cores(const spec::BoardParams& board) {
  return board.board.cores_per_chip == 2 ? 2 * spec::chips_x(board) : 0;
}

Exchange exchange_of(const Op& op, int64_t cores, int64_t row) {
  std::vector<std::vector<int64_t>> groups = op.as<CollectiveAttrs>().groups;
  if (groups.empty()) {
    groups.emplace_back();
    for (int64_t c = 0; c < cores; ++c) {
      groups[0].push_back(c);
    }
  }
  const auto fail = [&] {
    throw Error(
        "expected replica groups that contain every core and are closed under XOR of the core "
        "numbers with a common set of masks, such as [0..7], [[0,1],[2,3],..] or "
        "[[0,2,4,6],[1,3,5,7]]",
        "stablehlo.all_reduce", op.loc);
  };
  std::vector<int64_t> basis;
  std::vector<int64_t> span{0};
  for (const int64_t member : groups[0]) {
    const int64_t mask = member ^ groups[0][0];
    if (std::find(span.begin(), span.end(), mask) == span.end()) {
      const size_t n = span.size();
      for (size_t i = 0; i < n; ++i) {
        span.push_back(span[i] ^ mask);
      }
      basis.push_back(mask);
    }
  }
  std::sort(span.begin(), span.end());
  int64_t covered = 0;
  for (const auto& group : groups) {
    covered += static_cast<int64_t>(group.size());
    std::vector<int64_t> masks;
    for (const int64_t member : group) {
      masks.push_back(member ^ group[0]);
    }
    std::sort(masks.begin(), masks.end());
    if (masks != span) {
      fail();
    }
  }
  if (covered != cores) {
    fail();
  }
  for (size_t i = 0; i < basis.size(); ++i) {
    for (size_t j = 0; j < basis.size(); ++j) {
      std::sort(basis.begin(), basis.end());
      if (i != j && ((basis[j] >> top_bit(basis[i])) & 1) != 0) {
        basis[j] ^= basis[i];
      }
    }
  }
  std::sort(basis.begin(), basis.end());
  Exchange e;
  e.masks = basis;
  take_dimensions_in_turn(e, row);
  for (const int64_t m : e.masks) {
    e.bits.push_back(top_bit(m));
  }
  return e;
}

std::vector<int64_t> stage_partners(const Exchange& e, size_t stage, int64_t cores) {
  std::vector<int64_t> partners;
  for (int64_t core = 0; core < cores; ++core) {
    partners.push_back(core ^ e.masks[e.mask_of(core, stage)]);
  }
  return partners;
}

int64_t owned_part(const Exchange& e, int64_t core) {
  int64_t part = 0;
  for (size_t s = 0; s < e.stages(); ++s) {  // 1: keeps the second half
    part = 2 * part + (core >> e.bits[e.mask_of(core, s)] & 1);
  }
  return part;
}

}  // namespace tpu::compiler
