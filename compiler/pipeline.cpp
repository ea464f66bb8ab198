// See pipeline.hpp.
#include "pipeline.hpp"

#include "legalize/complex/split_complex.hpp"
#include "legalize/legalize.hpp"
#include "legalize/linalg/linalg.hpp"
#include "legalize/rng.hpp"
#include "partition/partition.hpp"
#include "passes/canonicalise.hpp"
#include "passes/cse.hpp"
#include "passes/dce.hpp"
#include "passes/fold.hpp"
#include "passes/inline.hpp"
#include "passes/multiply_add.hpp"
#include "passes/simplify.hpp"
#include "passes/static_sizes.hpp"
#include "passes/unroll.hpp"

namespace tpu::compiler {

const std::vector<Pass>& canonical_passes() {
  static const std::vector<Pass> passes = {
      {"inline", [](Module& m) { inline_calls(m); }},
      {"static_sizes", [](Module& m) { make_sizes_static(m); }},
      {"rng", [](Module& m) { expand_rng(m); }},
      {"multiply_add", [](Module& m) { fuse_multiply_add(m); }},
      {"split_complex", [](Module& m) { split_complex(m); }},
      {"splice", splice},
      {"simplify_global",
       [](Module& m) {
         if (m.global) {
           expand_batch_norms(m);
           simplify(m);
         }
       }},
      {"partition", partition},
      {"dce", [](Module& m) { remove_dead_ops(m); }},
      {"canonicalise", [](Module& m) { canonicalise(m); }},
      {"fold", [](Module& m) { fold_constants(m); }},
      {"cse", [](Module& m) { merge_common_ops(m); }},
      {"simplify", simplify},
  };
  return passes;
}

const std::vector<Pass>& part_passes() {
  static const std::vector<Pass> passes = [] {
    std::vector<Pass> all;
    for (const Pass& pass : canonical_passes()) {
      if (pass.name == "splice") {
        break;
      }
      all.push_back(pass);
      if (pass.name == "split_complex") {
        all.back().run = [](Module& m) { split_complex(m, ComplexBorder::kParts); };
      }
    }
    return all;
  }();
  return passes;
}

const std::vector<Pass>& compile_passes() {
  static const std::vector<Pass> passes = [] {
    std::vector<Pass> all = canonical_passes();
    all.push_back({"linalg", [](Module& m) {
                     if (expand_linalg(m)) {
                       simplify(m);
                     }
                   }});
    all.push_back({"unroll", [](Module& m) {
                     if (unroll_loops(m)) {
                       simplify(m);
                     }
                   }});
    all.push_back({"split_wide", [](Module& m) {
                     if (legalize_wide(m)) {
                       simplify(m);
                     }
                   }});
    all.push_back({"legalize", [](Module& m) { legalize(m); }});
    all.push_back({"simplify_legalized", simplify});
    return all;
  }();
  return passes;
}

}  // namespace tpu::compiler
