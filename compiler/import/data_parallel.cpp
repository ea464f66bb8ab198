// See data_parallel.hpp.
#include "import/data_parallel.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "import/atoms.hpp"

namespace tpu::compiler {
namespace {

std::string argument_text(const Function& main, size_t argument) {
  const std::string& name = main.args[argument].name;
  return "argument " + std::to_string(argument) + (name.empty() ? "" : " ('" + name + "')") + ", " +
         to_string(main.args[argument].global);
}

// What a body of jax.shard_map says of itself is not true of a part of it.
void check_says_nothing_of_cores(const Module& module) {
  if (module.num_cores > 1) {
    throw Error("the program is one of " + std::to_string(module.num_cores) +
                " cores already; export it without a mesh to shard a batch over cores");
  }
  const auto check = [](const Op& op) {
    if (op.kind == Kind::kManualComputation || is_collective(op.kind)) {
      throw Error(
          "the program specifies what each core does; export it without a mesh and "
          "jax.shard_map to shard a batch over cores",
          std::string(kind_name(op.kind)), op.loc);
    }
  };
  walk(module.main->body, check);
  for (const auto& function : module.functions) {
    walk(function->body, check);
  }
}

void check_argument(const Function& main, size_t argument, int64_t cores) {
  if (argument >= main.args.size()) {
    throw Error("cannot shard argument " + std::to_string(argument) + ": the program has " +
                std::to_string(main.args.size()) + " arguments, numbered from 0");
  }
  const Dims& dims = main.args[argument].global.dims;
  if (dims.empty() || dims[0] % cores != 0) {
    throw Error(argument_text(main, argument) + ": " +
                (dims.empty() ? "a scalar has no dimension to shard"
                              : "dimension 0 cannot be sharded into " + std::to_string(cores) +
                                    " equal parts, one for each core"));
  }
}

// One device speaks for whole arrays, as JAX has it.
void let_first_core_speak(Module& module) {
  const auto speak = [](Op& op) {
    if (auto* host = std::get_if<HostAttrs>(&op.attrs)) {
      host->partition = 0;
    }
  };
  walk(module.main->body, speak);
  for (const auto& function : module.functions) {
    walk(function->body, speak);
  }
}

}  // namespace

void cut_batch(Module& module, const std::vector<size_t>& arguments, int64_t cores) {
  check_says_nothing_of_cores(module);
  Function& main = *module.main;
  for (const size_t argument : arguments) {
    check_argument(main, argument, cores);
  }
  if (cores == 1) {
    return;
  }
  frontend::MeshAtoms atoms;
  atoms.adopt({"mesh", {{"data", cores}}, {}});
  module.mesh = atoms.mesh();
  module.num_cores = cores;
  std::vector<int> all(module.mesh.axes.size());
  for (size_t axis = 0; axis < all.size(); ++axis) {
    all[axis] = static_cast<int>(axis);
  }
  std::set<int64_t> batches;
  for (ArgInfo& argument : main.args) {
    argument.wanted = ShardingAttrs{};
  }
  for (const size_t argument : arguments) {
    const Dims& dims = main.args[argument].global.dims;
    Sharding& sharding = main.args[argument].wanted->sharding;
    sharding.dim_axes.assign(dims.size(), {});
    sharding.dim_axes[0] = all;
    batches.insert(dims[0]);
  }
  for (ResultInfo& result : main.results) {
    if (result.global.dims.empty() || !batches.contains(result.global.dims[0])) {
      result.wanted = ShardingAttrs{};
    }
  }
  let_first_core_speak(module);
}

}  // namespace tpu::compiler
