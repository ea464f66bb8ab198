// See pass_manager.hpp.
#include "passes/pass_manager.hpp"

#include "ir/verify.hpp"

namespace tpu::compiler {

int64_t PassSubject<Module>::size(const Module& module) {
  int64_t ops = 0;
  const auto count = [&ops](const Op&) { ++ops; };
  walk(module.main->body, count);
  for (const auto& f : module.functions) {
    walk(f->body, count);
  }
  return ops;
}

int64_t PassSubject<Module>::number(Module& module) {
  const auto first = module.next_id;
  module.number_ops();
  return static_cast<int64_t>(module.next_id - first);
}

void PassSubject<Module>::verify(const Module& module) { tpu::compiler::verify(module); }

void run_passes(Module& module, const GraphPasses& passes, const PassOptions& options) {
  if (options.after) {
    options.after("import", module);
  }
  run_pass_list(module, passes, options);
}

}  // namespace tpu::compiler
