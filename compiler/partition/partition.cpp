// See partition.hpp: propagate.cpp says where arrays should lie, rewrite.cpp makes it so, sums.cpp
// leaves no sum too many.
#include "partition/partition.hpp"

#include "partition/donations.hpp"
#include "partition/propagate.hpp"
#include "partition/rewrite.hpp"
#include "partition/sums.hpp"
#include "passes/dce.hpp"

namespace tpu::compiler {
namespace {

MoveLog rewritten(Module& module) {
  const UnreducedArrays unreduced(module);
  const Placements placements(module, unreduced);
  return Rewrite(module, placements, unreduced).run();
}

}  // namespace

void partition(Module& module) {
  if (!module.global) {
    return;
  }
  MoveLog log = rewritten(module);
  remove_dead_ops(module);
  merge_sums(module, log);
  remove_dead_ops(module);
  walk(module.main->body, [&](const Op& op) {
    const auto it = log.find(&op);
    if (is_collective(op.kind) && it != log.end()) {
      module.moved.push_back(it->second);
    }
  });
  assign_donations(*module.main);
  module.global = false;
}

}  // namespace tpu::compiler
