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
  ResultCutter(const KernelIndex& index, const Kernel& kernel,
               const std::set<const Value*>& results)
      : index_(index), kernel_(kernel), results_(results) {
    context_.is_copied = [this](const Value* v) { return is_copied(v); };
  }

  // A kernel for each result of the program and one for other writes; none if one of them cannot
  // be a loop.
  std::vector<Kernel> run() {
    std::vector<Kernel> parts;
    try {
      std::vector<const Op*> others;
      std::copy_if(kernel_.ops.begin(), kernel_.ops.end(), std::back_inserter(others),
                   [this](const Op* op) { return is_written(op) && !is_result(op); });
      if (!others.empty() && !add_part(others, parts)) {
        return {};
      }
      for (const Op* op : kernel_.ops) {
        if (is_written(op) && !made_.contains(op) && !add_part({op}, parts)) {
          return {};
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

  bool is_result(const Op* op) const { return results_.contains(op->result()); }

  // A copy counts if it is made in front of the part under treatment.
  bool is_copied(const Value* v) const {
    return index_.program().copied.contains(v) &&
           (index_.made_before(kernel_.order, v) || made_.contains(v->def));
  }

  // A kernel of these ops and of what computes their operands from memory. False: it is no loop.
  bool add_part(const std::vector<const Op*>& results, std::vector<Kernel>& parts) {
    const std::set<const Op*> needed = need(results);
    Kernel& part = parts.emplace_back(KernelClass::kLoop);
    auto& loop = part.as<LoopPart>();
    loop.domain = kernel_.loop().domain;
    std::copy_if(kernel_.ops.begin(), kernel_.ops.end(), std::back_inserter(part.ops),
                 [&](const Op* op) { return needed.contains(op); });
    // An earlier part computes it, too; only that one may write it, should later passes want it.
    std::copy_if(part.ops.begin(), part.ops.end(),
                 std::inserter(loop.recomputed, loop.recomputed.end()),
                 [&](const Op* op) { return computed_.contains(op); });
    computed_.insert(part.ops.begin(), part.ops.end());
    auto nest = build_nest(part.ops, loop.domain, context_);
    if (!nest) {
      return false;
    }
    loop.nest = std::move(*nest);
    std::copy_if(part.ops.begin(), part.ops.end(), std::inserter(made_, made_.end()),
                 [&](const Op* op) { return is_written(op); });
    return true;
  }

  std::set<const Op*> need(std::vector<const Op*> work) const {
    std::set<const Op*> needed;
    while (!work.empty()) {
      const Op* top = work.back();
      work.pop_back();
      if (!needed.insert(top).second) {
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
    return needed;
  }

  const KernelIndex& index_;
  const Kernel& kernel_;
  const std::set<const Value*>& results_;  // of the program
  NestContext context_;
  std::set<const Op*> made_;      // ops whose results the parts so far write
  std::set<const Op*> computed_;  // ops of the parts so far
};

bool can_be_cut(const Kernel& k) {
  return k.kind == KernelClass::kLoop && k.writes.size() > 1 && k.loop().recomputed.empty() &&
         k.loop().first == 0;
}

}  // namespace

void give_results_kernels(KernelProgram& program) {
  std::set<const Value*> results;
  for (const Kernel& k : program.kernels) {
    if (k.kind == KernelClass::kCopyOut) {
      results.insert(k.reads.begin(), k.reads.end());
    }
  }
  KernelIndex index(program);
  for (auto k = program.kernels.begin(); k != program.kernels.end(); ++k) {
    std::vector<Kernel> parts =
        can_be_cut(*k) ? ResultCutter(index, *k, results).run() : std::vector<Kernel>{};
    if (parts.size() < 2) {
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
