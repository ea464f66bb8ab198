// The pipeline on the artifacts of tests/data: guarantees of the canonical form, dumps, verifier
// errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_builder.hpp"
#include "import/import.hpp"
#include "pipeline.hpp"

namespace tpu::compiler {
namespace {

constexpr const char* kPrograms[] = {"dense",          "mlp_sgd",     "mlp_momentum", "mlp_adam",
                                     "elementwise",    "shapes",      "reductions",   "dots",
                                     "integers",       "constants",   "bf16_dense",   "collectives",
                                     "collectives_2d", "outside_ops", "control",      "conv_grad"};

class CanonicalForm : public testing::TestWithParam<const char*> {};

TEST_P(CanonicalForm, HoldsItsGuarantees) {
  Module m = import_vhlo_file(std::string(TPU_TEST_DATA) + "/" + GetParam() + ".mlirbc");
  run_passes(m, canonical_passes());
  const Uses uses = compute_uses(m.main->body);
  walk(m.main->body, [&](const Op& op) {
    EXPECT_NE(op.kind, Kind::kCall);
    EXPECT_NE(op.kind, Kind::kComposite);
    EXPECT_NE(op.kind, Kind::kClamp);
    EXPECT_NE(op.kind, Kind::kOptimizationBarrier);
    EXPECT_TRUE(op.kind != Kind::kConvert || op.operand_type(0) != op.type());
    EXPECT_NE(op.id, 0u);
    if (!has_side_effect(op)) {
      bool used = false;
      for (const auto& r : op.results) {
        used = used || uses.count(r.get()) != 0;
      }
      EXPECT_TRUE(used) << print(op);
    }
  });
  EXPECT_TRUE(m.functions.empty());
}

TEST_P(CanonicalForm, IsReachedAtOnce) {
  Module m = import_vhlo_file(std::string(TPU_TEST_DATA) + "/" + GetParam() + ".mlirbc");
  run_passes(m, canonical_passes());
  const std::string once = print(m);
  run_passes(m, canonical_passes());
  EXPECT_EQ(print(m), once);
}

INSTANTIATE_TEST_SUITE_P(Artifacts, CanonicalForm, testing::ValuesIn(kPrograms),
                         [](const auto& param) { return std::string(param.param); });

TEST(PassManager, CallsBackAfterEveryPass) {
  Module m = import_vhlo_file(std::string(TPU_TEST_DATA) + "/dense.mlirbc");
  std::vector<std::string> seen;
  PassOptions options;
  options.after = [&](const std::string& name, const Module&) { seen.push_back(name); };
  run_passes(m, canonical_passes(), options);
  EXPECT_EQ(seen,
            (std::vector<std::string>{"import", "inline", "static_sizes", "rng", "multiply_add",
                                      "split_complex", "splice", "simplify_global", "partition",
                                      "dce", "canonicalise", "fold", "cse", "simplify"}));
}

TEST(PassManager, NamesThePassThatBreaksTheGraph) {
  test::GraphBuilder b;
  Value* y = b.op(Kind::kNegate, {b.arg(test::f32({2}))}, test::f32({2}));
  Module& m = b.done({y});
  const std::vector<Pass> passes = {
      {"breaker", [](Module& mod) { mod.main->body.ops[0]->results[0]->type.dims = {3}; }}};
  try {
    run_passes(m, passes);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("after the pass 'breaker'"));
    EXPECT_THAT(e.what(), testing::HasSubstr("test.py:1:1: stablehlo.negate"));
  }
}

}  // namespace
}  // namespace tpu::compiler
