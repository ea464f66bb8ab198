// jax.shard_map (sdy.manual_computation): its body joins the program of one core. Ops around it run
// on every core, on replicated values only; functions that contain one are expanded where they are
// called. See normaliser.hpp.
#include "import/normaliser.hpp"

namespace tpu::compiler::frontend {

using bytecode::Dialect;

bool Normaliser::contains_manual(const RawOp& op) {
  const auto known = has_manual_.emplace(&op, false);  // false also ends recursive calls
  if (!known.second) {
    return known.first->second;
  }
  bool found = false;
  for (const RawRegion& region : op.regions) {
    for (const RawOp& inner : region.ops) {
      const RawOp* callee = called_function(inner);
      found = found || (inner.dialect == Dialect::kSdy && inner.name == "manual_computation") ||
              (callee != nullptr && contains_manual(*callee)) || contains_manual(inner);
    }
  }
  has_manual_[&op] = found;
  return found;
}

const RawOp* Normaliser::called_function(const RawOp& op) const {
  if (op.dialect != Dialect::kVhlo || base_name(op.name) != "call") {
    return nullptr;
  }
  for (const auto& [key, value] : op.properties) {
    if (key == "callee") {
      const auto it = functions_.find(std::string(tables_.text(value).value_or("")));
      return it == functions_.end() ? nullptr : it->second;
    }
  }
  return nullptr;
}

void Normaliser::identity(const OpReader& reader) {
  const RawOp& op = reader.raw();
  if (op.operands.size() != op.results.size()) {
    reader.fail("a cast must have as many results as operands");
  }
  for (size_t i = 0; i < op.results.size(); ++i) {
    values_[op.results[i]] = operand(reader, i);
    if (at_top_) {
      layouts_[op.results[i]] = layouts_[op.operands[i]];
      alias_[op.results[i]] = root(op.operands[i]);
    }
  }
}

void Normaliser::convert_sdy(const OpReader& reader, Region& to) {
  const RawOp& op = reader.raw();
  if (op.name == "return") {
    to.append(Kind::kReturn, operands(reader), {}, NoAttrs{}, reader.loc());
  } else if (op.name == "manual_computation" && at_top_) {
    manual_computation(reader, to);
  } else if ((op.name == "sharding_constraint" || op.name == "reshard") &&
             op.operands.size() == 1) {
    if (cores_.num_cores > 1) {
      const size_t rank = operand(reader, 0)->type.dims.size();
      const Sharding s = shardings_.tensor(reader, reader.property("sharding"), rank);
      if (!s.is_replicated()) {
        reader.fail("automatic partitioning is not supported; use jax.shard_map");
      }
      require_whole(reader);
    }
    identity(reader);
  } else if (op.name == "manual_computation") {
    reader.fail(kShardMapInControl);
  } else {
    reader.fail("this op is not supported");
  }
}

// A constraint to whole dimensions: nothing gathers an array that is cut along one of them.
void Normaliser::require_whole(const OpReader& reader) {
  if (!at_top_) {
    return;
  }
  const uint32_t sharding = reader.property("sharding");
  Layout& l = layout(reader.raw().operands[0]);
  for (size_t d = 0; d < l.global.dims.size(); ++d) {
    if (!shardings_.is_closed(sharding, d)) {
      continue;
    }
    l.decided = true;
    if (d < l.sharding.dim_axes.size() && !l.sharding.dim_axes[d].empty()) {
      reader.fail("dimension " + std::to_string(d) +
                  " of a sharded array is wanted whole on every core, which is not supported "
                  "outside of jax.shard_map; gather it inside with jax.lax.all_gather and give it "
                  "out_specs without an axis there");
    }
  }
}

void Normaliser::manual_computation(const OpReader& reader, Region& to) {
  const RawOp& op = reader.raw();
  const RawRegion& body = body_of(op, reader);
  const auto in = shardings_.per_value(reader, "in_shardings");
  const auto out = shardings_.per_value(reader, "out_shardings");
  if (in.size() != op.operands.size() || body.args.size() != op.operands.size() ||
      out.size() != op.results.size()) {
    reader.fail("the numbers of operands, results and shardings differ");
  }
  for (size_t i = 0; i < op.operands.size(); ++i) {
    Value* v = operand(reader, i);
    Layout& l = layout(op.operands[i]);
    const Sharding s = shardings_.tensor(reader, in[i], l.global.dims.size());
    if (!l.decided) {
      l.decided = true;
      l.sharding = s;
    } else if (l.sharding.dim_axes != s.dim_axes) {
      reader.fail(
          "operand " + std::to_string(i) +
          " arrives in another sharding than in_specs says; pass it as an argument of the whole "
          "program, or compute it inside");
    }
    if (reader.type(body.args[i].type) != local_type(reader, l.global, shardings_.mesh(), s)) {
      reader.fail("operand " + std::to_string(i) + " has the wrong local shape");
    }
    if (l.argument >= 0) {
      v->type = reader.type(body.args[i].type);
    }
    values_[body.args[i].value] = v;
  }
  shardings_.check_manual_axes(reader);
  const LocRef saved = outer_loc_;
  at_top_ = false;
  outer_loc_ = reader.loc();
  Region inner;
  convert_ops(body, inner);
  outer_loc_ = saved;
  at_top_ = true;
  const std::vector<Value*> returned = inner.terminator()->operands;
  inner.ops.pop_back();
  for (auto& moved : inner.ops) {
    moved->parent = &to;
    to.ops.push_back(std::move(moved));
  }
  if (returned.size() != op.results.size()) {
    reader.fail("the body returns another number of values");
  }
  for (size_t i = 0; i < op.results.size(); ++i) {
    Layout& l = layouts_[op.results[i]];
    l.global = reader.type(op.result_types[i]);
    l.sharding = shardings_.tensor(reader, out[i], l.global.dims.size());
    l.decided = true;
    if (returned[i]->type != local_type(reader, l.global, shardings_.mesh(), l.sharding)) {
      reader.fail("result " + std::to_string(i) + " has the wrong local shape");
    }
    values_[op.results[i]] = returned[i];
  }
}

void Normaliser::expand_call(const OpReader& reader, Region& to) {
  const RawOp& op = reader.raw();
  const RawOp& callee = *called_function(op);
  const RawRegion& body = body_of(callee, reader);
  if (++call_depth_ > kMaxCallDepth || body.args.size() != op.operands.size()) {
    reader.fail("a call that cannot be expanded");
  }
  for (size_t i = 0; i < op.operands.size(); ++i) {
    values_[body.args[i].value] = operand(reader, i);
    layouts_[body.args[i].value] = layout(op.operands[i]);
    alias_[body.args[i].value] = root(op.operands[i]);
  }
  const LocRef saved = outer_loc_;
  outer_loc_ = reader.loc();
  Region inner;
  convert_ops(body, inner);
  outer_loc_ = saved;
  --call_depth_;
  inner.ops.pop_back();
  for (auto& moved : inner.ops) {
    moved->parent = &to;
    to.ops.push_back(std::move(moved));
  }
  const RawOp& ret = body.ops.back();
  if (ret.operands.size() != op.results.size()) {
    reader.fail("the callee returns another number of values");
  }
  for (size_t i = 0; i < op.results.size(); ++i) {
    values_[op.results[i]] = values_[ret.operands[i]];
    layouts_[op.results[i]] = layout(ret.operands[i]);
    alias_[op.results[i]] = root(ret.operands[i]);
  }
}

void Normaliser::require_replicated(const OpReader& reader) {
  for (size_t i = 0; i < reader.raw().operands.size(); ++i) {
    Layout& l = layout(reader.raw().operands[i]);
    l.decided = true;
    if (!l.sharding.is_replicated()) {
      reader.fail("an op outside of jax.shard_map works on a sharded array (operand " +
                  std::to_string(i) +
                  "); automatic partitioning is not supported, move the op inside");
    }
  }
}

void Normaliser::require_captured_replicated(const OpReader& reader, const RawRegion& region,
                                             int depth) {
  for (const RawOp& op : region.ops) {
    for (const uint32_t v : op.operands) {
      Layout& l = layout(v);
      l.decided = true;
      if (!l.sharding.is_replicated()) {
        reader.fail("an op outside of jax.shard_map works on a sharded array; move it inside");
      }
    }
    for (const RawRegion& inner : op.regions) {
      require_captured_replicated(reader, inner, depth + 1);
    }
  }
}

}  // namespace tpu::compiler::frontend
