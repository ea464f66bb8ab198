// Pass `dce`: see dce.hpp. Walks backwards, so one sweep over a region is enough.
#include "passes/dce.hpp"

#include <algorithm>
#include <unordered_set>

namespace tpu::compiler {
namespace {

using Live = std::unordered_set<const Value*>;

size_t sweep(Region& region, Live& live) {
  size_t removed = 0;
  for (auto it = region.ops.rbegin(); it != region.ops.rend(); ++it) {
    Op& op = **it;
    const bool used = std::any_of(op.results.begin(), op.results.end(),
                                  [&](const auto& r) { return live.count(r.get()) != 0; });
    if (!used && !has_side_effect(op)) {
      it->reset();
      ++removed;
      continue;
    }
    live.insert(op.operands.begin(), op.operands.end());
    for (auto& inner : op.regions) {
      removed += sweep(*inner, live);
    }
  }
  std::erase(region.ops, nullptr);
  return removed;
}

}  // namespace

size_t remove_dead_ops(Module& module) {
  Live live;
  size_t removed = sweep(module.main->body, live);
  for (const auto& f : module.functions) {
    removed += sweep(f->body, live);
  }
  return removed;
}

}  // namespace tpu::compiler
