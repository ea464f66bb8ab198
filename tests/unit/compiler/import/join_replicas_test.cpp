// Programs of replicas that differ by their rank, as one program: its values by the interpreter,
// and what cannot be joined.
#include "import/join_replicas.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../tensors.hpp"
#include "entry/pipeline.hpp"
#include "import/file.hpp"
#include "import/import.hpp"
#include "ir/error_kinds.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "passes/pass_manager.hpp"

namespace tpu::compiler {
namespace {

using test::tensor;
using test::values;
using testing::ElementsAre;
using testing::HasSubstr;

Module imported(const std::string& name, int64_t replicas = 4) {
  return import_vhlo(read_file(std::string(TPU_TEST_DATA) + "/" + name + ".mlirbc"), name,
                     {.replicas = replicas});
}

std::vector<Module> ranks() {
  std::vector<Module> programs;
  for (int r = 0; r < 4; ++r) {
    programs.push_back(imported("replica_rank_" + std::to_string(r)));
  }
  return programs;
}

TEST(JoinReplicas, ConstantsPaddingAndSlicesComeFromTables) {
  const std::vector<Module> programs = ranks();
  JoinedReplicas joined = join_replicas(programs);
  verify(joined.module);
  // The aliased array first, then the rank: a constant of replicas 0 and 1.
  ASSERT_EQ(joined.module.main->args.size(), 2u);
  EXPECT_EQ(joined.module.main->args[0].alias_result, 1);
  EXPECT_EQ(joined.arguments[0][0].own, 0u);
  EXPECT_EQ(joined.arguments[3][0].own, 1u);
  ASSERT_TRUE(joined.arguments[1][1].constant);
  EXPECT_EQ(joined.arguments[1][1].constant->as_double(0), 1);
  EXPECT_FALSE(joined.arguments[2][1].constant);
  run_passes(joined.module, canonical_passes());
  const std::vector<float> x = {0, 0, 0, 0, 10, 10, 10, 10, 20, 20, 20, 20, 30, 30, 30, 30};
  const std::vector<Tensor> out = join_results(
      joined.module,
      interpret(joined.module,
                split_arguments(joined.module,
                                {tensor({Elem::kF32, {4, 4}}, x),
                                 tensor({Elem::kF32, {4}}, std::vector<float>{0, 1, 2, 3})})));
  const std::vector<float> parts = values<float>(out[1]);
  EXPECT_THAT(parts,
              ElementsAre(0, 0, 0, 0, 16.5, 16.5, 11, 11, 55, 55, 22, 22, 115.5, 115.5, 33, 33));
  const std::vector<float> all = values<float>(out[0]);  // all of it, on each of the four
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i], parts[i % 16]) << i;
  }
}

TEST(JoinReplicas, EqualProgramsStayAsTheyAre) {
  std::vector<Module> programs;
  for (int r = 0; r < 4; ++r) {
    programs.push_back(imported("replica_step"));
  }
  const JoinedReplicas joined = join_replicas(programs);
  std::string text = print(joined.module);
  EXPECT_EQ(text.find("dynamic_slice"), std::string::npos) << text;
  EXPECT_EQ(joined.module.main->args.size(), 2u);
}

std::string refused(const std::vector<Module>& programs) {
  try {
    join_replicas(programs);
  } catch (const Contradiction& error) {
    return error.what();
  }
  return {};
}

TEST(JoinReplicas, TheFirstDifferenceThatCannotBeIsTold) {
  std::vector<Module> programs;
  programs.push_back(imported("replica_step", 2));
  programs.push_back(imported("replica_step_max", 2));
  EXPECT_THAT(refused(programs),
              HasSubstr("replica 0 and replica 1 have `add` and `maximum` at the same place"));
  programs[1] = imported("replica_step_large", 2);
  EXPECT_THAT(refused(programs), HasSubstr("different results"));
}

}  // namespace
}  // namespace tpu::compiler
