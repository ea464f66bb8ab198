// See core_ops.hpp.
#include "import/core_ops.hpp"

#include <map>
#include <vector>

#include "import/gspmd.hpp"
#include "ir/op_kinds.hpp"

namespace tpu::compiler::frontend {
namespace {

using bytecode::Dialect;
using bytecode::RawOp;
using bytecode::RawRegion;

// Calls fn(op) for the ops of its regions. A computation of Shardy is a manual part.
template <typename Fn>
void each_inside(const RawOp& op, const Fn& fn) {
  if (op.dialect != Dialect::kVhlo) {
    return;
  }
  for (const RawRegion& region : op.regions) {
    for (const RawOp& inner : region.ops) {
      fn(inner);
      each_inside(inner, fn);
    }
  }
}

}  // namespace

CoreOps::CoreOps(const Tables& tables, const RawOp& module) : tables_(tables) {
  std::map<std::string_view, std::vector<std::string_view>> callers;
  std::vector<std::string_view> next;
  for (const RawRegion& region : module.regions) {
    for (const RawOp& function : region.ops) {
      const std::string_view name = tables.property_text(function, "sym_name");
      bool has_border = false, has_core_op = false;
      std::vector<std::string_view> callees;
      each_inside(function, [&](const RawOp& op) {
        has_border = has_border || is_border(op);
        has_core_op = has_core_op || is_one(op);
        if (const std::string_view callee = tables.property_text(op, "callee"); !callee.empty()) {
          callees.push_back(callee);
        }
      });
      if (has_border) {
        continue;
      }
      for (const std::string_view callee : callees) {
        callers[callee].push_back(name);
      }
      if (has_core_op) {
        next.push_back(name);
      }
    }
  }
  while (!next.empty()) {
    const std::string_view name = next.back();
    next.pop_back();
    if (functions_.insert(name).second) {
      next.insert(next.end(), callers[name].begin(), callers[name].end());
    }
  }
}

bool CoreOps::contains(const RawOp& op) const {
  bool found = is_one(op), has_border = false;
  each_inside(op, [&](const RawOp& inner) {
    found = found || is_one(inner);
    has_border = has_border || is_border(inner);
  });
  return found && !has_border;
}

bool CoreOps::is_one(const RawOp& op) const {
  if (op.dialect != Dialect::kVhlo) {
    return false;
  }
  const auto kind = kind_from_name(base_name(op.name));
  return (kind && (is_collective(*kind) || *kind == Kind::kPartitionId)) ||
         functions_.contains(tables_.property_text(op, "callee"));
}

bool CoreOps::is_border(const RawOp& op) const {
  const std::string_view target = custom_call_target(tables_, op);
  return target == kGspmdEnter || target == kGspmdLeave;
}

}  // namespace tpu::compiler::frontend
