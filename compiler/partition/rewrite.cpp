// See rewrite.hpp. Ops with regions that run are in rewrite_control.cpp.
#include "partition/rewrite.hpp"

#include <algorithm>

#include "partition/choose.hpp"
#include "passes/rewriter.hpp"

namespace tpu::compiler {

namespace {

bool is_neutral(const Value* v, const FactorRule& rule) {
  const Dense* value = constant_of(v);
  return value != nullptr && is_identity(rule.reducer, *value);
}

}  // namespace

void Rewrite::define(const Value* old, Value* v, Spec spec, Axes unreduced) {
  map_[old] = v;
  mover_.define(v, std::move(spec), std::move(unreduced));
}

MoveLog Rewrite::run() {
  Function& main = *module_.main;
  Region& body = main.body;
  Region old;
  old.ops.swap(body.ops);
  old.args.swap(body.args);
  std::vector<Value*> arrived;
  for (size_t i = 0; i < old.args.size(); ++i) {
    const Value* arg = old.args[i].get();
    const Spec& lies = placements_.of(arg);
    const Spec spec = main.args[i].wanted ? lies : whole_axes(mesh_, lies);
    const Axes& unreduced = unreduced_.of(arg);
    Sharding& sharding = main.args[i].sharding = sharding_of(spec, unreduced);
    if (main.args[i].wanted) {
      sharding.order = main.args[i].wanted->sharding.order;
    }
    arrived.push_back(body.add_arg(local_type(arg->type, mesh_, sharding, "func", main.loc)));
  }
  mover_.place(body, *old.ops.back());
  for (size_t i = 0; i < old.args.size(); ++i) {
    const Value* arg = old.args[i].get();
    const Sharding& sharding = main.args[i].sharding;
    define(arg, mover_.from_order(arrived[i], sharding.order), spec_of(sharding, arg->type),
           sharding.unreduced);
  }
  emit_region(old);
  const Op& ret = *old.ops.back();
  mover_.place(body, ret);
  std::vector<Value*> results;
  for (size_t i = 0; i < ret.operands.size(); ++i) {
    Value* v = now(ret.operands[i]);
    const Sharding sharding =
        result_sharding(i, whole_axes(mesh_, mover_.spec(v)), mover_.unreduced(v));
    const Spec spec = spec_of(sharding, main.results[i].global);
    v = mover_.reshard(v, spec, sharding.unreduced);
    results.push_back(mover_.in_order(v, sharding.order));
    main.results[i].sharding = sharding;
  }
  body.append(Kind::kReturn, std::move(results), {}, NoAttrs{}, ret.loc);
  return std::move(mover_.log());
}

// As the program wants it, else as the argument whose memory it takes, else as it is.
Sharding Rewrite::result_sharding(size_t i, const Spec& natural, const Axes& unreduced) const {
  const Function& main = *module_.main;
  const ResultInfo& result = main.results[i];
  if (!result.wanted) {
    for (const ArgInfo& arg : main.args) {
      if (arg.alias_result == static_cast<int>(i)) {
        return arg.sharding;
      }
    }
    return sharding_of(natural, unreduced);
  }
  local_type(result.global, mesh_, result.wanted->sharding, "func", main.loc);
  Spec spec = spec_of(result.wanted->sharding, result.global);
  for (size_t d = 0; d < spec.size(); ++d) {
    Spec longer = spec;
    longer[d] = natural[d];
    const bool open = d < result.wanted->open.size() && result.wanted->open[d];
    if (open && is_prefix(spec[d], natural[d]) && can_cut(mesh_, result.global, longer)) {
      spec = std::move(longer);
    }
  }
  Sharding sharding = sharding_of(spec, result.wanted->sharding.unreduced);
  sharding.order = result.wanted->sharding.order;
  return sharding;
}

void Rewrite::emit_region(const Region& from) {
  for (const auto& op : from.ops) {
    if (op->kind != Kind::kReturn) {
      mover_.place(mover_.region(), *op);
      emit(*op);
    }
  }
}

void Rewrite::emit(const Op& op) {
  if (op.results.size() == 1 && is_free(op.result())) {
    // whole here, and as they are wanted where they are used
    std::vector<Value*> operands;
    for (const Value* v : op.operands) {
      operands.push_back(mover_.reshard(now(v), {}));
    }
    define(op.result(), mover_.make(op.kind, std::move(operands), op.type(), op.attrs),
           Spec(op.type().dims.size()));
    return;
  }
  if (op.kind == Kind::kOptimizationBarrier) {
    barrier(op);
    return;
  }
  switch (op.kind) {
    case Kind::kShardingConstraint:
    case Kind::kReshard:
      map_[op.result()] = mover_.reshard(now(op.operands[0]), placements_.of(op.result()),
                                         unreduced_.of(op.result()));
      return;
    case Kind::kManualComputation:
      manual(op);
      return;
    case Kind::kCustomCall:
      own(op);
      return;
    case Kind::kSend:
      send(op);
      return;
    case Kind::kRecv:
      recv(op);
      return;
    case Kind::kWhile:
    case Kind::kIf:
    case Kind::kCase:
      control(op);
      return;
      TPU_CASES(SOURCE, ELEMENTWISE, SHAPE, CONTRACTION, BODY, COLLECTIVE, WHOLE, MATRIX, SIZED,
                END)
    case Kind::kCall:
    case Kind::kComposite:
      compute(op);
  }
}

namespace {

// What one core sends or gets where the array is cut: `part`, which is of the core, has the
// dimensions of the array in front (those of complex elements behind).
HostAttrs local_host_attrs(const Op& op, const Value* part) {
  auto attrs = op.as<HostAttrs>();
  std::copy_n(part->type.dims.begin(), attrs.array.dims.size(), attrs.array.dims.begin());
  return attrs;
}

}  // namespace

// Each array as it is: several may be cut along the same axis.
void Rewrite::barrier(const Op& op) {
  std::vector<Value*> operands;
  std::vector<Type> types;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    Value* v = now(op.operands[i]);
    operands.push_back(mover_.reshard(v, mover_.spec(v), unreduced_.operand(op, i)));
    types.push_back(operands.back()->type);
  }
  const Op* made = local_op(op, operands, std::move(types));
  for (size_t i = 0; i < op.results.size(); ++i) {
    define(op.result(i), made->result(i), mover_.spec(operands[i]));
  }
}

// One core speaks for whole arrays. In the host's memory each core keeps what it has.
void Rewrite::send(const Op& op) {
  const Value* sent = op.operands[0];
  const bool memory = op.as<HostAttrs>().memory;
  const Spec spec = memory ? mover_.spec(now(sent)) : Spec(sent->type.dims.size());
  Value* part = mover_.reshard(now(sent), spec);
  mover_.region().append(op.kind, {part}, {}, local_host_attrs(op, part), op.loc);
  if (memory && !op.as<HostAttrs>().index) {
    in_host_memory_[op.as<HostAttrs>().channel] = part;
  }
}

void Rewrite::recv(const Op& op) {
  const auto& attrs = op.as<HostAttrs>();
  if (!attrs.memory) {
    define(op.result(),
           mover_.region().append(op.kind, {}, {op.type()}, op.attrs, op.loc)->result(),
           Spec(op.type().dims.size()));
    return;
  }
  const Value* kept = in_host_memory_.at(attrs.channel);
  const Op* got =
      mover_.region().append(op.kind, {}, {kept->type}, local_host_attrs(op, kept), op.loc);
  define(op.result(), got->result(), mover_.spec(kept));
}

std::vector<Axes> Rewrite::cuts(const Op& op, const FactorRule& rule) const {
  if (const auto it = settled_.find(op.results[0].get()); it != settled_.end()) {
    return project(mesh_, rule, rule.results[0], it->second);
  }
  std::vector<Voter> voters;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (!is_free(op.operands[i])) {
      const Value* v = now(op.operands[i]);
      // On ties an operand counts more than a result.
      voters.push_back({&rule.operands[i], mover_.spec(v), op.operand_type(i).bytes() + 1, false,
                        [this, v](const Spec& spec) { return mover_.lies(v, spec); }});
    }
  }
  for (size_t i = 0; i < op.results.size(); ++i) {
    voters.push_back({&rule.results[i], placements_.of(op.result(i)), op.type(i).bytes(), true});
  }
  std::vector<Axes> cuts = choose_cuts(mesh_, rule, voters);
  // What is left as terms along an axis is not cut by it. Only a contraction along it makes terms.
  for (size_t f = 0; f < cuts.size(); ++f) {
    const auto is_term = [&](int axis) {
      bool found = rule.factors[f].kind == FactorKind::kPass &&
                   std::any_of(op.results.begin(), op.results.end(), [&](const auto& result) {
                     return holds(unreduced_.of(result.get()), axis);
                   });
      for (size_t i = 0; i < op.operands.size(); ++i) {
        found = found || holds(unreduced_.operand(op, i), axis);
      }
      return found;
    };
    cuts[f].erase(std::find_if(cuts[f].begin(), cuts[f].end(), is_term), cuts[f].end());
  }
  return cuts;
}

Op* Rewrite::local_op(const Op& op, const std::vector<Value*>& operands, std::vector<Type> types) {
  std::vector<Type> operand_types;
  for (const Value* v : operands) {
    operand_types.push_back(v->type);
  }
  Attrs attrs = local_attrs(op, operand_types, types);
  Op* made = mover_.region().append(op.kind, operands, std::move(types), std::move(attrs), op.loc);
  for (const auto& inner : op.regions) {
    clone_region(*inner, *made, map_);
  }
  return made;
}

void Rewrite::compute(const Op& op) {
  const FactorRule& rule = placements_.rule(op);
  const std::vector<Axes> axes = cuts(op, rule);
  if (op.kind == Kind::kReduce && reduce_parts(op, rule, axes)) {
    return;
  }
  std::vector<Value*> operands;
  Axes terms;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    operands.push_back(mover_.reshard(
        now(op.operands[i]), lift(mesh_, rule, rule.operands[i], axes), unreduced_.operand(op, i)));
    terms = unreduced_.operand(op, i).empty() ? terms : unreduced_.operand(op, i);
  }
  std::vector<Spec> specs;
  std::vector<Type> types;
  for (size_t i = 0; i < op.results.size(); ++i) {
    specs.push_back(lift(mesh_, rule, rule.results[i], axes));
    types.push_back(local_part(mesh_, op.type(i), specs[i]));
  }
  std::optional<TablePart> table;
  if (!rule.indexed.empty()) {
    Value*& indices = operands[op.results.size()];  // of gather and scatter: behind the tables
    table.emplace(mover_, mesh_, op, rule, axes, indices);
    indices = table->indices();
  }
  Axes summed;
  for (size_t f = 0; f < axes.size(); ++f) {
    if (rule.factors[f].kind == FactorKind::kReduce) {
      append(summed, axes[f]);
    }
  }
  if (!summed.empty()) {
    std::sort(summed.begin(), summed.end());
    return compute_sum(op, std::move(operands), types[0], specs[0], std::move(summed), terms,
                       table);
  }
  const Op* made = local_op(op, operands, std::move(types));
  for (size_t i = 0; i < op.results.size(); ++i) {
    define(op.result(i), made->result(i), specs[i], terms);
  }
}

// The op on parts of what it sums over: each core has a share of the result. Shares that the
// program leaves on the cores are further terms, beside those of the operands.
void Rewrite::compute_sum(const Op& op, std::vector<Value*> operands, Type type, Spec spec,
                          Axes summed, Axes terms, std::optional<TablePart>& table) {
  const FactorRule& rule = placements_.rule(op);
  Value* once = nullptr;
  if (const auto i = combined_once(op, rule.reducer); i && !is_neutral(op.operands[*i], rule)) {
    once = operands[*i];
    operands[*i] = mover_.make(Kind::kConstant, {}, once->type,
                               ConstantAttrs{identity_of(rule.reducer, once->type)});
  }
  // Products are added up in f32, on one core and over cores.
  const bool wide =
      type.elem == Elem::kBf16 && (op.kind == Kind::kDotGeneral || op.kind == Kind::kConvolution);
  type.elem = wide ? Elem::kF32 : type.elem;
  Value* out = local_op(op, operands, {std::move(type)})->result();
  for (const int axis : unreduced_.of(op.result())) {
    if (std::erase(summed, axis) != 0) {
      terms.push_back(axis);
    }
  }
  std::sort(terms.begin(), terms.end());
  if (op.kind == Kind::kGather && terms.empty()) {
    out = gathered_bits(*table, out, std::move(summed), rule.reducer, spec,
                        placements_.of(op.result()));
  } else {
    out = op.kind == Kind::kGather ? table->own(out) : out;
    out = mover_.sum(out, std::move(summed), rule.reducer, spec, placements_.of(op.result()));
  }
  if (wide) {
    out = mover_.make(Kind::kConvert, {out}, {Elem::kBf16, out->type.dims});
  }
  if (once != nullptr) {
    out = combine(op, out, once, rule.reducer, spec, terms);
  }
  define(op.result(), out, std::move(spec), std::move(terms));
}

// What one core of the axes has and the others do not, on all of them. Floats travel as their bits,
// which a sum with zeros would not keep.
Value* Rewrite::gathered_bits(TablePart& table, Value* own, Axes axes, Kind reducer, Spec& spec,
                              const Spec& wanted) {
  const Elem elem = own->type.elem;
  if (!is_float(elem)) {
    return mover_.sum(table.own(own), std::move(axes), reducer, spec, wanted);
  }
  const Elem word = elem == Elem::kBf16 ? Elem::kU16 : Elem::kU32;
  Value* bits = mover_.make(Kind::kBitcastConvert, {own}, {word, own->type.dims});
  bits = mover_.sum(table.own(bits), std::move(axes), Kind::kOr, spec, wanted);
  return mover_.make(Kind::kBitcastConvert, {bits}, {elem, bits->type.dims});
}

// What must be combined into the result once, and not by every core.
Value* Rewrite::combine(const Op& op, Value* x, Value* once, Kind reducer, const Spec& spec,
                        const Axes& unreduced) {
  if (op.kind == Kind::kReduce) {
    once = mover_.reshard(once, {}, unreduced);
    once = mover_.make(Kind::kBroadcastInDim, {once}, x->type, DimsAttrs{});
  } else {
    once = mover_.reshard(once, spec, unreduced);
  }
  return mover_.make(reducer, {x, once}, x->type);
}

// A reduction whose body is no simple sum (argmax), along dimensions that are cut: every core
// reduces its part, and then all reduce what the others got. False where nothing is cut so.
bool Rewrite::reduce_parts(const Op& op, const FactorRule& rule, const std::vector<Axes>& axes) {
  const size_t n = op.results.size();
  const Spec& lies = mover_.spec(now(op.operands[0]));
  Spec spec = lift(mesh_, rule, rule.operands[0], axes);
  Axes parts;
  for (const int64_t dim : op.as<DimsAttrs>().dims) {
    const auto d = static_cast<size_t>(dim);
    const bool blocked =
        !rule.operands[0][d].empty() &&
        rule.factors[static_cast<size_t>(rule.operands[0][d][0])].kind == FactorKind::kBlocked;
    Spec longer = spec;
    longer[d] = lies[d];
    if (blocked && !lies[d].empty() && can_cut(mesh_, op.operand_type(0), longer)) {
      spec = std::move(longer);
      append(parts, lies[d]);
    }
  }
  if (parts.empty()) {
    return false;
  }
  std::vector<Value*> operands;
  std::vector<Type> types;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    operands.push_back(mover_.reshard(now(op.operands[i]), i < n ? spec : Spec{}));
  }
  for (size_t i = 0; i < n; ++i) {
    types.push_back(local_part(mesh_, op.type(i), lift(mesh_, rule, rule.results[i], axes)));
  }
  const Op* local = local_op(op, operands, types);
  for (size_t i = 0; i < n; ++i) {
    Type one = types[i];
    one.dims.insert(one.dims.begin(), 1);
    operands[i] = mover_.make(Kind::kReshape, {local->result(i)}, one);
    operands[i] = mover_.all_gather(operands[i], parts, 0);
  }
  Op* all = mover_.region().append(Kind::kReduce, operands, types, DimsAttrs{{0}}, op.loc);
  ValueMap map = map_;
  clone_region(*op.regions[0], *all, map);
  for (size_t i = 0; i < n; ++i) {
    define(op.result(i), all->result(i), lift(mesh_, rule, rule.results[i], axes));
  }
  return true;
}

}  // namespace tpu::compiler
