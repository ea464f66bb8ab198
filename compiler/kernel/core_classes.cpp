// See core_classes.hpp. Classes only get smaller, so that the fixed point is reached.
#include "kernel/core_classes.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "ir/control.hpp"

namespace tpu::compiler {
namespace {

// Larger arrays are not computed for each core: nobody decides by them.
constexpr int64_t kMostNumbers = 64;

bool is_small_integer(const Type& type) {
  return !is_float(type.elem) && type.count() <= kMostNumbers;
}

bool is_control(Kind kind) {
  return kind == Kind::kWhile || kind == Kind::kIf || kind == Kind::kCase;
}

}  // namespace

CoreClasses common_classes(const CoreClasses& a, const CoreClasses& b) {
  if (a.empty() || b.empty()) {
    return a.empty() ? b : a;
  }
  if (a == b) {  // classes are numbered in the order of their first cores
    return a;
  }
  std::map<std::pair<int, int>, int> numbers;
  CoreClasses out;
  for (size_t core = 0; core < a.size(); ++core) {
    const auto next = static_cast<int>(numbers.size());
    out.push_back(numbers.emplace(std::pair(a[core], b[core]), next).first->second);
  }
  return out;
}

ValueClasses::ValueClasses(const Module& module) : cores_(static_cast<size_t>(module.num_cores)) {
  const Function& main = *module.main;
  for (size_t i = 0; i < main.args.size(); ++i) {
    const ArgInfo& arg = main.args[i];
    if (!arg.sharding.is_replicated()) {
      std::vector<Dims> parts;
      for (size_t core = 0; core < cores_; ++core) {
        const auto device = static_cast<int64_t>(core);
        parts.push_back(arg.sharding.shard_index(module.mesh, device, arg.global.dims.size()));
        parts.back().push_back(arg.sharding.term_index(module.mesh, device));
      }
      refine(main.body.args[i].get(), numbered(parts));
    }
  }
  while (spread(main.body)) {
  }
}

const CoreClasses& ValueClasses::of(const Value* v) const {
  static const CoreClasses alike;
  const auto it = classes_.find(v);
  return it == classes_.end() ? alike : it->second;
}

CoreClasses ValueClasses::numbered(const std::vector<Dims>& names) const {
  std::map<Dims, int> numbers;
  CoreClasses out;
  for (const Dims& name : names) {
    const auto next = static_cast<int>(numbers.size());
    out.push_back(numbers.emplace(name, next).first->second);
  }
  return numbers.size() == 1 ? CoreClasses{} : out;
}

CoreClasses ValueClasses::apart() const {
  CoreClasses out(cores_ == 1 ? 0 : cores_);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

bool ValueClasses::refine(const Value* v, const CoreClasses& classes) {
  if (classes.empty()) {
    return false;
  }
  CoreClasses& old = classes_[v];
  CoreClasses finer = common_classes(old, classes);
  if (finer == old) {
    return false;
  }
  old = std::move(finer);
  return true;
}

// A result is named by what the members of the core's group put in, and where each gets another
// part also by the place in the group.
CoreClasses ValueClasses::after_collective(const Op& op, const CoreClasses& before) const {
  const auto in = [&](int64_t core) {
    return before.empty() ? 0 : int64_t{before[static_cast<size_t>(core)]};
  };
  std::vector<Dims> names(cores_);
  if (op.kind == Kind::kCollectivePermute) {
    for (const auto& [source, target] : op.as<PermuteAttrs>().pairs) {
      names[static_cast<size_t>(target)] = {in(source)};
    }
    return numbered(names);
  }
  const bool own_part = op.kind == Kind::kReduceScatter || op.kind == Kind::kAllToAll;
  const Groups& groups = op.as<CollectiveAttrs>().groups;
  if (groups.empty()) {
    return own_part ? apart() : CoreClasses{};
  }
  for (const auto& group : groups) {
    Dims put;
    std::transform(group.begin(), group.end(), std::back_inserter(put), in);
    for (size_t place = 0; place < group.size(); ++place) {
      Dims& name = names[static_cast<size_t>(group[place])];
      name = put;
      if (own_part) {
        name.push_back(static_cast<int64_t>(place));
      }
    }
  }
  return numbered(names);
}

// What `v` is on `core`; null where that is not known.
const Tensor* ValueClasses::number_on(const Value* v, size_t core) {
  if (const auto it = numbers_.find(v); it != numbers_.end()) {
    return &it->second[core];
  }
  if (v->def == nullptr || v->def->kind != Kind::kConstant || !is_small_integer(v->type)) {
    return nullptr;
  }
  const auto [it, is_new] = constants_.try_emplace(v);
  if (is_new) {
    it->second = to_tensor(v->def->as<ConstantAttrs>().value);
  }
  return &it->second;
}

// The result on each core, where it is made of the core's number and constants; null elsewhere.
const std::vector<Tensor>* ValueClasses::numbers_of(const Op& op) {
  if (op.results.size() != 1 || !is_small_integer(op.type())) {
    return nullptr;
  }
  if (const auto it = numbers_.find(op.result()); it != numbers_.end()) {
    return &it->second;
  }
  const bool is_number = op.kind == Kind::kPartitionId;
  const bool is_made = can_eval(op.kind) && op.regions.empty() &&
                       std::any_of(op.operands.begin(), op.operands.end(),
                                   [&](const Value* v) { return numbers_.contains(v); });
  if (!is_number && !is_made) {
    return nullptr;
  }
  std::vector<Tensor> numbers;
  for (size_t core = 0; core < cores_; ++core) {
    if (is_number) {
      numbers.push_back(to_tensor(make_splat_int(op.type(), static_cast<int64_t>(core))));
      continue;
    }
    Tensors operands;
    for (const Value* v : op.operands) {
      operands.push_back(number_on(v, core));
    }
    if (std::find(operands.begin(), operands.end(), nullptr) != operands.end()) {
      return nullptr;
    }
    numbers.push_back(eval_op(op, operands, {}));
  }
  return &(numbers_[op.result()] = std::move(numbers));
}

CoreClasses ValueClasses::result_of(const Op& op) {
  if (const std::vector<Tensor>* numbers = numbers_of(op)) {
    std::vector<Dims> names;
    for (const Tensor& number : *numbers) {
      names.emplace_back();
      std::transform(number.data.begin(), number.data.end(), std::back_inserter(names.back()),
                     [](std::byte b) { return std::to_integer<int64_t>(b); });
    }
    return numbered(names);
  }
  if (op.kind == Kind::kRecv && op.as<HostAttrs>().partition < 0) {
    return apart();
  }
  if (op.kind == Kind::kPartitionId || op.kind == Kind::kReplicaId || op.kind == Kind::kRng ||
      op.kind == Kind::kCustomCall) {
    return apart();
  }
  CoreClasses out;
  for (const Value* v : dependencies(op)) {
    out = common_classes(out, of(v));
  }
  return is_collective(op.kind) ? after_collective(op, out) : out;
}

// One step of the fixed point: true if anything new differs.
bool ValueClasses::spread(const Region& region) {
  bool changed = false;
  for (const auto& op : region.ops) {
    if (is_control(op->kind)) {
      changed = spread_control(*op) || changed;
      continue;
    }
    const CoreClasses classes = result_of(*op);
    for (const auto& result : op->results) {
      changed = refine(result.get(), classes) || changed;
    }
  }
  return changed;
}

bool ValueClasses::spread_control(const Op& op) {
  bool changed = false;
  for (const auto& region : op.regions) {
    changed = spread(*region) || changed;
  }
  const bool is_while = op.kind == Kind::kWhile;
  const CoreClasses way = of(is_while ? op.regions[0]->terminator()->operands[0] : op.operands[0]);
  for (size_t i = 0; i < op.results.size(); ++i) {
    CoreClasses classes = is_while ? common_classes(way, of(op.operands[i])) : way;
    for (const auto& region : op.regions) {
      if (!is_while || region != op.regions[0]) {
        classes = common_classes(classes, of(region->terminator()->operands[i]));
      }
    }
    changed = refine(op.result(i), classes) || changed;
    for (const auto& region : op.regions) {
      changed = (is_while && refine(region->args[i].get(), classes)) || changed;
    }
  }
  return changed;
}

}  // namespace tpu::compiler
