// Masks of the groups of a collective.
#include "kernel/exchange.hpp"

#include <algorithm>
#include <utility>

namespace tpu::compiler {

namespace {

int top_bit(int64_t mask) { return 63 - __builtin_clzll(static_cast<uint64_t>(mask)); }

}  // namespace

Exchange exchange_of(const Op& op, int64_t cores) {
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
  for (const int64_t m : basis) {
    e.bits.push_back(top_bit(m));
  }
  return e;
}

std::vector<int64_t> stage_partners(const Exchange& e, size_t stage, int64_t cores) {
  std::vector<int64_t> partners;
  for (int64_t core = 0; core < cores; ++core) {
    const bool changed = crosses_over(e) && stage > 0 && (core & 1) != 0;
    partners.push_back(core ^ e.masks[changed ? 3 - stage : stage]);
  }
  return partners;
}

int64_t owned_part(const Exchange& e, int64_t core) {
  std::vector<int64_t> second;  // 1: keeps the second half
  for (const int bit : e.bits) {
    second.push_back(core >> bit & 1);
  }
  if (crosses_over(e) && (core & 1) != 0) {
    std::swap(second[1], second[2]);
  }
  int64_t part = 0;
  for (const int64_t s : second) {
    part = 2 * part + s;
  }
  return part;
}

}  // namespace tpu::compiler
