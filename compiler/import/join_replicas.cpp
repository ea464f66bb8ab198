// See join_replicas.hpp. The replicas' bodies are walked side by side, without what has no operands
// and moves freely: constants, and arguments with the reshape that takes the dimension of replicas
// away (replicas.cpp). Values are known by what each replica calls them.
#include "import/join_replicas.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "import/replica_tables.hpp"
#include "ir/attrs.hpp"
#include "ir/error_kinds.hpp"

namespace tpu::compiler {
namespace {

using Same = std::vector<const Value*>;  // a value, by replica
using Ops = std::vector<const Op*>;      // an op, by replica
using Bodies = std::vector<const Region*>;

const Op& manual_of(const Module& program) {
  for (const auto& op : program.main->body.ops) {
    if (op->kind == Kind::kManualComputation) {
      return *op;
    }
  }
  throw Contradiction("expected a program of several replicas, found one of one");
}

class Joiner {
 public:
  explicit Joiner(const std::vector<Module>& programs) : programs_(programs) {
    for (const Module& program : programs) {
      bodies_.push_back(manual_of(program).regions.at(0).get());
    }
    out_.arguments.resize(programs.size());
    ids_.resize(programs.size());
  }

  JoinedReplicas run() {
    check_interfaces();
    keep_aliases();
    std::vector<Ops> all = steps(bodies_);
    for (const Ops& ops : all) {
      join(ops);
    }
    make_main();
    out_.module.number_ops();
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const Op& op, size_t replica, const std::string& what) const {
    throw Contradiction(
        "the programs of the replicas differ, and cannot be made one: replica 0 and replica " +
            std::to_string(replica) + " have " + what +
            "; replicas may differ in constants, padding and starts of slices",
        std::string(kind_name(op.kind)), op.loc);
  }

  void check_interfaces() const {
    const Module& first = programs_[0];
    for (size_t r = 1; r < programs_.size(); ++r) {
      const auto& results = programs_[r].main->results;
      const bool same = std::ranges::equal(
          results, first.main->results,
          [](const ResultInfo& a, const ResultInfo& b) { return a.global == b.global; });
      if (!same) {
        throw Contradiction("the programs of replica 0 and replica " + std::to_string(r) +
                            " have different results, and cannot be made one");
      }
    }
  }

  // The argument that a value is, or -1.
  int argument_of(size_t replica, const Value* value) const {
    const Op* const op = value->def;
    const bool reshaped =
        op != nullptr && op->kind == Kind::kReshape && op->operands[0]->owner == bodies_[replica];
    return reshaped ? op->operands[0]->index : -1;
  }

  static const Dense* constant_of(const Value* value) {
    return value->def != nullptr && value->def->kind == Kind::kConstant
               ? &value->def->as<ConstantAttrs>().value
               : nullptr;
  }

  bool is_leaf(size_t replica, const Value* value) const {
    return constant_of(value) != nullptr || argument_of(replica, value) >= 0;
  }

  // The ops that must correspond, one after the other. Throws at the first that has no counterpart.
  std::vector<Ops> steps(const Bodies& regions) const {
    std::vector<std::vector<const Op*>> lists(regions.size());
    for (size_t r = 0; r < regions.size(); ++r) {
      for (const auto& op : regions[r]->ops) {
        if (op->results.empty() || !is_leaf(r, op->result())) {
          lists[r].push_back(op.get());
        }
      }
    }
    std::vector<Ops> all;
    for (size_t i = 0; i < lists[0].size(); ++i) {
      Ops& ops = all.emplace_back();
      for (size_t r = 0; r < regions.size(); ++r) {
        if (i >= lists[r].size()) {
          fail(*lists[0][i], r, "programs of different lengths");
        }
        ops.push_back(lists[r][i]);
        check_step(*ops[0], *ops[r], r);
      }
    }
    for (size_t r = 1; r < regions.size(); ++r) {
      if (lists[r].size() > lists[0].size()) {
        fail(*lists[r][lists[0].size()], r, "programs of different lengths");
      }
    }
    return all;
  }

  void check_step(const Op& first, const Op& other, size_t replica) const {
    if (first.kind != other.kind) {
      fail(first, replica,
           "`" + std::string(kind_name(first.kind)) + "` and `" +
               std::string(kind_name(other.kind)) + "` at the same place");
    }
    const auto same_type = [](const auto& a, const auto& b) { return a->type == b->type; };
    if (!std::ranges::equal(first.results, other.results, same_type) ||
        !std::ranges::equal(first.operands, other.operands, same_type) ||
        first.regions.size() != other.regions.size()) {
      const auto text = [](const Op& op) {
        return op.results.empty() ? std::string("other values") : to_string(op.type());
      };
      fail(first, replica,
           "operands or results of different types, " + text(first) + " and " + text(other));
    }
  }

  // The joined value of what the replicas call so.
  Value* value(const Same& same, const Op& user) {
    if (const auto known = values_.find(same); known != values_.end()) {
      return known->second;
    }
    for (size_t r = 0; r < same.size(); ++r) {
      if (!is_leaf(r, same[r])) {
        fail(user, std::max<size_t>(r, 1), "operands from different places");
      }
    }
    return values_[same] = leaf(same, user);
  }

  Value* leaf(const Same& same, const Op& user) {
    std::vector<const Dense*> constants;
    for (const Value* v : same) {
      constants.push_back(constant_of(v));
    }
    const auto is_constant = [](const Dense* constant) { return constant != nullptr; };
    if (!std::ranges::all_of(constants, is_constant)) {
      return argument(same, user.loc);
    }
    const std::vector<std::byte> first = constants[0]->expanded();
    std::vector<std::byte> table;
    bool equal = true;
    for (const Dense* constant : constants) {
      const std::vector<std::byte> bytes = constant->expanded();
      equal = equal && bytes == first;
      table.insert(table.end(), bytes.begin(), bytes.end());
    }
    const LocRef& loc = same[0]->def->loc;
    if (!equal) {
      return tables_.entry(same[0]->type, std::move(table), loc);
    }
    return tables_.append(Kind::kConstant, {}, same[0]->type, ConstantAttrs{*constants[0]}, loc);
  }

  // Of replicas that have it as a constant, the others as an argument: the former are given it.
  Value* argument(const Same& same, const LocRef& loc) {
    std::optional<size_t> shown;
    for (size_t r = 0; r < same.size(); ++r) {
      JoinedArgument passed;
      if (const Dense* constant = constant_of(same[r])) {
        passed.constant = *constant;
      } else {
        passed.own = static_cast<size_t>(argument_of(r, same[r]));
        shown = shown.value_or(r);
      }
      out_.arguments[r].push_back(std::move(passed));
    }
    shown_by_.push_back(*shown);
    return tables_.append(Kind::kReshape, {body_->add_arg(same[*shown]->def->operands[0]->type)},
                          same[0]->type, NoAttrs{}, loc);
  }

  // Memory that a result takes over, also of arguments that no op reads.
  void keep_aliases() {
    for (size_t i = 0; i < programs_[0].main->args.size(); ++i) {
      const int result = programs_[0].main->args[i].alias_result;
      Same same;
      for (size_t r = 0; r < programs_.size() && result >= 0; ++r) {
        const auto& args = programs_[r].main->args;
        const auto at = std::ranges::find(args, result, &ArgInfo::alias_result);
        if (at != args.end()) {
          const auto own = static_cast<size_t>(at - args.begin());
          same.push_back(reshaped(r, own));
        }
      }
      if (same.size() == programs_.size()) {
        values_[same] = argument(same, programs_[0].main->loc);
      }
    }
  }

  const Value* reshaped(size_t replica, size_t argument) const {
    for (const auto& op : bodies_[replica]->ops) {
      if (!op->results.empty() &&
          argument_of(replica, op->result()) == static_cast<int>(argument)) {
        return op->result();
      }
    }
    throw Error("an argument of a replica has no reshape");
  }

  // A step of the joined program.
  void join(const Ops& ops) {
    std::vector<Value*> operands;
    for (size_t k = 0; k < ops[0]->operands.size(); ++k) {
      operands.push_back(value(operand(ops, k), *ops[0]));
    }
    for (size_t r = 1; r < ops.size(); ++r) {
      if (!attrs_equal(ops[0]->attrs, ops[r]->attrs)) {
        values_[result(ops, 0)] = moved(ops, operands);
        return;
      }
    }
    ValueMap outside;
    for (size_t i = 0; i < ops[0]->regions.size(); ++i) {
      compare_inner(inner(ops, i), outside);
    }
    std::vector<Type> types;
    for (const auto& made : ops[0]->results) {
      types.push_back(made->type);
    }
    Op* const joined =
        body_->append(ops[0]->kind, operands, std::move(types), ops[0]->attrs, ops[0]->loc);
    for (const auto& region : ops[0]->regions) {
      clone_region(*region, *joined, outside);
    }
    for (size_t k = 0; k < joined->results.size(); ++k) {
      values_[result(ops, k)] = joined->result(k);
    }
  }

  // An op whose attributes differ.
  Value* moved(const Ops& ops, const std::vector<Value*>& operands) {
    for (size_t r = 1; r < ops.size(); ++r) {
      if (!attrs_equal(ops[0]->attrs, ops[r]->attrs) &&
          !ReplicaTables::may_differ(*ops[0], *ops[r])) {
        fail(*ops[0], r,
             "other attributes:" + to_string(ops[0]->attrs) + " and" + to_string(ops[r]->attrs));
      }
    }
    return ops[0]->kind == Kind::kPad ? tables_.padded(ops, operands)
                                      : tables_.sliced(ops, operands[0]);
  }

  static Same operand(const Ops& ops, size_t k) {
    Same same;
    for (const Op* op : ops) {
      same.push_back(op->operands[k]);
    }
    return same;
  }
  static Same result(const Ops& ops, size_t k) {
    Same same;
    for (const Op* op : ops) {
      same.push_back(op->result(k));
    }
    return same;
  }
  static Bodies inner(const Ops& ops, size_t i) {
    Bodies regions;
    for (const Op* op : ops) {
      regions.push_back(op->regions[i].get());
    }
    return regions;
  }

  // Regions inside of an op are equal; what they read from outside is added to `outside`.
  void compare_inner(const Bodies& regions, ValueMap& outside) {
    const auto define = [&](size_t r, const Value* v) { ids_[r].emplace(v, ids_[r].size()); };
    for (size_t r = 0; r < regions.size(); ++r) {
      for (const auto& arg : regions[r]->args) {
        define(r, arg.get());
      }
      if (regions[r]->ops.size() != regions[0]->ops.size()) {
        fail(*regions[0]->ops.back(), r, "bodies of different lengths");
      }
    }
    for (size_t i = 0; i < regions[0]->ops.size(); ++i) {
      Ops ops;
      for (size_t r = 0; r < regions.size(); ++r) {
        ops.push_back(regions[r]->ops[i].get());
        check_step(*ops[0], *ops[r], r);
        if (!attrs_equal(ops[0]->attrs, ops[r]->attrs)) {
          fail(*ops[0], r,
               "other attributes inside of a body:" + to_string(ops[0]->attrs) + " and" +
                   to_string(ops[r]->attrs));
        }
      }
      for (size_t k = 0; k < ops[0]->operands.size(); ++k) {
        compare_read(operand(ops, k), *ops[0], outside);
      }
      for (size_t j = 0; j < ops[0]->regions.size(); ++j) {
        compare_inner(inner(ops, j), outside);
      }
      for (size_t r = 0; r < ops.size(); ++r) {
        for (const auto& made : ops[r]->results) {
          define(r, made.get());
        }
      }
    }
  }

  void compare_read(const Same& same, const Op& user, ValueMap& outside) {
    const auto first = ids_[0].find(same[0]);
    for (size_t r = 1; r < same.size(); ++r) {
      const auto own = ids_[r].find(same[r]);
      const bool inside = own != ids_[r].end();
      if (inside != (first != ids_[0].end()) || (inside && own->second != first->second)) {
        fail(user, r, "operands from different places");
      }
    }
    if (first != ids_[0].end()) {
      return;
    }
    Value* const joined = value(same, user);
    if (outside.emplace(same[0], joined).first->second != joined) {
      fail(user, 1, "values that one of them has twice, inside of a body");
    }
  }

  ArgInfo info(size_t slot) const {
    const std::vector<JoinedArgument>& first = out_.arguments[shown_by_[slot]];
    ArgInfo info = programs_[shown_by_[slot]].main->args[first[slot].own];
    for (size_t r = 0; r < programs_.size(); ++r) {
      const JoinedArgument& passed = out_.arguments[r][slot];
      const bool own = !passed.constant;
      if (!own || programs_[r].main->args[passed.own].alias_result != info.alias_result) {
        info.alias_result = -1;
      }
      info.donated = info.donated && own && programs_[r].main->args[passed.own].donated;
    }
    return info;
  }

  void make_main() {
    const Module& first = programs_[0];
    const Op& manual = manual_of(first);
    Module& module = out_.module;
    module.name = first.name;
    module.mesh = first.mesh;
    module.num_cores = first.num_cores;
    module.global = true;
    module.main = std::make_unique<Function>();
    Function& main = *module.main;
    main.name = first.main->name;
    main.loc = first.main->loc;
    main.results = first.main->results;
    ManualAttrs attrs = manual.as<ManualAttrs>();
    attrs.in.clear();
    std::vector<Value*> operands;
    for (size_t slot = 0; slot < shown_by_.size(); ++slot) {
      const Module& shown = programs_[shown_by_[slot]];
      main.args.push_back(info(slot));
      operands.push_back(main.body.add_arg(main.args.back().global));
      attrs.in.push_back(
          manual_of(shown).as<ManualAttrs>().in[out_.arguments[shown_by_[slot]][slot].own]);
    }
    std::vector<Type> types;
    for (const ResultInfo& result : main.results) {
      types.push_back(result.global);
    }
    Op* const all = main.body.append(Kind::kManualComputation, operands, types, attrs, manual.loc);
    body_->parent = all;
    all->regions.push_back(std::move(body_));
    std::vector<Value*> results;
    for (const auto& result : all->results) {
      results.push_back(result.get());
    }
    main.body.append(Kind::kReturn, results, {}, NoAttrs{}, main.loc);
  }

  const std::vector<Module>& programs_;
  Bodies bodies_;
  JoinedReplicas out_;
  std::unique_ptr<Region> body_ = std::make_unique<Region>();
  ReplicaTables tables_{*body_, static_cast<int64_t>(programs_.size())};
  std::map<Same, Value*> values_;
  std::vector<size_t> shown_by_;  // by argument: a replica that has it as one
  std::vector<std::unordered_map<const Value*, size_t>> ids_;  // of values inside of ops
};

}  // namespace

JoinedReplicas join_replicas(const std::vector<Module>& programs) { return Joiner(programs).run(); }

}  // namespace tpu::compiler
