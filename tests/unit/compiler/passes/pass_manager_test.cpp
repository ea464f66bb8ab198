// The pipeline on the artifacts of tests/data: guarantees of the canonical form, dumps, verifier
// errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entry/pipeline.hpp"
#include "graph_builder.hpp"
#include "import/import.hpp"

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
  EXPECT_EQ(seen, (std::vector<std::string>{"import", "inline", "host_memory", "static_sizes",
                                            "rng", "multiply_add", "split_double", "split_complex",
                                            "splice", "simplify_global", "partition", "dce",
                                            "canonicalise", "fold", "cse", "simplify"}));
}

TEST(PassManager, NamesThePassThatBreaksTheGraph) {
  test::GraphBuilder b;
  Value* y = b.op(Kind::kNegate, {b.arg(test::f32({2}))}, test::f32({2}));
  Module& m = b.done({y});
  const GraphPasses passes = {
      {"breaker", [](Module& mod) { mod.main->body.ops[0]->results[0]->type.dims = {3}; }}};
  try {
    run_passes(m, passes);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("after the pass 'breaker'"));
    EXPECT_THAT(e.what(), testing::HasSubstr("test.py:1:1: stablehlo.negate"));
  }
}

GraphPasses three() {
  const auto nothing = [](Module&) {};
  return {{"first", nothing}, {"second", nothing}, {"third", nothing}};
}

std::vector<std::string> names_of(const GraphPasses& passes) {
  std::vector<std::string> names;
  for (const Pass& pass : passes) {
    names.push_back(pass.name());
  }
  return names;
}

TEST(PassList, InsertsByName) {
  GraphPasses passes = three();
  passes.insert_after("first", {"a", [](Module&) {}});
  passes.insert_before("third", {"b", [](Module&) {}});
  EXPECT_EQ(names_of(passes), (std::vector<std::string>{"first", "a", "second", "b", "third"}));
  EXPECT_EQ(names_of(passes.before("second")), (std::vector<std::string>{"first", "a"}));
}

TEST(PassList, RejectsPositionsThatDoNotExistAndNamesThatDo) {
  GraphPasses passes = three();
  const Pass other("other", [](Module&) {});
  EXPECT_THROW(passes.insert_after("fourth", other), std::logic_error);
  EXPECT_THROW(passes.insert_before("fourth", other), std::logic_error);
  EXPECT_THROW((void)passes.before("fourth"), std::logic_error);
  EXPECT_THROW(passes.replace(other), std::logic_error);
  EXPECT_THROW(passes.append({"second", [](Module&) {}}), std::logic_error);
  EXPECT_EQ(passes.size(), 3u);
}

TEST(PassList, OptionsOfTheGraphArePassesAtTheirPlaces) {
  FiniteWatch finite;
  GraphOptions options;
  options.finite = &finite;
  options.keep_values = true;
  options.rules.vector_products_in_f32 = true;
  options.rules.casts_in_memory = false;
  const std::vector<std::string> names = names_of(compile_passes(options));
  const auto follows = [&](const std::string& a, const std::string& b) {
    const auto at = std::find(names.begin(), names.end(), a);
    return at != names.end() && std::next(at) != names.end() && *std::next(at) == b;
  };
  EXPECT_TRUE(follows("dce", "finite_watch"));
  EXPECT_TRUE(follows("simplify", "keep_values"));
  EXPECT_TRUE(follows("splice", "vector_products"));
  EXPECT_EQ(names.back(), "operand_casts");
  EXPECT_EQ(names.size(), compile_passes().size() + 4);
}

TEST(PassManager, ReportsWhatPassesDidAndWhyTheyGaveUp) {
  test::GraphBuilder b;
  Value* x = b.arg(test::f32({2}));
  Value* dead = b.op(Kind::kExp, {x}, test::f32({2}));
  Module& m = b.done({b.op(Kind::kNegate, {x}, test::f32({2}))});
  const GraphPasses passes = {
      {"remove", [dead](Module& mod) { mod.main->body.ops.erase(mod.main->body.ops.begin()); }},
      {"add",
       [](Module& mod, PassLog& log) {
         log.gave_up("too small");
         log.gave_up("too large");
         log.gave_up("too small");
         auto& ops = mod.main->body.ops;
         std::unique_ptr<Op> ret = std::move(ops.back());
         ops.pop_back();
         mod.main->body.append(Kind::kExp, {ops[0]->result()}, {test::f32({2})}, NoAttrs{}, {});
         ops.push_back(std::move(ret));
       }},
  };
  PassReport report;
  PassOptions options;
  options.report = &report;
  run_passes(m, passes, options);
  ASSERT_EQ(report.passes().size(), 2u);
  const PassStats &removed = report.passes()[0], &added = report.passes()[1];
  EXPECT_EQ(removed.pass, "remove");
  EXPECT_EQ(std::tuple(removed.runs, removed.before, removed.removed, removed.made, removed.after),
            std::tuple(1, 3, 1, 0, 2));
  EXPECT_EQ(std::tuple(added.runs, added.before, added.removed, added.made, added.after),
            std::tuple(1, 2, 0, 1, 3));
  EXPECT_EQ(added.gave_up.at("too small"), 2);
  EXPECT_EQ(added.gave_up.at("too large"), 1);
}

// while (i < n) with a limit that is an argument.
TEST(PassManager, UnrollSaysWhyItGaveUp) {
  const Type i32 = test::i32({});
  test::GraphBuilder b;
  Value* limit = b.arg(i32);
  Op* loop = b.region().append(Kind::kWhile, {b.constant(i32, 0)}, {i32}, NoAttrs{}, {});
  Region* condition = loop->add_region();
  Value* i = condition->add_arg(i32);
  Op* compare = condition->append(Kind::kCompare, {i, limit}, {test::i1({})},
                                  CompareAttrs{CompareDirection::kLt, {}}, {});
  condition->append(Kind::kReturn, {compare->result()}, {}, NoAttrs{}, {});
  Region* body = loop->add_region();
  Value* j = body->add_arg(i32);
  Op* one = body->append(Kind::kConstant, {}, {i32}, ConstantAttrs{make_splat_int(i32, 1)}, {});
  Op* next = body->append(Kind::kAdd, {j, one->result()}, {i32}, NoAttrs{}, {});
  body->append(Kind::kReturn, {next->result()}, {}, NoAttrs{}, {});
  Module& m = b.done({loop->result()});
  PassReport report;
  PassOptions options;
  options.report = &report;
  run_passes(m, compile_passes(), options);
  const auto unroll = std::find_if(report.passes().begin(), report.passes().end(),
                                   [](const PassStats& s) { return s.pass == "unroll"; });
  ASSERT_NE(unroll, report.passes().end());
  EXPECT_EQ(unroll->gave_up.at("trip count unknown or large"), 1);
}

}  // namespace
}  // namespace tpu::compiler
