// Programs of several replicas, the groups of their collectives, and arrays in another order of
// dimensions: artifacts of tests/data through the import and, for their values, the interpreter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "../tensors.hpp"
#include "entry/pipeline.hpp"
#include "import/file.hpp"
#include "import/import.hpp"
#include "ir/error_kinds.hpp"
#include "ir/interpreter.hpp"
#include "passes/pass_manager.hpp"

namespace tpu::compiler {
namespace {

using test::tensor;
using test::values;
using testing::ElementsAre;
using testing::HasSubstr;

Module imported(const std::string& name, const ImportOptions& options = {}) {
  return import_vhlo(read_file(std::string(TPU_TEST_DATA) + "/" + name + ".mlirbc"), name, options);
}

Module one_core(const std::string& name, const ImportOptions& options = {}) {
  Module m = imported(name, options);
  run_passes(m, canonical_passes());
  return m;
}

TEST(Replicas, HaveAnEntryOfEveryArray) {
  const Module m = imported("replica_grid");
  EXPECT_EQ(m.num_cores, 4);
  EXPECT_EQ(to_string(m.main->args[0].global), "f32[2,4]");
  EXPECT_EQ(to_string(m.main->args[1].global), "f32[2]");
  EXPECT_EQ(to_string(m.main->results[1].global), "ui32[2]");
  ASSERT_EQ(m.mesh.axes.size(), 2u);
  EXPECT_EQ(m.mesh.axes[0].name, "replica");
  const Module local = one_core("replica_grid");
  EXPECT_EQ(to_string(local.main->body.args[0]->type), "f32[1,2]");  // cut over the partitions too
  EXPECT_EQ(local.main->args[0].alias_result, 0);
}

TEST(Replicas, WorkOnTheirOwnArraysAndAddUp) {
  const Module m = one_core("replica_grid");
  const std::vector<Tensor> out = join_results(
      m,
      interpret(m, split_arguments(
                       m, {tensor({Elem::kF32, {2, 4}}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}),
                           tensor({Elem::kF32, {2}}, std::vector<float>{10, 100})})));
  EXPECT_THAT(values<float>(out[0]),
              ElementsAre(510, 620, 730, 840, 510, 620, 730, 840));  // 10 w0 + 100 w1, in both
  EXPECT_THAT(values<uint32_t>(out[1]), ElementsAre(0, 1));
}

TEST(Replicas, GroupsAreReadAsTheSpecificationSays) {
  const std::string text = print(imported("process_groups"));
  // cross_replica, groups of two sizes
  EXPECT_THAT(text, HasSubstr("all_reduce"));
  EXPECT_THAT(text, HasSubstr("groups=[[4,0],[5,1],[2],[3]]"));
  EXPECT_THAT(text, HasSubstr("groups=[[0,1],[2,3],[4,5]]"));  // cross_replica_and_partition
  EXPECT_THAT(text, HasSubstr("groups=[[0,3],[5,1],[2,4]]"));  // flattened_ids
  EXPECT_THAT(text, HasSubstr("groups=[[1],[3],[5]]"));        // cross_partition
  EXPECT_THAT(text, HasSubstr("pairs=[0>4,1>5]"));
}

TEST(Replicas, TheirNumberMayComeFromWhoCompiles) {
  const auto error = [](const ImportOptions& options) {
    try {
      imported("replica_grid", options);
    } catch (const Contradiction& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(error({.replicas = 2, .partitions = 2}), "");
  EXPECT_THAT(error({.replicas = 4, .partitions = 2}), HasSubstr("mhlo.num_replicas = 2"));
  EXPECT_THAT(error({.partitions = 1}), HasSubstr("mhlo.num_partitions = 2"));
  const Module m = imported("replica_step", {.replicas = 3});
  EXPECT_EQ(m.num_cores, 3);
  EXPECT_EQ(to_string(m.main->args[0].global), "f32[3,256]");
}

TEST(Replicas, ThatDoNothingTogetherRunAProgramOfOneCore) {
  const Module m = imported("one_op/add", {.replicas = 3});
  EXPECT_EQ(m.num_cores, 1);
  EXPECT_EQ(to_string(m.main->args[0].global), "f32[64,256]");
  EXPECT_EQ(imported("one_op/add", {.partitions = 3}).num_cores, 3);
  EXPECT_EQ(imported("layout_modes_replicas").num_cores, 2) << "the program states them";
}

TEST(Layouts, ArgumentsAndResultsLieAsAskedFor) {
  const Module plain = one_core("layout_modes");
  EXPECT_EQ(to_string(plain.main->args[0].global), "f32[2,3,4]");
  const Module m = one_core("layout_modes", {.layouts = true});
  EXPECT_EQ(to_string(m.main->args[0].global), "f32[3,4,2]");
  EXPECT_THAT(m.main->args[0].layout, ElementsAre(1, 2, 0));
  EXPECT_THAT(m.main->args[1].layout, ElementsAre());
  EXPECT_EQ(to_string(m.main->results[0].global), "f32[2,4]");
  EXPECT_THAT(m.main->results[0].layout, ElementsAre(1, 0));
  EXPECT_EQ(to_string(m.main->results[1].global), "f32[2,3]");
  std::vector<float> x(24), turned;
  std::iota(x.begin(), x.end(), 0.0F);
  for (size_t b = 0; b < 3; ++b) {
    for (size_t c = 0; c < 4; ++c) {
      for (size_t a = 0; a < 2; ++a) {
        turned.push_back(x[12 * a + 4 * b + c]);
      }
    }
  }
  const Tensor y = tensor({Elem::kF32, {4}}, std::vector<float>{100, 200, 300, 400});
  const auto want = interpret(plain, {{tensor({Elem::kF32, {2, 3, 4}}, x), y}})[0];
  const auto got = interpret(m, {{tensor({Elem::kF32, {3, 4, 2}}, turned), y}})[0];
  const std::vector<float> columns = values<float>(want[0]);
  std::vector<float> rows;
  for (size_t j = 0; j < 2; ++j) {
    for (size_t i = 0; i < 4; ++i) {
      rows.push_back(columns[2 * i + j]);
    }
  }
  EXPECT_EQ(values<float>(got[0]), rows);
  EXPECT_EQ(values<float>(got[1]), values<float>(want[1]));
}

TEST(Layouts, OfAllReplicas) {
  const Module m = one_core("layout_modes_replicas", {.layouts = true});
  EXPECT_EQ(to_string(m.main->args[0].global), "f32[2,3,4,2]");
  EXPECT_THAT(m.main->args[0].layout, ElementsAre(0, 2, 3, 1));
}

}  // namespace
}  // namespace tpu::compiler
