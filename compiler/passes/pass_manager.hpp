// Passes over the graph: what the manager (pass/pass_manager.hpp) does with a module.
#pragma once

#include "ir/graph.hpp"
#include "pass/pass_manager.hpp"

namespace tpu::compiler {

using Pass = PassOf<Module>;
using GraphPasses = PassList<Module>;
// `after` is called with the name "import" too, before the first pass.
using PassOptions = PassHooks<Module>;

template <>
struct PassSubject<Module> {
  static constexpr std::string_view kUnit = "ops";
  static constexpr std::string_view kPass = "pass";
  static int64_t size(const Module& module);
  static int64_t number(Module& module);
  static void verify(const Module& module);
};

void run_passes(Module& module, const GraphPasses& passes, const PassOptions& options = {});

}  // namespace tpu::compiler
