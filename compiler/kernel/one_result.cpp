// Kernel pass `one_result`: see one_result.hpp.
#include "kernel/one_result.hpp"

#include <algorithm>
#include <set>

#include "kernel/kernel_index.hpp"

namespace tpu::compiler {

namespace {

// The ops of one kernel, cut by what they write.
class ResultCutter {
 public:
  ResultCutter(const KernelIndex& index, const Kernel& kernel) : index_(index), kernel_(kernel) {
    context_.is_copied = [this](const Value* v) { return is_copied(v); };
  }

  // A kernel for each write; none if one of them cannot be a loop.
  std::vector<Kernel> run() {
    std::vector<Kernel> parts;
    try {
      for (const Op* op : kernel_.ops) {
        if (is_written(op)) {
          auto part = kernel_for(*op);
          if (!part) {
            return {};
          }
          parts.push_back(std::move(*part));
          made_.insert(op);
        }
      }
    } catch (const NeedsCopy&) {
      return {};
    }
    return parts;
  }

 private:
  bool is_written(const Op* op) const {
    return std::find(kernel_.writes.begin(), kernel_.writes.end(), op->result()) !=
           kernel_.writes.end();
  }

  // A copy counts if it is made in front of the part under treatment.
  bool is_copied(const Value* v) const {
    return index_.program().copied.contains(v) &&
           (index_.made_before(kernel_.order, v) || made_.contains(v->def));
  }

  std::optional<Kernel> kernel_for(const Op& result) {
    needed_.clear();
    need(result);
    Kernel part(KernelClass::kLoop);
    auto& loop = part.as<LoopPart>();
    loop.domain = kernel_.loop().domain;
    std::copy_if(kernel_.ops.begin(), kernel_.ops.end(), std::back_inserter(part.ops),
                 [&](const Op* op) { return needed_.contains(op); });
    auto nest = build_nest(part.ops, loop.domain, context_);
    if (!nest) {
      return std::nullopt;
    }
    loop.nest = std::move(*nest);
    return part;
  }

  // The ops of the kernel that compute `op` from memory.
  void need(const Op& op) {
    std::vector<const Op*> work = {&op};
    while (!work.empty()) {
      const Op* top = work.back();
      work.pop_back();
      if (!needed_.insert(top).second) {
        continue;
      }
      for (const Value* v : top->operands) {
        const Op* def = view_root(v, context_)->def;
        if (def != nullptr && !made_.contains(def) &&
            std::find(kernel_.ops.begin(), kernel_.ops.end(), def) != kernel_.ops.end()) {
          work.push_back(def);
        }
      }
    }
  }

  const KernelIndex& index_;
  const Kernel& kernel_;
  NestContext context_;
  std::set<const Op*> made_, needed_;  // results of the parts in front; ops of the present one
};

bool can_be_cut(const Kernel& k) {
  return k.kind == KernelClass::kLoop && k.writes.size() > 1 && !k.loop().nest.has_reduce &&
         k.loop().recomputed.empty() && k.loop().first == 0;
}

}  // namespace

void give_results_kernels(KernelProgram& program) {
  KernelIndex index(program);
  for (auto k = program.kernels.begin(); k != program.kernels.end(); ++k) {
    std::vector<Kernel> parts =
        can_be_cut(*k) ? ResultCutter(index, *k).run() : std::vector<Kernel>{};
    if (parts.empty()) {
      continue;
    }
    index.replace(*k, std::move(parts.front()));
    const auto first = k;
    for (size_t i = 1; i < parts.size(); ++i) {
      index.insert(std::next(k), std::move(parts[i]));
      ++k;
    }
    renumber(program, first);
  }
}

}  // namespace tpu::compiler
