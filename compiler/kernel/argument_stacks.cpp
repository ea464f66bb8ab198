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

SlotNumbers::SlotNumbers(const Function& main) {
  int next = 0;
  for (const ArgInfo& arg : main.args) {
    arguments.push_back(arg.part == WordPart::kHigh ? -1 : next++);
  }
  results.assign(main.results.size(), -1);
  std::vector<bool> replaces(main.results.size(), false);
  for (size_t i = 0; i < main.args.size(); ++i) {
    if (const int r = main.args[i].alias_result; r >= 0) {
      results[static_cast<size_t>(r)] = arguments[i];
      replaces[static_cast<size_t>(r)] = true;
    }
  }
  for (size_t r = 0; r < results.size(); ++r) {
    if (!replaces[r] && main.results[r].part != WordPart::kHigh) {
      results[r] = next++;
    }
  }
}

bool SlotTableBudget::take(const Op& loop, const std::vector<std::vector<int>>& lists) {
  std::set<std::vector<int>> more;
  for (std::vector<int> slots : lists) {
    const int least = *std::ranges::min_element(slots);
    for (int& slot : slots) {
      slot -= least;
    }
    if (!tables_.contains({&loop, slots})) {
      more.insert(std::move(slots));
    }
  }
  int64_t words = 0;
  for (const std::vector<int>& slots : more) {
    words += std::ssize(slots);
  }
  if (words > words_ || tables_.size() + more.size() > kMostTables) {
    return false;
  }
  words_ -= words;
  for (const std::vector<int>& slots : more) {
    tables_.emplace(&loop, slots);
  }
  return true;
}

ArgumentStacks::ArgumentStacks(const Module& module, const SlotNumbers& slots,
                               SlotTableBudget& budget) {
  const Function& main = *module.main;
  const Uses uses = compute_uses(main.body);
  for (const auto& op : main.body.ops) {
    const auto users = uses.find(op->results.empty() ? nullptr : op->result());
    if (op->kind != Kind::kConcatenate || op->as<DimAttrs>().dim != 0 || users == uses.end()) {
      continue;
    }
    const std::vector<const Value*> arguments = arguments_of(main, *op);
    std::map<const Op*, std::vector<const Value*>> all;
    std::map<const Op*, std::vector<std::vector<int>>> tables;  // by loop
    bool fits = !arguments.empty();
    for (const Op* user : users->second) {
      const auto taken = fits ? taken_by(*user, *op, arguments) : std::nullopt;
      if (!taken) {
        fits = false;
        break;
      }
      all[user] = *taken;
      std::vector<int>& numbers = tables[user->parent->parent].emplace_back();
      for (const Value* v : *taken) {
        numbers.push_back(slots.arguments[static_cast<size_t>(v->index)]);
      }
    }
    // Loops that are refused leave tables of others unused, which only takes room.
    fits = fits && std::ranges::all_of(tables, [&](const auto& loop) {
             return budget.take(*loop.first, loop.second);
           });
    if (fits) {
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
