// Runner of passes: see pass_manager.hpp.
#include "passes/pass_manager.hpp"

#include "ir/verify.hpp"

namespace tpu::compiler {

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
