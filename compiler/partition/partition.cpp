// See partition.hpp: propagate.cpp says where arrays should lie, rewrite.cpp makes it so.
#include "partition/partition.hpp"

#include "partition/donations.hpp"
#include "partition/propagate.hpp"
#include "partition/rewrite.hpp"

namespace tpu::compiler {

void partition(Module& module) {
  if (!module.global) {
    return;
  }
  {
    const Placements placements(module);
    Rewrite(module, placements).run();
  }
  assign_donations(*module.main);
  module.global = false;
}

}  // namespace tpu::compiler
