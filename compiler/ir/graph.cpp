// Building, walking and rewriting the graph; facts about kinds, meshes and shardings.
#include "ir/graph.hpp"

#include <array>

#include "ir/op_traits.hpp"

namespace tpu::compiler {
namespace {

constexpr std::array kKindNames = {
#define X(id, name, ...) std::string_view(name),
    TPU_OP_KINDS(X)
#undef X
};

constexpr std::array kSourceNames = {
#define X(id, name, attrs, in, out, regions, source, ...) std::string_view(source),
    TPU_OP_KINDS(X)
#undef X
};

}  // namespace

std::string_view kind_name(Kind kind) { return kKindNames.at(static_cast<size_t>(kind)); }

std::string source_name(Kind kind) {
  const std::string_view source = kSourceNames.at(static_cast<size_t>(kind));
  return source.empty() ? "stablehlo." + std::string(kind_name(kind)) : std::string(source);
}

bool is_matrix_op(Kind kind) { return traits_of(kind).group == Group::kMatrix; }

bool is_global_only(Kind kind) { return traits_of(kind).group == Group::kGlobal; }

std::optional<Kind> kind_from_name(std::string_view name) {
  for (size_t i = 0; i < kKindNames.size(); ++i) {
    if (kKindNames[i] == name) {
      return static_cast<Kind>(i);
    }
  }
  return std::nullopt;
}

bool is_elementwise(Kind kind) {
  const Group group = traits_of(kind).group;
  return group == Group::kUnary || group == Group::kBinary || group == Group::kTernary;
}
bool is_collective(Kind kind) { return traits_of(kind).group == Group::kCollective; }

Value* Region::add_arg(Type type) {
  args.push_back(std::make_unique<Value>(
      Value{std::move(type), nullptr, this, static_cast<int>(args.size())}));
  return args.back().get();
}

Op* Region::append(Kind kind, std::vector<Value*> operands, std::vector<Type> result_types,
                   Attrs attrs, LocRef loc) {
  ops.push_back(std::make_unique<Op>());
  Op* op = ops.back().get();
  op->kind = kind;
  op->operands = std::move(operands);
  op->attrs = std::move(attrs);
  op->loc = loc ? std::move(loc) : unknown_loc();
  op->parent = this;
  for (Type& t : result_types) {
    op->add_result(std::move(t));
  }
  return op;
}

Op* Region::terminator() const {
  return ops.empty() || ops.back()->kind != Kind::kReturn ? nullptr : ops.back().get();
}

Region* Op::add_region() {
  regions.push_back(std::make_unique<Region>());
  regions.back()->parent = this;
  return regions.back().get();
}

void Op::add_result(Type type) {
  results.push_back(std::make_unique<Value>(
      Value{std::move(type), this, nullptr, static_cast<int>(results.size())}));
}

Function* Module::find(const std::string& function_name) const {
  if (main && main->name == function_name) {
    return main.get();
  }
  for (const auto& f : functions) {
    if (f->name == function_name) {
      return f.get();
    }
  }
  return nullptr;
}

void Module::number_ops() {
  const auto number = [this](Op& op) {
    if (op.id == 0) {
      op.id = next_id++;
    }
  };
  walk(main->body, number);
  for (const auto& f : functions) {
    walk(f->body, number);
  }
}

Uses compute_uses(const Region& region) {
  Uses uses;
  uses.reserve(region.ops.size());
  walk(region, [&](Op& op) {
    for (const Value* v : op.operands) {
      uses[v].push_back(&op);
    }
  });
  return uses;
}

Value* mapped(Value* v, const ValueMap& map) {
  const auto it = map.find(v);
  return it == map.end() ? v : it->second;
}

std::vector<Value*> mapped(std::vector<Value*> values, const ValueMap& map) {
  for (Value*& v : values) {
    v = map.empty() ? v : mapped(v, map);
  }
  return values;
}

void replace_all_uses(Region& region, const ValueMap& map) {
  walk(region, [&](Op& op) {
    for (Value*& v : op.operands) {
      // Follow chains: the replacement may have been replaced too.
      for (auto it = map.find(v); it != map.end(); it = map.find(v)) {
        v = it->second;
      }
    }
  });
}

void replace_all_uses(Region& region, const Value* from, Value* to) {
  replace_all_uses(region, ValueMap{{from, to}});
}

Op* clone_op(const Op& op, Region& to, ValueMap& map) {
  std::vector<Type> types;
  for (const auto& r : op.results) {
    types.push_back(r->type);
  }
  Op* copy = to.append(op.kind, mapped(op.operands, map), std::move(types), op.attrs, op.loc);
  for (size_t i = 0; i < op.results.size(); ++i) {
    map[op.results[i].get()] = copy->result(i);
  }
  for (const auto& region : op.regions) {
    clone_region(*region, *copy, map);
  }
  return copy;
}

void clone_region(const Region& region, Op& to, ValueMap& map) {
  Region* copy = to.add_region();
  for (const auto& arg : region.args) {
    map[arg.get()] = copy->add_arg(arg->type);
  }
  for (const auto& op : region.ops) {
    clone_op(*op, *copy, map);
  }
}

std::optional<Kind> simple_reducer(const Region& body) {
  if (body.args.size() != 2 || body.ops.size() != 2) {
    return std::nullopt;
  }
  const Op& op = *body.ops[0];
  const Op& ret = *body.ops[1];
  if (ret.kind != Kind::kReturn || ret.operands.size() != 1 || op.results.size() != 1 ||
      op.operands.size() != 2 || ret.operands[0] != op.result()) {
    return std::nullopt;
  }
  const Value* a = body.args[0].get();
  const Value* b = body.args[1].get();
  const bool both =
      (op.operands[0] == a && op.operands[1] == b) || (op.operands[0] == b && op.operands[1] == a);
  return both && has_trait(op.kind, trait::kReducer) ? std::optional(op.kind) : std::nullopt;
}

void fail_unknown_kind(const Op& op, const char* where) {
  throw Error("internal: " + std::string(where) + " has no rule for this op", source_name(op.kind),
              op.loc);
}

static bool acts(const Op& op) {
  return op.kind == Kind::kSend || op.kind == Kind::kRecv ||
         (op.kind == Kind::kCustomCall && op.as<CustomCallAttrs>().has_side_effect) ||
         (op.kind == Kind::kShardingConstraint && op.as<ShardingAttrs>().group);  // of others
}

bool has_side_effect(const Op& op) {
  if (op.kind == Kind::kReturn || acts(op)) {
    return true;
  }
  bool inside = false;
  for (const auto& region : op.regions) {
    walk(*region, [&](const Op& o) { inside = inside || acts(o); });
  }
  return inside;
}

}  // namespace tpu::compiler
