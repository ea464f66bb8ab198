#include "kernel/argument_stacks.hpp"

#include <algorithm>
#include <optional>

#include "ir/counter_values.hpp"

namespace tpu::compiler {

namespace {

constexpr size_t kMostTables = 192;  // that operands can name

const Value* without_reshapes(const Value* v) {
  while (v->def != nullptr && v->def->kind == Kind::kReshape) {
    v = v->def->operands[0];
  }
  return v;
}

// Of equal shapes, each in a slot that begins with it.
std::vector<const Value*> arguments_of(const Function& main, const Op& stack) {
  std::vector<const Value*> arguments;
  for (const Value* v : stack.operands) {
    const Value* root = without_reshapes(v);
    if (root->def != nullptr || root->owner != &main.body || v->type != stack.operand_type(0) ||
        main.args[static_cast<size_t>(root->index)].part == WordPart::kHigh) {
      return {};
    }
    arguments.push_back(root);
  }
  return arguments;
}

// What the slice reads of the stack in each iteration; nothing: not one part after the other.
std::optional<std::vector<const Value*>> taken_by(const Op& slice, const Op& stack,
                                                  const std::vector<const Value*>& arguments) {
  const Op* loop = slice.parent->parent;
  const Dims& part = stack.operand_type(0).dims;
  if (slice.kind != Kind::kDynamicSlice || slice.operands[0] != stack.result() ||
      slice.type().dims != part || part[0] == 0 || loop == nullptr || loop->kind != Kind::kWhile ||
      loop->parent != stack.parent) {
    return std::nullopt;
  }
  const auto counted = counted_loop(*loop);
  if (!counted || counted->first != 0 || counted->step != 1 || counted->trips == 0) {
    return std::nullopt;
  }
  std::vector<const Value*> taken;
  for (size_t d = 0; d < part.size(); ++d) {
    const auto starts = values_in_loop(slice.operands[1 + d], *loop, *counted);
    if (!starts) {
      return std::nullopt;
    }
    for (const int64_t start : *starts) {
      const int64_t limit = d == 0 ? part[0] * (std::ssize(arguments) - 1) : 0;
      if (start < 0 || start > limit || start % part[0] != 0) {
        return std::nullopt;
      }
      if (d == 0) {
        taken.push_back(arguments[static_cast<size_t>(start / part[0])]);
      }
    }
  }
  return taken;
}

}  // namespace

ArgumentStacks::ArgumentStacks(const Module& module, int64_t words) {
  const Function& main = *module.main;
  const Uses uses = compute_uses(main.body);
  for (const auto& op : main.body.ops) {
    const auto users = uses.find(op->results.empty() ? nullptr : op->result());
    if (op->kind != Kind::kConcatenate || op->as<DimAttrs>().dim != 0 || users == uses.end()) {
      continue;
    }
    const std::vector<const Value*> arguments = arguments_of(main, *op);
    std::map<const Op*, std::vector<const Value*>> all;
    int64_t more = 0;
    const bool fits = !arguments.empty() && std::ranges::all_of(users->second, [&](const Op* user) {
      const auto taken = taken_by(*user, *op, arguments);
      if (taken) {
        all[user] = *taken;
        more += std::ssize(*taken);
      }
      return taken.has_value();
    });
    if (fits && more <= words && arguments_.size() + all.size() <= kMostTables) {
      words -= more;
      stacks_.insert(op.get());
      arguments_.merge(all);
    }
  }
}

const std::vector<const Value*>* ArgumentStacks::arguments(const Op& slice) const {
  const auto found = arguments_.find(&slice);
  return found == arguments_.end() ? nullptr : &found->second;
}

}  // namespace tpu::compiler
