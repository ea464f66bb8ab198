// Runs passes over a module with the verifier behind each, and shows the graph after named ones.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace tpu::compiler {

struct Pass {
  std::string name;
  std::function<void(Module&)> run;
};

struct PassOptions {
  // Called after every pass and, with the name "import", before the first. May be empty.
  std::function<void(const std::string& pass, const Module&)> after;
};

// Throws compiler::Error; an error of the verifier names the pass.
void run_passes(Module& module, const std::vector<Pass>& passes, const PassOptions& options = {});

}  // namespace tpu::compiler
