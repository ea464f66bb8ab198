// Public entry of the back half: an optimised graph to an executable for one board.
#pragma once

#include <functional>
#include <string>

#include "codegen/listing.hpp"
#include "ir/graph.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

struct CodegenOptions {
  // Called with "kernels" (text of the fused kernels) and "listing" (text of the commands).
  std::function<void(const std::string& stage, const std::string& text)> dump;
};

// Throws Error: an op or type that has no lowering (with its source line), memory that does not
// suffice (with the largest buffers). `module` must be inlined; it is not changed.
exe::ExecutableT compile_graph(const Module& module, const spec::BoardParams& board,
                               const CodegenOptions& options = {});

}  // namespace tpu::compiler
