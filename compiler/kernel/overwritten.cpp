// See overwritten.hpp.
#include "kernel/overwritten.hpp"

#include <algorithm>
#include <vector>

#include "ir/counter_values.hpp"

namespace tpu::compiler {

namespace {

// The dimension along which the update is shorter than the array; nothing if there are several.
std::optional<size_t> cut_dimension(const Op& update) {
  const Dims &all = update.type().dims, &part = update.operand_type(1).dims;
  std::optional<size_t> cut;
  for (size_t d = 0; d < all.size(); ++d) {
    if (part[d] != all[d]) {
      if (cut) {
        return std::nullopt;
      }
      cut = d;
    }
  }
  return cut;
}

bool covers(const Op& loop, const CountedLoop& counted, const Op& update) {
  const auto cut = cut_dimension(update);
  if (!cut) {
    return false;
  }
  const int64_t all = update.type().dims[*cut], part = update.operand_type(1).dims[*cut];
  if (part == 0 || all % part != 0) {
    return false;
  }
  const auto starts = values_in_loop(update.operands[2 + *cut], loop, counted);
  if (!starts) {
    return false;
  }
  std::vector<bool> written(static_cast<size_t>(all / part), false);
  for (const int64_t start : *starts) {
    const int64_t at = std::clamp<int64_t>(start, 0, all - part);  // as it is defined
    if (at % part == 0) {
      written[static_cast<size_t>(at / part)] = true;
    }
  }
  return std::ranges::all_of(written, std::identity{});
}

}  // namespace

bool is_overwritten(const Op& loop, const CountedLoop& counted, size_t index) {
  const Region& body = *loop.regions[1];
  const Value* given = body.terminator()->operands[index];
  const Op* update = given->def;
  if (update == nullptr || update->kind != Kind::kDynamicUpdateSlice || update->parent != &body ||
      update->operands[0] != body.args[index].get()) {
    return false;
  }
  const Uses uses = compute_uses(body);
  const auto used_once = [&](const Value* v) {
    const auto it = uses.find(v);
    return it != uses.end() && it->second.size() == 1;
  };
  return used_once(update->operands[0]) && used_once(given) && covers(loop, counted, *update);
}

}  // namespace tpu::compiler
