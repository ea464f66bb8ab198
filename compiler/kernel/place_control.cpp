// Control flow as kernels: see place_control.hpp. Values of the region around it that a region uses
// are kernel operands too (`captures`): they live until its end.
#include "kernel/place_control.hpp"

#include <algorithm>

#include "kernel/overwritten.hpp"

namespace tpu::compiler {

namespace {

// A scalar for the sequencer: computed there (no buffer), or read from a buffer.
NestAccess scalar_operand(const Value* v, const ControlFacts& facts, Fusion& fusion, Kernel& k) {
  if (facts.on_sequencer(v)) {
    return {};
  }
  fusion.materialise(v);
  NestAccess a = fusion.strided(v);
  k.reads.push_back(a.value);
  return a;
}

void find_captures(Kernel& k) {
  std::set<const Value*> inside;
  for (const auto& program : k.control().regions) {
    if (program) {
      for_each_kernel(*program, [&](const Kernel& inner) {
        inside.insert(inner.writes.begin(), inner.writes.end());
      });
    }
  }
  for (const auto& region : k.ops[0]->regions) {
    for (const auto& a : region->args) {
      inside.insert(a.get());
    }
    walk(*region, [&](const Op& op) {
      for (const auto& r : op.regions) {
        for (const auto& a : r->args) {
          inside.insert(a.get());
        }
      }
    });
  }
  std::set<const Value*> seen, whole;
  for (const auto& program : k.control().regions) {
    if (program) {
      for_each_kernel(*program, [&](const Kernel& inner) {
        for (const Value* v : inner.reads) {
          if (!inside.contains(v) && seen.insert(v).second) {
            k.as<ControlPart>().captures.push_back(v);
          }
          if (inner.move().arguments.empty()) {
            whole.insert(v);
          }
        }
      });
    }
  }
  for (const Value* v : k.control().captures) {
    if (!whole.contains(v)) {
      k.as<ControlPart>().passing.insert(v);
    }
  }
  k.reads.insert(k.reads.end(), k.control().captures.begin(), k.control().captures.end());
}

// Adds a kernel on the window whose start indices are the operands from `first` on.
void add_from_starts(Kernel k, const Op& op, size_t first, const ControlFacts& facts,
                     Fusion& fusion) {
  for (size_t i = first; i < op.operands.size(); ++i) {
    k.as<MovePart>().starts.push_back(scalar_operand(op.operands[i], facts, fusion, k));
  }
  k.writes = {k.out};
  fusion.add(std::move(k));
}

}  // namespace

void place_dynamic_slice(const Op& op, const ControlFacts& facts, Fusion& fusion) {
  Kernel k(KernelClass::kDynamicSlice);
  k.ops = {&op};
  k.out = op.result();
  if (const auto* arguments = facts.stacks().arguments(op)) {
    k.as<MovePart>().arguments = *arguments;
    for (const Value* v : *arguments) {
      if (std::ranges::find(k.reads, v) == k.reads.end()) {
        k.reads.push_back(v);
      }
    }
    k.writes = {k.out};
    fusion.give(std::move(k));
    return;
  }
  fusion.materialise(op.operands[0]);
  k.as<MovePart>().view = fusion.strided(op.operands[0]);
  k.reads = {k.move().view.value};
  add_from_starts(std::move(k), op, 1, facts, fusion);
}

void place_dynamic_update(const Op& op, const ControlFacts& facts, Fusion& fusion) {
  Kernel k(KernelClass::kDynamicUpdate);
  k.ops = {&op};
  k.out = op.result();
  fusion.materialise(op.operands[1]);
  k.reads = {fusion.dense(op.operands[0])};
  k.as<MovePart>().view = fusion.strided(op.operands[1]);
  k.reads.push_back(k.move().view.value);
  add_from_starts(std::move(k), op, 2, facts, fusion);
}

void place_control(const Op& op, const ControlFacts& facts, const CoreClasses& together,
                   Fusion& fusion) {
  const bool is_while = op.kind == Kind::kWhile;
  Kernel k(is_while ? KernelClass::kWhile : KernelClass::kBranch);
  auto& part = k.as<ControlPart>();
  k.ops = {&op};
  for (const Value* v : free_values(op)) {
    fusion.materialise(v);
  }
  const CountedLoop* counted = facts.counted(op);
  const Value* test = is_while ? op.regions[0]->terminator()->operands[0] : op.operands[0];
  const CoreClasses inside =
      counted != nullptr ? together : common_classes(together, facts.classes(test));
  if (counted != nullptr) {
    part.counted = *counted;
  }
  if (is_while) {
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const bool counter =
          (counted != nullptr && counted->index == i) || facts.result_stacks().is_stack(op, i);
      const bool overwritten = counted != nullptr && !counter && is_overwritten(op, *counted, i);
      part.overwritten.push_back(overwritten);
      part.carried.push_back(counter       ? nullptr
                             : overwritten ? op.operands[i]
                                           : fusion.dense(op.operands[i]));
      if (!counter && !overwritten) {
        k.reads.push_back(part.carried.back());
      }
    }
  } else {
    part.predicate = scalar_operand(op.operands[0], facts, fusion, k);
  }
  for (const auto& region : op.regions) {
    const bool condition = is_while && region == op.regions[0];
    part.regions.push_back(condition && counted != nullptr
                               ? nullptr
                               : std::make_shared<KernelProgram>(fusion.form(*region, inside)));
  }
  find_captures(k);
  for (size_t i = 0; i < op.results.size(); ++i) {
    if ((counted == nullptr || counted->index != i) && !facts.result_stacks().is_stack(op, i)) {
      k.writes.push_back(op.result(i));
    }
  }
  fusion.add(std::move(k));
}

Kernel yield_of(const Op& ret, const CountedLoop* counted, const ControlFacts& facts,
                Fusion& fusion) {
  Kernel k(KernelClass::kYield);
  k.ops = {&ret};
  const Op& owner = *ret.parent->parent;
  for (size_t i = 0; i < ret.operands.size(); ++i) {
    const bool skip =
        (counted != nullptr && counted->index == i) || facts.result_stacks().is_stack(owner, i);
    k.as<ControlPart>().carried.push_back(skip ? nullptr : fusion.dense(ret.operands[i]));
    if (k.control().carried.back() != nullptr) {
      k.reads.push_back(k.control().carried.back());
    }
  }
  return k;
}

}  // namespace tpu::compiler
