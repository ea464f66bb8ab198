// Type rules of the ops of the global graph: sharding constraints and jax.shard_map.
#include <algorithm>
#include <ranges>
#include <set>

#include "ir/verify_rule.hpp"

namespace tpu::compiler {

void ShardingTypeRule::sharding_constraint() const {
  check_result(in(0).dims, in(0).elem);
  check_sharding(op_.as<ShardingAttrs>(), in(0));
}

void ShardingTypeRule::check_sharding(const ShardingAttrs& a, const Type& global) const {
  const auto rank = global.dims.size();
  const auto& cut = a.sharding.dim_axes;
  check((cut.empty() || cut.size() == rank) && (a.open.empty() || a.open.size() == rank),
        "a sharding needs an entry per dimension");
  check(a.sharding.order.empty() ||
            std::ranges::is_permutation(a.sharding.order,
                                        std::views::iota(int64_t{0}, module_.mesh.size())),
        "the order of a sharding must name each core of the mesh once");
  std::vector<std::vector<int>> all = cut;
  all.push_back(a.sharding.unreduced);
  std::set<int> used;
  for (const std::vector<int>& axes : all) {
    for (const int axis : axes) {
      check(axis >= 0 && static_cast<size_t>(axis) < module_.mesh.axes.size(),
            "a sharding names an axis that the mesh lacks");
      check(used.insert(axis).second, "a sharding names an axis twice");
    }
  }
}

void ShardingTypeRule::manual_computation() const {
  const auto& a = op_.as<ManualAttrs>();
  const Region& body = *op_.regions[0];
  check(a.in.size() == op_.operands.size() && a.out.size() == op_.results.size() &&
            body.args.size() == op_.operands.size(),
        "the numbers of operands, results and shardings differ");
  const auto& returned = body.terminator()->operands;
  check(returned.size() == op_.results.size(), "the body returns another number of values");
  const auto local = [&](const Type& global, const ShardingAttrs& s) {
    check_sharding(s, global);
    Sharding manual = s.sharding;  // along other axes the body is global
    for (std::vector<int>& axes : manual.dim_axes) {
      std::erase_if(axes, [&](int axis) {
        return std::find(a.manual_axes.begin(), a.manual_axes.end(), axis) == a.manual_axes.end();
      });
    }
    return local_type(global, module_.mesh, manual, source_name(op_.kind), op_.loc);
  };
  for (size_t i = 0; i < a.in.size(); ++i) {
    check(body.args[i]->type == local(in(i), a.in[i]),
          [&] { return "operand " + std::to_string(i) + " has the wrong local shape"; });
  }
  for (size_t i = 0; i < a.out.size(); ++i) {
    check(returned[i]->type == local(out(i), a.out[i]),
          [&] { return "result " + std::to_string(i) + " has the wrong local shape"; });
  }
}

}  // namespace tpu::compiler
