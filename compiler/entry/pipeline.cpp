// See pipeline.hpp.
#include "entry/pipeline.hpp"

#include "instrument/kept_values.hpp"
#include "legalize/complex/split_complex.hpp"
#include "legalize/double/split_double.hpp"
#include "legalize/legalize.hpp"
#include "legalize/linalg/linalg.hpp"
#include "legalize/rng.hpp"
#include "partition/partition.hpp"
#include "passes/barred_casts.hpp"
#include "passes/barrier_order.hpp"
#include "passes/canonicalise.hpp"
#include "passes/cse.hpp"
#include "passes/dce.hpp"
#include "passes/fold.hpp"
#include "passes/host_memory.hpp"
#include "passes/inline.hpp"
#include "passes/multiply_add.hpp"
#include "passes/operand_casts.hpp"
#include "passes/pipelined_gathers.hpp"
#include "passes/random_bits.hpp"
#include "passes/simplify.hpp"
#include "passes/static_sizes.hpp"
#include "passes/unroll.hpp"

namespace tpu::compiler {

// The last number of a pass is its usual share of a compilation's time in percent, about the mean
// of training steps of BERT, ResNet-50 and Xception.

const GraphPasses& canonical_passes() {
  static const GraphPasses passes = {
      {"inline", [](Module& m) { inline_calls(m); }},
      {"host_memory", [](Module& m) { keep_in_host_memory(m); }},
      {"static_sizes", [](Module& m) { make_sizes_static(m); }},
      {"rng", [](Module& m) { expand_rng(m); }},
      {"multiply_add", [](Module& m) { fuse_multiply_add(m); }},
      {"split_double", [](Module& m) { split_double(m); }},
      {"split_complex", [](Module& m) { split_complex(m); }},
      {"splice", splice},
      {"simplify_global",
       [](Module& m) {
         if (m.global) {
           expand_batch_norms(m);
           simplify(m);
         }
       },
       4},
      {"partition", partition, 4},
      {"dce", [](Module& m) { remove_dead_ops(m); }},
      {"canonicalise", [](Module& m) { canonicalise(m); }},
      {"fold", [](Module& m, PassLog& log) { fold_constants(m, &log); }},
      {"cse", [](Module& m) { merge_common_ops(m); }},
      {"simplify", simplify, 3},
  };
  return passes;
}

const GraphPasses& part_passes() {
  static const GraphPasses passes = [] {
    GraphPasses all = canonical_passes().before("splice");
    all.replace({"split_double", [](Module& m) { split_double(m, SplitBorder::kParts); }});
    all.replace({"split_complex", [](Module& m) { split_complex(m, SplitBorder::kParts); }});
    return all;
  }();
  return passes;
}

const GraphPasses& compile_passes() {
  static const GraphPasses passes = [] {
    GraphPasses all = canonical_passes();
    all.append({"linalg", [](Module& m) {
                  if (expand_linalg(m)) {
                    simplify(m);
                  }
                }});
    all.append({"barred_casts", [](Module& m) {
                  if (cast_in_front_of_barriers(m)) {
                    simplify(m);
                  }
                }});
    all.append({"barrier_order", [](Module& m) { order_behind_barriers(m); }});
    all.append({"unroll", [](Module& m, PassLog& log) {
                  if (unroll_loops(m, &log)) {
                    simplify(m);
                  }
                }});
    all.append({"random_bits", [](Module& m) {
                  if (shorten_random_bits(m)) {
                    simplify(m);
                  }
                }});
    all.append({"split_wide", [](Module& m) {
                  if (legalize_wide(m)) {
                    simplify(m);
                  }
                }});
    all.append({"legalize", [](Module& m) { legalize(m); }, 2});
    all.append({"simplify_legalized", simplify, 3});
    all.append({"pipelined_gathers", [](Module& m) { pipeline_gathers(m); }});
    return all;
  }();
  return passes;
}

GraphPasses compile_passes(const GraphOptions& options) {
  GraphPasses passes = compile_passes();
  // Nothing would run beside the gathers where kernels do not overlap.
  bool* const pipelined = options.rules.overlap_kernels ? options.pipelined : nullptr;
  passes.replace({"barred_casts", [pipelined](Module& m) {
                    if (pipelined != nullptr && cast_in_front_of_barriers(m)) {
                      *pipelined = true;
                      simplify(m);
                    }
                  }});
  passes.replace({"pipelined_gathers", [pipelined](Module& m) {
                    if (pipelined != nullptr && pipeline_gathers(m)) {
                      *pipelined = true;
                    }
                  }});
  // What is watched or kept is so in the graph of one core, before ops change their form.
  if (options.finite != nullptr) {
    passes.insert_after("dce", {"finite_watch", [finite = options.finite](Module& m) {
                                  *finite = watch_finite(m);
                                }});
  }
  if (options.keep_values) {
    passes.insert_after(canonical_passes().back().name(), {"keep_values", keep_values});
  }
  if (options.rolled != nullptr) {
    passes.insert_after("unroll", {"roll", [rolled = options.rolled](Module& m, PassLog& log) {
                                     *rolled = roll_layers(m, &log);
                                     if (!rolled->empty()) {
                                       simplify(m);
                                     }
                                   }});
  }
  if (options.rules.vector_products_in_f32) {
    passes.insert_after("splice", {"vector_products", expand_vector_products});
  }
  if (!options.rules.casts_in_memory) {
    passes.append({"operand_casts", [](Module& m) { read_arguments_uncast(m); }});
  }
  return passes;
}

}  // namespace tpu::compiler
