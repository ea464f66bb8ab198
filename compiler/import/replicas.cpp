// See replicas.hpp.
//   main(x: f32[4])                        main(X: f32[2,4])      dimension 0 cut by "replica"
//     y = all_reduce x over replicas   =>    Y = manual_computation X {
//     return y                                (p: f32[1,4]) { x = reshape p; ..; reshape y }
//                                            }
// Along the axes of partitions the body stays global, so that their shardings are spread within
// it. Without a mesh the partitions are manual too: every core works on what it is given.
#include "import/replicas.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "import/atoms.hpp"

namespace tpu::compiler::frontend {
namespace {

std::vector<MeshAxis> axes_of(const std::string& name, int64_t size) {
  MeshAtoms atoms;
  atoms.adopt({"", {{name, size}}, {}});
  return atoms.mesh().axes;
}

Dims with_front(int64_t n, const Dims& dims) {
  Dims out{n};
  out.insert(out.end(), dims.begin(), dims.end());
  return out;
}

class Replicas {
 public:
  Replicas(Module& module, const CoreCounts& cores, const std::vector<bool>& same)
      : module_(module), cores_(cores) {
    if (cores.partitions == 1) {
      same_ = same;
    }
    same_.resize(module.main->args.size());
    same_results_ = results_that_are_same();
  }

  void run() {
    const bool has_mesh = !module_.mesh.axes.empty();
    add_axes();
    own_.resize(replica_axes_);
    std::iota(own_.begin(), own_.end(), 0);
    manual_.resize(has_mesh ? replica_axes_ : module_.mesh.axes.size());
    std::iota(manual_.begin(), manual_.end(), 0);
    shift(module_.main->body);
    for (const auto& f : module_.functions) {
      shift(f->body);
    }
    wrap_main();
  }

 private:
  void add_axes() {
    Mesh& mesh = module_.mesh;
    std::vector<MeshAxis> axes = axes_of("replica", cores_.replicas);
    replica_axes_ = axes.size();
    const std::vector<MeshAxis> inner =
        mesh.axes.empty() ? axes_of("partition", cores_.partitions) : std::move(mesh.axes);
    axes.insert(axes.end(), inner.begin(), inner.end());
    mesh.axes = std::move(axes);
    mesh.device_ids = for_all(mesh.device_ids);
  }

  // An order of the cores of one replica, for all of them.
  std::vector<int64_t> for_all(const std::vector<int64_t>& order) const {
    std::vector<int64_t> all;
    for (int64_t replica = 0; !order.empty() && replica < cores_.replicas; ++replica) {
      for (const int64_t core : order) {
        all.push_back(replica * cores_.partitions + core);
      }
    }
    return all;
  }

  void shift(std::vector<int>& axes) const {
    for (int& axis : axes) {
      axis += static_cast<int>(replica_axes_);
    }
  }

  void shift(ShardingAttrs& attrs) const {
    for (std::vector<int>& axes : attrs.sharding.dim_axes) {
      shift(axes);
    }
    shift(attrs.sharding.unreduced);
    attrs.sharding.order = for_all(attrs.sharding.order);
  }

  void shift(Region& region) const {
    walk(region, [&](Op& op) {
      if (auto* sharding = std::get_if<ShardingAttrs>(&op.attrs)) {
        shift(*sharding);
      } else if (auto* manual = std::get_if<ManualAttrs>(&op.attrs)) {
        std::for_each(manual->in.begin(), manual->in.end(), [&](auto& s) { shift(s); });
        std::for_each(manual->out.begin(), manual->out.end(), [&](auto& s) { shift(s); });
        shift(manual->manual_axes);
        manual->manual_axes.insert(manual->manual_axes.begin(), own_.begin(), own_.end());
      }
    });
  }

  // Of an array of one replica, for those of all. What the program does not say stays open.
  void widen(std::optional<ShardingAttrs>& wanted, Type& global, Dims& layout) const {
    const size_t rank = global.dims.size();
    if (!layout.empty()) {
      std::for_each(layout.begin(), layout.end(), [](int64_t& dim) { ++dim; });
      layout.insert(layout.begin(), 0);
    }
    if (wanted) {
      shift(*wanted);
    } else {
      wanted.emplace();
      wanted->open.assign(rank, true);
    }
    wanted->sharding.dim_axes.resize(rank);
    wanted->sharding.dim_axes.insert(wanted->sharding.dim_axes.begin(), own_);
    if (!wanted->open.empty()) {
      wanted->open.insert(wanted->open.begin(), false);
    }
    global.dims = with_front(cores_.replicas, global.dims);
  }

  // They take the memory of arguments that are.
  std::vector<bool> results_that_are_same() const {
    const Function& main = *module_.main;
    std::vector<bool> same(main.results.size());
    for (size_t i = 0; i < main.args.size(); ++i) {
      const auto result = static_cast<size_t>(main.args[i].alias_result);
      if (same_[i] && main.args[i].alias_result >= 0 && result < same.size() &&
          main.results[result].global == main.args[i].global) {
        same[result] = true;
      }
    }
    return same;
  }

  // The array of an argument or result for all replicas, and how the body takes or gives it.
  template <typename Info>
  ShardingAttrs placed(Info& info, bool same) const {
    ShardingAttrs attrs;
    if (same) {
      attrs.sharding.dim_axes.resize(info.global.dims.size());
      info.wanted = attrs;
      return attrs;
    }
    widen(info.wanted, info.global, info.layout);
    attrs.sharding.dim_axes.resize(info.global.dims.size());
    attrs.sharding.dim_axes[0] = own_;
    return attrs;
  }

  void wrap_main() {
    Function& main = *module_.main;
    Region old;
    old.ops.swap(main.body.ops);
    old.args.swap(main.body.args);
    ManualAttrs attrs;
    attrs.manual_axes = manual_;
    std::vector<Value*> operands;
    for (size_t i = 0; i < main.args.size(); ++i) {
      attrs.in.push_back(placed(main.args[i], same_[i]));
      operands.push_back(main.body.add_arg(main.args[i].global));
    }
    std::vector<Type> types;
    for (size_t i = 0; i < main.results.size(); ++i) {
      attrs.out.push_back(placed(main.results[i], same_results_[i]));
      types.push_back(main.results[i].global);
    }
    Op* all = main.body.append(Kind::kManualComputation, operands, types, attrs, main.loc);
    fill(*all->add_region(), old);
    std::vector<Value*> results;
    for (const auto& result : all->results) {
      results.push_back(result.get());
    }
    main.body.append(Kind::kReturn, results, {}, NoAttrs{}, main.loc);
  }

  // The body of one replica, between reshapes that take the dimension of replicas away and back.
  void fill(Region& body, Region& old) const {
    ValueMap same;
    for (size_t i = 0; i < old.args.size(); ++i) {
      const auto& arg = old.args[i];
      if (same_[i]) {
        same[arg.get()] = body.add_arg(arg->type);
        continue;
      }
      Value* part = body.add_arg({arg->type.elem, with_front(1, arg->type.dims)});
      same[arg.get()] =
          body.append(Kind::kReshape, {part}, {arg->type}, NoAttrs{}, old.ops.back()->loc)
              ->result();
    }
    replace_all_uses(old, same);
    std::unique_ptr<Op> ret = std::move(old.ops.back());
    old.ops.pop_back();
    for (auto& op : old.ops) {
      op->parent = &body;
      body.ops.push_back(std::move(op));
    }
    old.ops.clear();
    for (size_t i = 0; i < ret->operands.size(); ++i) {
      Value*& v = ret->operands[i];
      if (same_results_[i]) {
        continue;
      }
      v = body.append(Kind::kReshape, {v}, {{v->type.elem, with_front(1, v->type.dims)}}, NoAttrs{},
                      ret->loc)
              ->result();
    }
    ret->parent = &body;
    body.ops.push_back(std::move(ret));
  }

  Module& module_;
  const CoreCounts& cores_;
  size_t replica_axes_ = 0;
  std::vector<bool> same_, same_results_;  // by argument, by result: the same on all replicas
  std::vector<int> own_;                   // the axes of replicas
  std::vector<int> manual_;                // of the body
};

}  // namespace

void add_replicas(Module& module, const CoreCounts& cores, const std::vector<bool>& same) {
  Replicas(module, cores, same).run();
}

}  // namespace tpu::compiler::frontend
