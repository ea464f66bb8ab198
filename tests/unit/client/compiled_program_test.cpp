// Programs as clients of a process share them.
#include "compiled_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "file/whole_file.hpp"

namespace tpu::client {
namespace {

std::vector<std::byte> artifact(const std::string& name) {
  ::setenv("TPUBOARD_CACHE", "off", 1);
  return spec::read_whole_file(std::string(TPU_TEST_DATA) + "/" + name + ".mlirbc");
}

TEST(CompiledProgram, OneForAllCoresWhileSomebodyHasIt) {
  const auto program = compile_program(artifact("one_op/add"), {.cores = {0}});
  EXPECT_EQ(program.use_count(), 1);
  EXPECT_EQ(compile_program(artifact("one_op/add"), {.cores = {3}}), program);
  EXPECT_NE(compile_program(artifact("one_op/multiply"), {.cores = {3}}), program);
}

// The parameters of the perceptron's step are everywhere, and Adam's moments where they are made.
TEST(CompiledProgram, UpdatesOfLargeStateAreSharded) {
  const auto program = compile_program(artifact("../../examples/mnist_mlp/train_step"));
  const auto& results = program->executable->results;
  EXPECT_EQ(std::count_if(results.begin(), results.end(),
                          [](const auto& result) { return !result->owned_by.empty(); }),
            4);  // of two layers, two moments each
}

TEST(CompiledProgram, HasATextWithoutShardings) {
  const auto program = compile_program(artifact("one_op/add"));
  EXPECT_NE(program_text(*program).find("\"stablehlo.add\"(%0, %1)"), std::string::npos)
      << program_text(*program);
}

}  // namespace
}  // namespace tpu::client
