// The back half of the compiler: a legalised graph to an executable for one board. compile.hpp is
// the entry; tests of kernels and commands come in here.
#pragma once

#include <string>

#include "entry/compile_options.hpp"
#include "exe/executable.hpp"
#include "ir/graph.hpp"
#include "pass/pass_log.hpp"
#include "pass/progress.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

// Stages for dumps: those of kernel_passes.hpp, "kernels" (what the commands are made of), "memory"
// (what HBM holds), "listing" (the commands). Throws Error: an op or type that has no kernel (with
// its source line), memory that does not suffice (with the largest buffers). `module` must be the
// graph of one core; it is not changed.
exe::ExecutableT generate(const Module& module, const spec::BoardParams& board,
                          const CompileOptions& options = {});

// Observers of a compilation, besides those in its options.
struct Watchers {
  Progress* progress = nullptr;                     // must expect_stages()
  PassReport* passes = nullptr;                     // what the passes did; null: not recorded
  std::vector<std::string>* loop_copies = nullptr;  // EmittedProgram::loop_copies; null: as above
  bool* pieced = nullptr;                           // set if exchanges go in pieces; null: as above
  bool* beside = nullptr;                           // set if transfers of the host's memory run
                                                    // beside kernels; null: as above
};
exe::ExecutableT generate(const Module& module, const spec::BoardParams& board,
                          const CompileOptions& options, const Watchers& watchers);
void expect_stages(Progress& progress);

// True if somebody listens to the text of a stage.
bool wants_dump(const CompileOptions& options, const std::string& stage);

}  // namespace tpu::compiler
