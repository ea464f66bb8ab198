#include "plan/op_table.hpp"

#include <algorithm>

namespace tpu::compiler {

uint64_t OpTable::flops_of(const Kernel& k) const {
  return static_cast<uint64_t>(
      2 * Contraction::count(k.contract().dot.batch) * Contraction::count(k.contract().dot.m) *
      Contraction::count(k.contract().dot.n) * Contraction::count(k.contract().dot.k) * times_);
}

void OpTable::count_flops(const Kernel& k) { matmul_flops_ += flops_of(k); }

void OpTable::undo(const Mark& mark) {
  ops_.resize(mark.ops);
  std::erase_if(ids_, [&](const auto& id) { return id.second >= mark.ops; });
  matmul_flops_ = mark.matmul_flops;
}

std::optional<int> OpTable::order(uint32_t id) const {
  const auto found = std::ranges::find(ids_, id, [](const auto& entry) { return entry.second; });
  return found == ids_.end() ? std::nullopt : std::optional(found->first);
}

// The names of the kernel's ops, the source line of the last one that has any.
uint32_t OpTable::id(const Kernel& k) {
  const auto [it, fresh] = ids_.try_emplace(k.order, static_cast<uint32_t>(ops_.size()));
  if (!fresh) {
    return it->second;
  }
  exe::OpInfoT info;
  constexpr size_t kNames = 6;
  for (size_t i = 0; i < k.ops.size() && i < kNames; ++i) {
    info.name += (i == 0 ? "" : "+") + std::string(kind_name(k.ops[i]->kind));
  }
  if (k.ops.size() > kNames) {
    info.name += "+" + std::to_string(k.ops.size() - kNames) + " more";
  }
  if (k.kind == KernelClass::kCopyOut) {
    const auto& results = k.move().results;  // of a loop
    info.name = "result " + std::to_string(results.empty() ? k.move().result : results[0]) +
                (results.empty() ? "" : ", ..");
  }
  for (const Op* op : k.ops) {
    if (!op->loc->frames.empty()) {
      info.file = op->loc->frames[0].file;
      info.line = op->loc->frames[0].line;
      info.column = op->loc->frames[0].column;
    }
  }
  if (k.kind == KernelClass::kContract) {
    info.flops = flops_of(k);
  }
  ops_.push_back(info);
  return it->second;
}

}  // namespace tpu::compiler
