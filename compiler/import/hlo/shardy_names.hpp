// What XLA calls the operations and attributes of Shardy in an HLO module
// (xla/service/spmd/shardy/constants.h). Private to the import.
#pragma once

#include <string_view>

#include "import/hlo/hlo_module.hpp"

namespace tpu::compiler::hlo::shardy {

// Targets of custom calls.
constexpr std::string_view kEnter = "xla.sdy.GlobalToLocalShape",
                           kLeave = "xla.sdy.LocalToGlobalShape",
                           kResult = "xla.sdy.FuncResultSharding", kGroup = "xla.sdy.ShardingGroup",
                           kBarrier = "xla.sdy.PropagationBarrier";
// Frontend attributes, of instructions and of the module.
constexpr std::string_view kSharding = "xla.sdy.sharding", kManualAxes = "xla.sdy.manual_axes",
                           kIn = "xla.sdy.in_shardings", kOut = "xla.sdy.out_shardings",
                           kGroupId = "xla.sdy.sharding_group_id", kMeshes = "xla.sdy.meshes",
                           kTupleArguments = "xla.sdy.tuple_args_shardings",
                           kTupleResults = "xla.sdy.tuple_results_shardings";

// The target, without the prefix that old versions of XLA have.
inline std::string_view target_of(const Instruction& at) {
  constexpr std::string_view kLocal = "local_";
  return at.target.starts_with(kLocal) ? at.target.substr(kLocal.size()) : at.target;
}

inline const std::string_view* find(const Attributes& attributes, std::string_view key) {
  for (const auto& [name, value] : attributes) {
    if (name == key) {
      return &value;
    }
  }
  return nullptr;
}

}  // namespace tpu::compiler::hlo::shardy
