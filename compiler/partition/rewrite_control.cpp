// Loops, branches and jax.shard_map for one core. See rewrite.hpp.
#include <algorithm>
#include <utility>

#include "partition/rewrite.hpp"

namespace tpu::compiler {

// Values of the regions are moved where they are made, so what is the same every time is moved
// before the loop. The op is put behind that: it goes to its region when its own are done.
void Rewrite::control(const Op& op) {
  const bool is_while = op.kind == Kind::kWhile;
  std::vector<Spec> specs;
  std::vector<Type> types;
  std::vector<Axes> unreduced;
  for (size_t i = 0; i < op.results.size(); ++i) {
    specs.push_back(placements_.of(op.result(i)));
    types.push_back(local_part(mesh_, op.type(i), specs[i]));
    unreduced.push_back(unreduced_.of(op.result(i)));
  }
  std::vector<Value*> operands;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    operands.push_back(is_while ? mover_.reshard(now(op.operands[i]), specs[i], unreduced[i])
                                : mover_.reshard(now(op.operands[i]), {}));  // a scalar
  }
  Region& to = mover_.region();
  Region holder;
  Op* made = holder.append(op.kind, std::move(operands), std::move(types), op.attrs, op.loc);
  made->parent = &to;
  for (size_t r = 0; r < op.regions.size(); ++r) {
    const bool condition = is_while && r == 0;
    region(*op.regions[r], *made, is_while ? specs : std::vector<Spec>{},
           condition ? std::vector<Spec>{Spec{}} : specs,
           condition ? std::vector<Axes>{Axes{}} : unreduced);
  }
  mover_.place(to, op);
  to.ops.push_back(std::move(holder.ops.back()));
  for (size_t i = 0; i < op.results.size(); ++i) {
    define(op.result(i), made->result(i), specs[i], unreduced[i]);
  }
}

void Rewrite::region(const Region& from, Op& to, const std::vector<Spec>& carried,
                     const std::vector<Spec>& returned, const std::vector<Axes>& unreduced) {
  Region* made = to.add_region();
  for (size_t i = 0; i < from.args.size(); ++i) {
    const Value* arg = from.args[i].get();
    define(arg, made->add_arg(local_part(mesh_, arg->type, carried[i])), carried[i],
           unreduced_.of(arg));
  }
  const Op& ret = *from.terminator();
  mover_.place(*made, ret);
  emit_region(from);
  mover_.place(*made, ret);
  std::vector<Value*> values;
  for (size_t i = 0; i < ret.operands.size(); ++i) {
    values.push_back(mover_.reshard(now(ret.operands[i]), returned[i], unreduced[i]));
  }
  made->append(Kind::kReturn, std::move(values), {}, NoAttrs{}, ret.loc);
}

// What the body leaves open is worked on in the order of the program's mesh.
void Rewrite::check_order(const Op& op) const {
  const auto& a = op.as<ManualAttrs>();
  const auto is_reordered = [](const ShardingAttrs& s) { return !s.sharding.order.empty(); };
  const bool reordered = std::any_of(a.in.begin(), a.in.end(), is_reordered) ||
                         std::any_of(a.out.begin(), a.out.end(), is_reordered);
  if (reordered && a.manual_axes.size() < mesh_.axes.size()) {
    throw Error(
        "jax.shard_map over some axes of a mesh that has the devices in another order than "
        "the first mesh of the program; use one order, or map over all axes",
        source_name(op.kind), op.loc);
  }
}

// The body stands where the op stood. Its arrays are the parts along the op's own axes; how they
// lie along the others is said of the parts, so they are values of their own (a reshape that the
// next simplification drops).
void Rewrite::manual(const Op& op) {
  const auto& a = op.as<ManualAttrs>();
  check_order(op);
  const Region& body = *op.regions[0];
  const auto outside = [](const ShardingAttrs& own, const Type& type, const Spec& inside) {
    Spec spec = spec_of(own.sharding, type);
    for (size_t d = 0; d < spec.size(); ++d) {
      append(spec[d], inside[d]);
    }
    return spec;
  };
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const Value* arg = body.args[i].get();
    const Spec& inside = placements_.of(arg);
    Value* v = mover_.reshard(now(op.operands[i]), outside(a.in[i], op.operand_type(i), inside),
                              a.in[i].sharding.unreduced);
    v = mover_.in_order(v, a.in[i].sharding.order);
    define(arg, mover_.make(Kind::kReshape, {v}, v->type), inside);
  }
  emit_region(body);
  const Op& ret = *body.terminator();
  mover_.place(mover_.region(), op);
  for (size_t i = 0; i < op.results.size(); ++i) {
    Value* v = mover_.reshard(now(ret.operands[i]), mover_.spec(now(ret.operands[i])));
    const Spec spec = outside(a.out[i], op.type(i), mover_.spec(v));
    v = mover_.from_order(v, a.out[i].sharding.order);
    define(op.result(i), mover_.make(Kind::kReshape, {v}, v->type), spec,
           a.out[i].sharding.unreduced);
  }
}

}  // namespace tpu::compiler
