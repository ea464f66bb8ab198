// Programs as clients of a process share them.
#include "compiled_program.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "file/whole_file.hpp"

namespace tpu::client {
namespace {

std::vector<std::byte> artifact(const std::string& name) {
  ::setenv("TPUBOARD_CACHE", "off", 1);
  return spec::read_whole_file(std::string(TPU_TEST_DATA) + "/" + name + ".mlirbc");
}

TEST(CompiledProgram, OneForAllCoresWhileSomebodyHasIt) {
  const auto program = compile_program(artifact("one_op/add"), {0});
  EXPECT_EQ(program.use_count(), 1);
  EXPECT_EQ(compile_program(artifact("one_op/add"), {3}), program);
  EXPECT_NE(compile_program(artifact("one_op/multiply"), {3}), program);
}

TEST(CompiledProgram, HasATextWithoutShardings) {
  const auto program = compile_program(artifact("one_op/add"));
  EXPECT_NE(program_text(*program).find("\"stablehlo.add\"(%0, %1)"), std::string::npos)
      << program_text(*program);
}

}  // namespace
}  // namespace tpu::client
