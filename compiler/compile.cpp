// Import, passes and code generation in a row: see compile.hpp.
#include "compile.hpp"

#include <utility>

#include "codegen.hpp"
#include "import/import.hpp"
#include "kernel/kernel_passes.hpp"
#include "pipeline.hpp"

namespace tpu::compiler {

namespace {

std::vector<std::string> why_unsharded(const exe::ExecutableT& e, const spec::BoardParams& board) {
  if (e.partitions == 1) {
    return {"the program runs on one core"};
  }
  if (e.notes.empty()) {
    return {"no array that is summed over the cores (jax.lax.psum) has " +
            std::to_string(exchange_piece_bytes(board)) + " bytes or more"};
  }
  return e.notes;
}

}  // namespace

std::vector<std::string> stages() {
  std::vector<std::string> names = {"import"};
  for (const Pass& pass : compile_passes()) {
    names.push_back(pass.name);
  }
  for (const KernelPass& pass : kernel_passes()) {
    names.push_back(pass.name);
  }
  names.insert(names.end(), {"kernels", "memory", "listing"});
  return names;
}

Compiled compile(Module module, const spec::BoardParams& board, const CompileOptions& options) {
  PassOptions passes;
  passes.after = [&](const std::string& pass, const Module& m) {
    if (wants_dump(options, pass)) {
      options.dump(pass, print(m, true));
    }
  };
  run_passes(module, compile_passes(), passes);
  Compiled out;
  out.executable = generate(module, board, options);
  out.report.graph = std::move(module);
  if (options.update_sharding == UpdateSharding::kOn && out.executable.sharded_update_bytes == 0) {
    out.report.unsharded = why_unsharded(out.executable, board);
  }
  return out;
}

Compiled compile(std::span<const std::byte> artifact, const std::string& name,
                 const spec::BoardParams& board, const CompileOptions& options) {
  return compile(import_vhlo(artifact, name), board, options);
}

}  // namespace tpu::compiler
