// See kernel_passes.hpp.
#include "kernel/kernel_passes.hpp"

#include "kernel/argument_stacks.hpp"
#include "kernel/early_exchanges.hpp"
#include "kernel/epilogue.hpp"
#include "kernel/full_blocks.hpp"
#include "kernel/kernel_index.hpp"
#include "kernel/late_updates.hpp"
#include "kernel/memory_transfers.hpp"
#include "kernel/one_result.hpp"
#include "kernel/recompute.hpp"
#include "kernel/result_stacks.hpp"
#include "kernel/verify_kernels.hpp"

namespace tpu::compiler {

namespace {

void split_large_kernels(KernelProgram& program, PassLog& log) {
  KernelIndex index(program);
  for (auto k = program.kernels.begin(); k != program.kernels.end();) {
    if (fits_command(*k)) {
      ++k;
    } else if (!split_loop(index, k)) {
      log.gave_up("a kernel that is too large for a command has no place to split");
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

void shard(KernelProgram& p, KernelContext& c, PassLog& log) {
  if (!c.shard_updates) {
    return;
  }
  c.sharded = shard_updates(p, c.module, c.board, c.only_faster);
  if (c.sharded.bytes == 0 && !c.sharded.notes.empty()) {
    log.gave_up("an update is not sharded (tpuc -v says why)",
                static_cast<int64_t>(c.sharded.notes.size()));
  }
}

// `weight`: as Pass::weight().
struct PassRow {
  const char* name;
  double weight;
  void (*run)(KernelProgram& program, KernelContext& context, PassLog& log);
};

constexpr PassRow kPasses[] = {
    {"form", 7,
     [](KernelProgram& p, KernelContext& c, PassLog&) {
       p = form_kernels(c.module, {c.piece, c.bucket_bytes, c.least_memory, !c.one_result,
                                   slot_table_words(c.board.core.smem_kib), &c.without_results});
     }},
    {"one_result", 1,
     [](KernelProgram& p, KernelContext& c, PassLog&) {
       if (c.one_result) {
         on_each_program(p, give_results_kernels);
       }
     }},
    {"recompute", 4,
     [](KernelProgram& p, KernelContext& c, PassLog& log) {
       recompute_values(p, *c.module.main, c.board, c.least_memory ? kPriceOfScarceBytes : 0, &log);
     }},
    {"split", 1,
     [](KernelProgram& p, KernelContext&, PassLog& log) {
       on_each_program(p, [&](KernelProgram& part) { split_large_kernels(part, log); });
     }},
    {"epilogue", 1,
     [](KernelProgram& p, KernelContext& c, PassLog& log) {
       on_each_program(p, [&](KernelProgram& part) { fuse_epilogues(part, c.epilogues, &log); });
     }},
    {"span_taps", 1,
     [](KernelProgram& p, KernelContext& c, PassLog&) {
       if (c.tiles_span_taps) {
         on_each_program(p, let_tiles_span_taps);
       }
     }},
    {"shard_update", 4, shard},
    {"early_exchanges", 0,
     [](KernelProgram& p, KernelContext& c, PassLog&) {
       if (c.early_exchanges) {
         on_each_program(p, [&](KernelProgram& part) {
           start_exchanges_early(part, c.board, c.pieced_exchanges);
         });
       }
     }},
    {"late_updates", 0,
     [](KernelProgram& p, KernelContext&, PassLog&) {
       on_each_program(p, [](KernelProgram& part) { order_updates_late(part); });
     }},
    {"host_transfers", 0,
     [](KernelProgram& p, KernelContext& c, PassLog&) {
       if (c.host_beside) {
         on_each_program(p, [&](KernelProgram& part) {
           transfer_beside_kernels(part, c.board, c.module.num_cores);
         });
       }
     }},
    {"full_blocks", 0,
     [](KernelProgram& p, KernelContext&, PassLog&) { on_each_program(p, fill_blocks); }},
};

}  // namespace

int64_t PassSubject<KernelProgram>::size(const KernelProgram& program) {
  auto kernels = static_cast<int64_t>(program.kernels.size());
  for (const Kernel& k : program.kernels) {
    for (const auto& region : k.control().regions) {
      kernels += region ? size(*region) : 0;
    }
  }
  return kernels;
}

int64_t PassSubject<KernelProgram>::number(KernelProgram& program) {
  renumber(program);
  return -1;
}

void PassSubject<KernelProgram>::verify(const KernelProgram& program) {
  tpu::compiler::verify(program);
}

KernelPasses kernel_passes(KernelContext& context) {
  KernelPasses passes;
  for (const auto& [name, weight, run] : kPasses) {
    passes.append({name,
                   [&context, run = run](KernelProgram& program, PassLog& log) {
                     run(program, context, log);
                   },
                   weight});
  }
  return passes;
}

std::vector<std::string> kernel_pass_names() {
  std::vector<std::string> names;
  for (const auto& row : kPasses) {
    names.emplace_back(row.name);
  }
  return names;
}

double kernel_pass_weight() {
  double weight = 0;
  for (const auto& row : kPasses) {
    weight += row.weight;
  }
  return weight;
}

KernelProgram run_kernel_passes(KernelContext& context, const KernelPassOptions& options) {
  KernelProgram program;
  run_pass_list(program, kernel_passes(context), options);
  for (;;) {  // each time with more loops, of which there are few
    const std::set<const Op*> without = loops_without_results(*context.module.main, program);
    if (without.empty()) {
      return program;
    }
    context.without_results.insert(without.begin(), without.end());
    context.sharded = {};
    program = {};
    run_pass_list(program, kernel_passes(context), options);
  }
}

KernelProgram make_kernels(const Module& module, const spec::BoardParams& board) {
  KernelContext context{module, board};
  return run_kernel_passes(context);
}

}  // namespace tpu::compiler
