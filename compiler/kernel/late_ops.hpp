// Where the pass `form` puts the ops of Module::late.
#pragma once

#include <unordered_map>

#include "kernel/kernels.hpp"

namespace tpu::compiler {

class LateOps {
 public:
  // Both must outlive this. `program`: that the ops become.
  LateOps(const Module& module, const KernelProgram& program)
      : module_(module), program_(program) {}

  // Of a late op the place of its group, or the end of what there is; -1: it is not late.
  int from(const Op& op) const {
    const auto group = module_.late.find(op.id);
    if (group == module_.late.end()) {
      return -1;
    }
    const auto first = first_.find(group->second);
    return first == first_.end() ? end() : first->second->order;
  }
  int end() const { return program_.kernels.empty() ? -1 : program_.kernels.back().order + 1; }

  // The op is in kernel `k`.
  void note(const Op& op, const Kernel* k) {
    if (const auto group = module_.late.find(op.id); group != module_.late.end()) {
      first_.emplace(group->second, k);
    }
  }

 private:
  const Module& module_;
  const KernelProgram& program_;
  std::unordered_map<int, const Kernel*> first_;  // of a group
};

}  // namespace tpu::compiler
