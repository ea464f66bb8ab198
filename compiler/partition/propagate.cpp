// See propagate.hpp.
#include "partition/propagate.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace tpu::compiler {
namespace {

// Specs only grow, so that sweeps end by themselves; this bounds them for very long chains.
constexpr int kMostSweeps = 64;

constexpr int kRounds = 3;

int round_of(const Op& op) {
  switch (op.kind) {
    case Kind::kDotGeneral:
    case Kind::kConvolution:
    case Kind::kReduce:
    case Kind::kScatter:
      return 1;
    case Kind::kBroadcastInDim:
      return op.operand_type(0).count() < op.type().count() ? 2 : 0;
      TPU_CASES(SOURCE, ELEMENTWISE, CONTROL, COLLECTIVE, HOST, WHOLE, MATRIX, CALL, SIZED, GLOBAL,
                END)
    case Kind::kConcatenate:
    case Kind::kDynamicSlice:
    case Kind::kDynamicUpdateSlice:
    case Kind::kGather:
    case Kind::kPad:
    case Kind::kReshape:
    case Kind::kReverse:
    case Kind::kSlice:
    case Kind::kTranspose:
    case Kind::kWindow:
    case Kind::kOptimizationBarrier:
    case Kind::kFft:
    case Kind::kReduceWindow:
    case Kind::kSelectAndScatter:
    case Kind::kIndexedRead:
    case Kind::kIndexedWrite:
    case Kind::kIndexedCombine:
    case Kind::kSort:
    case Kind::kMap:
      return 0;
  }
  return 0;
}

// Collectives of a shard_map treat every position alike but along the dimensions that they cut and
// join. Outside of one, each core takes part with the whole array: parts of it would be joined with
// other parts.
FactorRule collective_rule(const Op& op, bool in_shard_map) {
  FactorRule rule;
  Dims own;
  if (op.kind == Kind::kAllGather || op.kind == Kind::kReduceScatter) {
    own = {op.as<CollectiveAttrs>().dim};
  } else if (op.kind == Kind::kAllToAll) {
    own = {op.as<CollectiveAttrs>().dim, op.as<CollectiveAttrs>().concat_dim};
  }
  for (size_t i = 0; i < op.operands.size(); ++i) {
    DimFactors in, out;
    for (int64_t d = 0; d < op.operand_type(i).rank(); ++d) {
      const bool blocked = !in_shard_map || std::find(own.begin(), own.end(), d) != own.end();
      const auto kind = blocked ? FactorKind::kBlocked : FactorKind::kPass;
      const auto dim = static_cast<size_t>(d);
      in.push_back({static_cast<int>(rule.factors.size())});
      rule.factors.push_back({op.operand_type(i).dims[dim], kind});
      if (blocked) {
        out.push_back({static_cast<int>(rule.factors.size())});
        rule.factors.push_back({op.type(i).dims[dim], kind});
      } else {
        out.push_back(in.back());
      }
    }
    rule.operands.push_back(std::move(in));
    rule.results.push_back(std::move(out));
  }
  return rule;
}

bool is_read(const Value* v, const Region& region) {
  bool found = false;
  walk(region, [&](const Op& op) {
    found = found || std::find(op.operands.begin(), op.operands.end(), v) != op.operands.end();
  });
  return found;
}

// Cores that have the same operands get different results.
bool differs_by_core(const Op& op) {
  if (op.kind == Kind::kReduceScatter || op.kind == Kind::kAllToAll) {
    const Groups& groups = op.as<CollectiveAttrs>().groups;
    return std::any_of(groups.begin(), groups.end(), [](const auto& g) { return g.size() > 1; });
  }
  return op.kind == Kind::kPartitionId || op.kind == Kind::kCollectivePermute;
}

}  // namespace

bool is_free(const Value* v) {
  if (v->def == nullptr) {
    return false;
  }
  switch (v->def->kind) {
    case Kind::kConstant:
    case Kind::kIota:
      return true;
    case Kind::kBroadcastInDim:
      return v->def->operand_type(0).is_scalar();
      TPU_CASES(ELEMENTWISE, CONTRACTION, BODY, CONTROL, COLLECTIVE, HOST, WHOLE, MATRIX, CALL,
                SIZED, GLOBAL, END)
    case Kind::kPartitionId:
    case Kind::kReplicaId:
    case Kind::kConcatenate:
    case Kind::kDynamicSlice:
    case Kind::kDynamicUpdateSlice:
    case Kind::kGather:
    case Kind::kPad:
    case Kind::kReshape:
    case Kind::kReverse:
    case Kind::kSlice:
    case Kind::kTranspose:
    case Kind::kWindow:
    case Kind::kOptimizationBarrier:
      return false;
  }
  return false;
}

FactorRule rule_for(const Op& op, bool in_shard_map) {
  return is_collective(op.kind) ? collective_rule(op, in_shard_map) : rule_of(op);
}

Placements::Placements(const Module& module, const UnreducedArrays& unreduced)
    : module_(module), unreduced_(unreduced) {
  number(module.main->body);
  seed_all();
  relate(module.main->body);
  relate_groups();
  propagate();
}

void Placements::number(const Region& region) {
  const auto add = [&](const Value* v) {
    number_.emplace(v, specs_.size());
    specs_.emplace_back(v->type.dims.size());
    terms_.push_back(unreduced_.of(v));
    fixed_.emplace_back(v->type.dims.size(), false);
  };
  for (const auto& arg : region.args) {
    add(arg.get());
  }
  for (const auto& op : region.ops) {
    for (const auto& result : op->results) {
      add(result.get());
    }
    for (const auto& inner : op->regions) {
      number(*inner);
    }
  }
}

// `closed`: dimensions that the program does not leave open stay as they are, even where a result
// that is an argument wants another cut. What does not divide a dimension does not cut it.
void Placements::seed(const Value* v, const ShardingAttrs& wanted, bool closed) {
  const size_t n = number_.at(v);
  if (is_whole(specs_[n])) {
    Spec spec = spec_of(wanted.sharding, v->type);
    for (size_t d = 0; d < spec.size(); ++d) {
      while (!spec[d].empty() &&
             (fixed_[n][d] || v->type.dims[d] % num_parts(module_.mesh, spec[d]) != 0)) {
        spec[d].pop_back();
      }
    }
    specs_[n] = std::move(spec);
  }
  for (size_t d = 0; closed && d < fixed_[n].size(); ++d) {
    fixed_[n][d] = d >= wanted.open.size() || !wanted.open[d];
  }
}

void Placements::seed_all() {
  const Function& main = *module_.main;
  for (size_t i = 0; i < main.args.size(); ++i) {
    if (main.args[i].wanted) {
      seed(main.body.args[i].get(), *main.args[i].wanted, true);
    }
  }
  seed_region(main.body);
  const Op* ret = main.body.terminator();
  for (size_t i = 0; i < main.results.size(); ++i) {
    if (main.results[i].wanted) {
      seed(ret->operands[i], *main.results[i].wanted, false);
    }
  }
  for (size_t i = 0; i < main.args.size(); ++i) {
    const int r = main.args[i].alias_result;
    if (r >= 0 && main.args[i].wanted && !main.results[static_cast<size_t>(r)].wanted) {
      seed(ret->operands[static_cast<size_t>(r)], *main.args[i].wanted, false);
    }
  }
}

void Placements::seed_region(const Region& region) {
  walk(region, [&](const Op& op) {
    if (op.kind == Kind::kShardingConstraint || op.kind == Kind::kReshard) {
      seed(op.result(), op.as<ShardingAttrs>(), true);
    }
  });
}

void Placements::add_tensor(Relation& relation, const Value* v, const DimFactors& dims,
                            const Spec* within) {
  if (!v->type.is_scalar() && !is_free(v)) {
    relation.tensors.push_back({number_.at(v), &dims, within});
  }
}

void Placements::relate_same(const std::vector<const Value*>& values) {
  same_.push_back(std::make_unique<FactorRule>(same_rule(values[0]->type, values.size())));
  Relation relation{same_.back().get(), {}, {}, 0};
  for (size_t i = 0; i < values.size(); ++i) {
    add_tensor(relation, values[i], same_.back()->operands[i]);
  }
  if (relation.tensors.size() > 1) {
    relations_.push_back(std::move(relation));
  }
}

void Placements::relate_manual(const Op& op) {
  const auto& a = op.as<ManualAttrs>();
  const auto tie = [&](const Value* outside, const ShardingAttrs& sharding, const Value* inside) {
    if (inside->type.is_scalar()) {
      return;
    }
    same_.push_back(std::make_unique<FactorRule>(same_rule(inside->type, 2)));
    FactorRule& rule = *same_.back();
    Relation relation{&rule, {}, a.manual_axes, 0};
    add_tensor(relation, inside, rule.operands[0]);
    add_tensor(relation, outside, rule.operands[1], &sharding.sharding.dim_axes);
    relations_.push_back(std::move(relation));
  };
  for (size_t i = 0; i < op.operands.size(); ++i) {
    tie(op.operands[i], a.in[i], op.regions[0]->args[i].get());
  }
  // Arrays of a body lie otherwise than those outside.
  const auto outside = std::exchange(groups_, {});
  const bool in_shard_map = std::exchange(in_shard_map_, true);
  relate(*op.regions[0]);
  in_shard_map_ = in_shard_map;
  relate_groups();
  groups_ = outside;
  for (size_t i = 0; i < op.results.size(); ++i) {
    tie(op.result(i), a.out[i], op.regions[0]->terminator()->operands[i]);
  }
}

void Placements::relate_groups() {
  for (const auto& [group, arrays] : groups_) {
    relate_same(arrays);
  }
}

void Placements::relate_op(const Op& op) {
  if (!in_shard_map_ && differs_by_core(op) && is_read(op.result(), module_.main->body)) {
    throw Error(
        "this op gives each core another value, which no array of all devices can have; use it in "
        "jax.shard_map, or between xs.enable_manual_sharding and xs.disable_manual_sharding",
        source_name(op.kind), op.loc);
  }
  const FactorRule& rule = rules_.emplace(&op, rule_for(op, in_shard_map_)).first->second;
  Relation relation{&rule, {}, {}, round_of(op)};
  for (size_t i = 0; i < op.operands.size(); ++i) {
    add_tensor(relation, op.operands[i], rule.operands[i]);
  }
  for (size_t i = 0; i < op.results.size(); ++i) {
    add_tensor(relation, op.result(i), rule.results[i]);
  }
  if (relation.tensors.size() > 1) {
    relations_.push_back(std::move(relation));
  }
}

void Placements::relate(const Region& region) {
  for (const auto& op : region.ops) {
    if (op->kind == Kind::kOptimizationBarrier) {
      for (size_t i = 0; i < op->results.size(); ++i) {
        relate_same({op->operands[i], op->result(i)});
      }
      continue;
    }
    switch (op->kind) {
      case Kind::kReturn:
        break;
      case Kind::kSend:
        if (const auto& host = op->as<HostAttrs>(); host.memory && !host.index) {
          in_host_memory_[host.channel] = op->operands[0];
        }
        break;
      case Kind::kRecv:
        if (const auto& host = op->as<HostAttrs>(); host.memory) {
          relate_same({in_host_memory_.at(host.channel), op->result()});
        }
        break;
      case Kind::kShardingConstraint:
      case Kind::kReshard:
        relate_same({op->operands[0], op->result()});
        if (const auto group = op->as<ShardingAttrs>().group) {
          groups_[*group].push_back(op->result());
        }
        break;
      case Kind::kManualComputation:
        relate_manual(*op);
        break;
      case Kind::kWhile:
        for (const auto& inner : op->regions) {
          relate(*inner);
        }
        for (size_t i = 0; i < op->results.size(); ++i) {
          relate_same({op->operands[i], op->regions[0]->args[i].get(),
                       op->regions[1]->args[i].get(), op->regions[1]->terminator()->operands[i],
                       op->result(i)});
        }
        break;
      case Kind::kIf:
      case Kind::kCase:
        for (const auto& inner : op->regions) {
          relate(*inner);
        }
        for (size_t i = 0; i < op->results.size(); ++i) {
          std::vector<const Value*> same{op->result(i)};
          for (const auto& inner : op->regions) {
            same.push_back(inner->terminator()->operands[i]);
          }
          relate_same(same);
        }
        break;
        TPU_CASES(SOURCE, ELEMENTWISE, SHAPE, CONTRACTION, BODY, COLLECTIVE, WHOLE, MATRIX, CALL,
                  SIZED)
        if (op->results.size() != 1 || !is_free(op->result())) {
          relate_op(*op);
        }
    }
  }
}

void Placements::propagate() {
  for (int round = 0; round < kRounds; ++round) {
    bool changed = true;
    for (int sweep = 0; changed && sweep < kMostSweeps; ++sweep) {
      changed = false;
      for (const Relation& r : relations_) {
        changed = (r.round <= round && spread(r)) || changed;
      }
      for (auto r = relations_.rbegin(); r != relations_.rend(); ++r) {
        changed = (r->round <= round && spread(*r)) || changed;
      }
    }
  }
}

// By which axes a tensor cuts each factor. Of an array outside of a shard_map only what stands
// behind its axes, and no other axis that is the body's own.
std::vector<Axes> Placements::cuts(const Relation& relation, const Tensor& tensor) const {
  Spec spec = specs_[tensor.value];
  for (size_t d = 0; tensor.within != nullptr && d < spec.size(); ++d) {
    const Axes& first = d < tensor.within->size() ? (*tensor.within)[d] : Axes{};
    spec[d] = is_prefix(first, spec[d]) ? tail(spec[d], first.size()) : Axes{};
    const auto own = std::find_if(spec[d].begin(), spec[d].end(),
                                  [&](int axis) { return holds(relation.manual, axis); });
    spec[d].erase(own, spec[d].end());
  }
  return project(module_.mesh, *relation.rule, *tensor.dims, spec);
}

// Of each factor the longest list of axes that all others begin; none where they clash.
std::vector<Axes> Placements::agreed(const Relation& relation,
                                     const std::vector<std::vector<Axes>>& own) const {
  std::vector<Axes> best(relation.rule->factors.size());
  for (size_t f = 0; f < best.size(); ++f) {
    if (relation.rule->factors[f].kind == FactorKind::kBlocked) {
      continue;
    }
    for (const auto& tensor : own) {
      best[f] = tensor[f].size() > best[f].size() ? tensor[f] : best[f];
    }
    if (!std::all_of(own.begin(), own.end(),
                     [&](const auto& tensor) { return is_prefix(tensor[f], best[f]); })) {
      best[f].clear();
    }
  }
  return best;
}

bool Placements::extend(const Relation& relation, const Tensor& tensor, std::vector<Axes> own,
                        const std::vector<Axes>& best) {
  Spec& old = specs_[tensor.value];
  Axes used = all_axes(old);
  append(used, terms_[tensor.value]);
  for (size_t d = 0; tensor.within != nullptr && d < tensor.within->size(); ++d) {
    append(used, (*tensor.within)[d]);
  }
  std::set<int> factors;
  for (const auto& dim : *tensor.dims) {
    factors.insert(dim.begin(), dim.end());
  }
  for (const int factor : factors) {
    const auto f = static_cast<size_t>(factor);
    if (!is_prefix(own[f], best[f])) {
      continue;
    }
    for (size_t k = own[f].size(); k < best[f].size() && !holds(used, best[f][k]); ++k) {
      own[f].push_back(best[f][k]);
      used.push_back(best[f][k]);
    }
  }
  const Spec lifted = lift(module_.mesh, *relation.rule, *tensor.dims, own);
  bool changed = false;
  for (size_t d = 0; d < old.size(); ++d) {
    Axes want =
        tensor.within != nullptr && d < tensor.within->size() ? (*tensor.within)[d] : Axes{};
    append(want, lifted[d]);
    if (!fixed_[tensor.value][d] && want.size() > old[d].size() && is_prefix(old[d], want) &&
        is_disjoint(tail(want, old[d].size()), all_axes(old))) {
      old[d] = std::move(want);
      changed = true;
    }
  }
  return changed;
}

bool Placements::spread(const Relation& relation) {
  std::vector<std::vector<Axes>> own;
  for (const Tensor& tensor : relation.tensors) {
    own.push_back(cuts(relation, tensor));
  }
  const std::vector<Axes> best = agreed(relation, own);
  bool changed = false;
  for (size_t i = 0; i < own.size(); ++i) {
    changed = extend(relation, relation.tensors[i], own[i], best) || changed;
  }
  return changed;
}

}  // namespace tpu::compiler
