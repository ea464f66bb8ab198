// Fixed point of the simplifying passes: see simplify.hpp.
#include "passes/simplify.hpp"

#include "passes/canonicalise.hpp"
#include "passes/cse.hpp"
#include "passes/dce.hpp"
#include "passes/fold.hpp"

namespace tpu::compiler {

void simplify(Module& module) {
  constexpr int kMaxRounds = 8;  // the passes open chances for each other; two or three are usual
  for (int round = 0; round < kMaxRounds; ++round) {
    bool changed = canonicalise(module);
    changed = fold_constants(module) || changed;
    changed = merge_common_ops(module) != 0 || changed;
    changed = remove_dead_ops(module) != 0 || changed;
    if (!changed) {
      return;
    }
  }
}

}  // namespace tpu::compiler
