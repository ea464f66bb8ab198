// Pass pipeline and its runner: see pass_manager.hpp.
#include "passes/pass_manager.hpp"

#include "ir/verify.hpp"
#include "passes/canonicalise.hpp"
#include "passes/cse.hpp"
#include "passes/dce.hpp"
#include "passes/fold.hpp"
#include "passes/inline.hpp"
#include "passes/simplify.hpp"

namespace tpu::compiler {

const std::vector<Pass>& canonical_passes() {
  static const std::vector<Pass> passes = {
      {"inline", [](Module& m) { inline_calls(m); }},
      {"dce", [](Module& m) { remove_dead_ops(m); }},
      {"canonicalise", [](Module& m) { canonicalise(m); }},
      {"fold", [](Module& m) { fold_constants(m); }},
      {"cse", [](Module& m) { merge_common_ops(m); }},
      {"simplify", simplify},
  };
  return passes;
}

void run_passes(Module& module, const std::vector<Pass>& passes, const PassOptions& options) {
  if (options.after) {
    options.after("import", module);
  }
  for (const Pass& pass : passes) {
    pass.run(module);
    module.number_ops();
    try {
      verify(module);
    } catch (const Error& e) {
      throw Error("after the pass '" + pass.name + "': " + e.message(), e.op(), e.loc());
    }
    if (options.after) {
      options.after(pass.name, module);
    }
  }
}

}  // namespace tpu::compiler
