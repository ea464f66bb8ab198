// See kernel_passes.hpp.
#include "kernel/kernel_passes.hpp"

#include "kernel/epilogue.hpp"
#include "kernel/kernel_index.hpp"
#include "kernel/one_result.hpp"
#include "kernel/recompute.hpp"
#include "kernel/verify_kernels.hpp"

namespace tpu::compiler {

namespace {

void split_large_kernels(KernelProgram& program) {
  KernelIndex index(program);
  for (auto k = program.kernels.begin(); k != program.kernels.end();) {
    if (fits_command(*k) || !split_loop(index, k)) {
      ++k;
    } else {
      renumber(program, k);
    }
  }
}

void let_tiles_span_taps(KernelProgram& program) {
  for (Kernel& k : program.kernels) {
    if (k.kind == KernelClass::kContract) {
      k.as<ContractPart>().dot.span_taps = true;
    }
  }
}

// Regions first, since a pass numbers the kernels of its program anew.
template <typename Pass>
void on_each_program(KernelProgram& program, const Pass& pass) {
  for (const Kernel& k : program.kernels) {
    for (const auto& region : k.control().regions) {
      if (region) {
        on_each_program(*region, pass);
      }
    }
  }
  pass(program);
}

}  // namespace

const std::vector<KernelPass>& kernel_passes() {
  static const std::vector<KernelPass> passes = {
      {"form", [](KernelProgram& p,
                  KernelContext& c) { p = form_kernels(c.module, c.piece, c.bucket_bytes); }},
      {"one_result",
       [](KernelProgram& p, KernelContext& c) {
         if (c.one_result) {
           on_each_program(p, give_results_kernels);
         }
       }},
      {"recompute",
       [](KernelProgram& p, KernelContext& c) { recompute_values(p, *c.module.main, c.board); }},
      {"split", [](KernelProgram& p, KernelContext&) { on_each_program(p, split_large_kernels); }},
      {"epilogue",
       [](KernelProgram& p, KernelContext& c) {
         on_each_program(p,
                         [&c](KernelProgram& part) { fuse_epilogues(part, c.epilogue_columns); });
       }},
      {"span_taps",
       [](KernelProgram& p, KernelContext& c) {
         if (c.tiles_span_taps) {
           on_each_program(p, let_tiles_span_taps);
         }
       }},
      {"shard_update",
       [](KernelProgram& p, KernelContext& c) {
         if (c.shard_updates) {
           c.sharded = shard_updates(p, c.module, c.only_faster ? &c.board : nullptr);
         }
       }},
  };
  return passes;
}

KernelProgram run_kernel_passes(
    KernelContext& context,
    const std::function<void(const std::string& pass, const KernelProgram&)>& after) {
  KernelProgram program;
  for (const KernelPass& pass : kernel_passes()) {
    pass.run(program, context);
    renumber(program);
    try {
      verify(program);
    } catch (const Error& e) {
      throw Error("after the kernel pass '" + pass.name + "': " + e.message(), e.op(), e.loc());
    }
    if (after) {
      after(pass.name, program);
    }
  }
  return program;
}

KernelProgram make_kernels(const Module& module, const spec::BoardParams& board) {
  KernelContext context{module, board};
  return run_kernel_passes(context);
}

}  // namespace tpu::compiler
