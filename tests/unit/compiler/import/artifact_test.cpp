// The artifacts of tests/data through the import: shapes, shardings, donation, locations,
// constants, and the errors for what the board cannot do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entry/pipeline.hpp"
#include "import/import.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "partition/partition.hpp"
#include "passes/inline.hpp"
#include "passes/static_sizes.hpp"

namespace tpu::compiler {
namespace {

using testing::HasSubstr;
using testing::Not;

Module load(const std::string& name) {
  return import_vhlo_file(std::string(TPU_TEST_DATA) + "/" + name + ".mlirbc");
}

// Of one core.
Module load_local(const std::string& name) {
  Module m = load(name);
  inline_calls(m);
  make_sizes_static(m);
  splice(m);
  partition(m);
  verify(m);
  return m;
}

std::string error_of(const std::string& name) {
  try {
    load_local(name);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

size_t count(const Module& m, Kind kind) {
  size_t n = 0;
  walk(m.main->body, [&](const Op& op) { n += op.kind == kind; });
  return n;
}

TEST(Import, DenseLayer) {
  const Module m = load("dense");
  EXPECT_EQ(m.name, "dense");
  EXPECT_EQ(m.num_cores, 1);
  ASSERT_EQ(m.main->args.size(), 3u);
  EXPECT_EQ(m.main->args[1].name, "w");
  EXPECT_EQ(to_string(m.main->body.args[1]->type), "f32[7,3]");
  EXPECT_EQ(count(m, Kind::kDotGeneral), 1u);
  EXPECT_EQ(count(m, Kind::kTanh), 1u);
}

// One program as a portable artifact of a new and of the oldest StableHLO, and as StableHLO's own
// bytecode of the newest and of the first version (export_forms.py).
TEST(Import, FormsOfOneProgramAreOneGraph) {
  Module newest = load("forms");
  const std::string graph = print(newest);
  for (const char* name : {"forms_0_9", "forms_plain", "forms_plain_first"}) {
    Module m = load(name);
    m.name = newest.name;
    EXPECT_EQ(print(m), graph) << name;
  }
}

TEST(Import, TuplesAreTheirMembers) {
  const Module m = load("forms");
  const Function& f = *m.main;
  ASSERT_EQ(f.args.size(), 3u);
  EXPECT_EQ(f.args[0].name, "x");
  EXPECT_EQ(f.args[1].name, "t.0");
  EXPECT_EQ(f.args[2].name, "t.1");
  EXPECT_EQ(to_string(f.args[1].global), "f32[3,4]");
  EXPECT_EQ(to_string(f.args[2].global), "i32[]");
  ASSERT_EQ(f.results.size(), 3u);
  EXPECT_EQ(to_string(f.results[0].global), "f32[3,8]");
  EXPECT_EQ(to_string(f.results[1].global), "i32[]");
  EXPECT_EQ(to_string(f.results[2].global), "f32[3,4]");
  Module local = load_local("forms");
  const auto results = interpret(local, {{to_tensor(make_splat(f.args[0].global, 1.5)),
                                          to_tensor(make_splat(f.args[1].global, 0)),
                                          to_tensor(make_splat_int(f.args[2].global, 6))}});
  EXPECT_EQ(to_dense(Tensor(results[0][0])).as_double(0), 3.0);
  EXPECT_EQ(to_dense(Tensor(results[0][0])).as_double(4), 1.0);  // padded
  EXPECT_EQ(to_dense(Tensor(results[0][1])).as_int(0), 7);
  EXPECT_EQ(to_dense(Tensor(results[0][2])).as_double(0), 0.0);
}

TEST(Import, LocationsNameTheUsersLineAndThePath) {
  const Module m = load("dense");
  for (const auto& op : m.main->body.ops) {
    if (op->kind == Kind::kTanh) {
      ASSERT_GE(op->loc->frames.size(), 2u);
      EXPECT_EQ(op->loc->frames[0].file, "export_graphs.py");
      EXPECT_EQ(op->loc->frames[0].function, "dense");
      EXPECT_EQ(op->loc->frames[1].function, "main");
      EXPECT_GT(op->loc->frames[0].line, 0u);
      EXPECT_EQ(op->loc->path, "jit(dense)/tanh");
    }
  }
}

TEST(Import, ShardMapStaysAnOpOfTheGlobalGraph) {
  const Module m = load("mlp_adam");
  EXPECT_TRUE(m.global);
  EXPECT_EQ(to_string(m.main->body.args[19]->type), "f32[16,12]");
  ASSERT_EQ(count(m, Kind::kManualComputation), 1u);
  for (const auto& op : m.main->body.ops) {
    if (op->kind == Kind::kManualComputation) {
      const auto& a = op->as<ManualAttrs>();
      EXPECT_EQ(a.manual_axes, (std::vector<int>{0, 1, 2}));
      ASSERT_EQ(a.in.size(), op->operands.size());
      EXPECT_EQ(a.in[19].sharding.dim_axes, (std::vector<std::vector<int>>{{0, 1, 2}, {}}));
      EXPECT_EQ(to_string(op->regions[0]->args[19]->type), "f32[2,12]");
    }
  }
  EXPECT_THAT(print(m), HasSubstr("cores=8 global mesh(data:(1)2=2, data:(2)2=2, data:(4)2=2)"));
  EXPECT_THAT(print(m), HasSubstr("[{data:(1)2,data:(2)2,data:(4)2},{}]"));
}

TEST(Import, ShardMapBecomesTheProgramOfOneCore) {
  const Module m = load_local("mlp_adam");
  EXPECT_EQ(m.num_cores, 8);
  ASSERT_EQ(m.mesh.axes.size(), 3u);
  EXPECT_EQ(m.mesh.axes[0].name, "data:(1)2");
  ASSERT_EQ(m.main->args.size(), 21u);
  EXPECT_EQ(to_string(m.main->args[19].global), "f32[16,12]");
  EXPECT_EQ(to_string(m.main->body.args[19]->type), "f32[2,12]");
  EXPECT_EQ(m.main->args[19].sharding.parts(m.mesh, 0), 8);
  EXPECT_TRUE(m.main->args[0].sharding.is_replicated());
  EXPECT_EQ(count(m, Kind::kAllReduce), 7u);
  EXPECT_EQ(m.main->results.size(), 20u);
}

TEST(Import, DonatedArgumentsTakeTheirResults) {
  const Module m = load_local("mlp_adam");
  for (int i = 0; i < 19; ++i) {
    EXPECT_TRUE(m.main->args[static_cast<size_t>(i)].donated);
    EXPECT_EQ(m.main->args[static_cast<size_t>(i)].alias_result, i);
  }
  EXPECT_FALSE(m.main->args[19].donated);
}

TEST(Import, MeshesOfTwoAxes) {
  const Module m = load_local("collectives_2d");
  EXPECT_EQ(to_string(m.main->body.args[0]->type), "f32[2,2]");
  EXPECT_EQ(m.main->args[0].sharding.dim_axes, (std::vector<std::vector<int>>{{0}, {1, 2}}));
  EXPECT_EQ(m.main->results[0].sharding.dim_axes, (std::vector<std::vector<int>>{{}, {1, 2}}));
  const Op& first = *m.main->body.ops[0];
  EXPECT_EQ(first.as<CollectiveAttrs>().groups, (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(Import, Constants) {
  Module m = load("constants");
  run_passes(m, canonical_passes());
  std::vector<const Dense*> values;
  for (const Value* v : m.main->body.terminator()->operands) {
    values.push_back(&v->def->as<ConstantAttrs>().value);
  }
  EXPECT_EQ(values[0]->as_double(11), 11.0);
  EXPECT_EQ(values[1]->as_int(5), 7);
  EXPECT_EQ(values[2]->as_int(0), 1);
  EXPECT_EQ(values[2]->as_int(1), 0);
  EXPECT_EQ(values[3]->as_double(1), -2.0);
  EXPECT_EQ(values[4]->as_int(2), 3);
  EXPECT_EQ(values[5]->type.count(), 0);
  EXPECT_EQ(values[6]->as_int(0), -1);
}

TEST(Import, ControlFlowAndComposites) {
  const Module m = load("control");
  EXPECT_EQ(count(m, Kind::kWhile), 2u);
  EXPECT_EQ(count(m, Kind::kCase), 1u);
  EXPECT_EQ(count(m, Kind::kComposite), 1u);
  EXPECT_EQ(m.functions.size(), 2u);
}

TEST(Import, ConvolutionsAndWindows) {
  const Module m = load("conv_grad");
  EXPECT_EQ(count(m, Kind::kConvolution), 3u);
  EXPECT_EQ(count(m, Kind::kSelectAndScatter), 1u);
}

TEST(Import, RefusesF16WithTheUsersLine) {
  const std::string e = error_of("bad_f16");
  EXPECT_THAT(e, HasSubstr("export_graphs.py:"));
  EXPECT_THAT(e, HasSubstr("stablehlo.add"));
  EXPECT_THAT(e, HasSubstr("element type f16 is not supported by the TPU; use bfloat16"));
}

TEST(Import, RefusesDynamicShapes) {
  const std::string e = error_of("bad_dynamic");
  EXPECT_THAT(e, HasSubstr("export_graphs.py:"));
  EXPECT_THAT(e, HasSubstr("dynamic shapes are not supported"));
}

TEST(Import, RefusesUnknownCustomCalls) {
  const std::string e = error_of("bad_cholesky");
  EXPECT_THAT(e, HasSubstr("export_graphs.py:"));
  EXPECT_THAT(e, HasSubstr("stablehlo.custom_call"));
  EXPECT_THAT(e, HasSubstr("lapack_spotrf_ffi"));
}

TEST(Import, ListsAllThatIsNotSupported) {
  const std::string e = error_of("bad_types");
  EXPECT_THAT(e, HasSubstr("2 things in this program are not supported:\n  export_graphs.py:"));
  EXPECT_THAT(e, HasSubstr("stablehlo.convert: element type f16 is not supported"));
  EXPECT_THAT(e, HasSubstr("stablehlo.convert: element type f8 is not supported"));
  EXPECT_THAT(error_of("bad_f16"), Not(HasSubstr("things")));
}

TEST(Import, KeepsComplexNumbersAndTransforms) {
  const Module m = load("spectrum");
  std::vector<const Op*> transforms;
  walk(m.main->body, [&](const Op& op) {
    if (op.kind == Kind::kFft) {
      transforms.push_back(&op);
    }
  });
  for (const auto& f : m.functions) {
    walk(f->body, [&](const Op& op) {
      if (op.kind == Kind::kFft) {
        transforms.push_back(&op);
      }
    });
  }
  ASSERT_EQ(transforms.size(), 1U);
  EXPECT_EQ(transforms[0]->as<FftAttrs>(), (FftAttrs{FftType::kFft, {8}}));
  EXPECT_EQ(transforms[0]->type(), (Type{Elem::kComplex64, {8}}));
}

TEST(Import, TakesF64) {
  const Module m = load("double");
  EXPECT_EQ(m.main->body.args[0]->type, (Type{Elem::kF64, {3}}));
}

TEST(Import, WhatStandsOutsideOfShardMapIsPartitioned) {
  const std::vector<std::pair<std::string, size_t>> programs = {
      {"auto_sharding", 1},  // a sum
      {"sharded_outside", 0},
      {"shard_map_in_loop", 0},
      {"replicated_constraint", 1}};  // a gather
  for (const auto& [name, moved] : programs) {
    const Module m = load_local(name);
    EXPECT_FALSE(m.global) << name;
    EXPECT_EQ(m.moved.size(), moved) << name;
  }
}

TEST(Import, ReplicatedOpsOutsideOfShardMapRunOnEveryCore) {
  Module m = load("outside_ops");
  run_passes(m, canonical_passes());
  EXPECT_EQ(m.num_cores, 8);
  EXPECT_EQ(to_string(m.main->body.args[1]->type), "f32[2,3]");
  EXPECT_TRUE(m.main->args[0].sharding.is_replicated());
}

TEST(Import, RefusesRecursionWithTheLineOfTheCall) {
  EXPECT_THAT(
      error_of("bad_recursion"),
      HasSubstr("-:2:8: stablehlo.call: the function @main calls itself; a program cannot"));
  EXPECT_THAT(error_of("bad_recursion_of_two"),
              HasSubstr("-:10:8: stablehlo.call: the function @f calls itself through @g"));
}

TEST(Import, RefusesWhatLiesTooDeep) {
  EXPECT_THAT(error_of("bad_deep_calls"),
              HasSubstr("stablehlo.call: calls are nested more than 64 deep"));
  EXPECT_THAT(error_of("bad_deep_regions"),
              HasSubstr("stablehlo.if: loops and branches are nested more than 64 deep"));
}

TEST(Import, RefusesDimensionsThatNoIndexReaches) {
  EXPECT_THAT(error_of("bad_long_dimension"),
              HasSubstr("shape [8589934592] is not supported: a dimension has at most 2^31 - 1"));
}

// A location that call sites reach on 2^80 ways.
TEST(Import, SharedLocationsAreReadOnce) {
  EXPECT_EQ(count(load("shared_locations"), Kind::kAbs), 1u);
}

TEST(Import, ReplicatedByGspmd) {
  const Module m = load_local("gspmd_replicated");
  EXPECT_EQ(m.num_cores, 8);
  EXPECT_TRUE(m.main->args[0].sharding.is_replicated());
}

TEST(Import, FoldersAreNotRead) {
  try {
    import_vhlo_file(TPU_TEST_DATA);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("is a folder; name a file"));
  }
}

TEST(Import, SaysHowToMakeAnArtifact) {
  try {
    const std::string text = "module @m {}";
    import_vhlo(std::as_bytes(std::span(text)), "text");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("serialize_portable_artifact_str"));
  }
  try {
    const std::string bytes = "no artifact";
    import_vhlo(std::as_bytes(std::span(bytes)), "bytes");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("mlir_module_serialized"));
  }
  EXPECT_THROW(import_vhlo_file("/nonexistent.mlirbc"), Error);
}

}  // namespace
}  // namespace tpu::compiler
