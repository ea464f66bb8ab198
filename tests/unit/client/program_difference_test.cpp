// What tells executables apart, and what is only said of them.
#include "program_difference.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>

#include "compiled_program.hpp"
#include "file/whole_file.hpp"
#include "tpu/error.hpp"

namespace tpu::client {
namespace {

std::shared_ptr<const CompiledProgram> program(const std::string& name) {
  ::setenv("TPUBOARD_CACHE", "off", 1);
  return compile_program(
      spec::read_whole_file(std::string(TPU_TEST_DATA) + "/one_op/" + name + ".mlirbc"));
}

std::optional<std::string> difference(const exe::ExecutableT& one, const exe::ExecutableT& other) {
  return ProgramParts(one).difference(ProgramParts(other));
}

size_t peak_kib() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  return static_cast<size_t>(use.ru_maxrss);
}

exe::ExecutableT added() { return *program("add")->executable; }

TEST(ProgramDifference, NamesAndLinesAreNone) {
  exe::ExecutableT other = added();
  ASSERT_FALSE(other.ops.empty());
  other.name = "jit_other";
  other.ops[0]->file = "elsewhere.py";
  other.ops[0]->line += 7;
  other.args[0]->name = "left";
  other.notes.emplace_back("a remark");
  EXPECT_EQ(difference(added(), other), std::nullopt);
}

// The copy, and what serializing its largest part takes.
TEST(ProgramDifference, CopiesOneExecutableAtATime) {
  constexpr size_t kBytes = size_t{64} << 20;
  exe::ExecutableT one = added();
  one.constants.push_back(std::make_unique<exe::ConstantT>());
  one.constants.back()->data.assign(kBytes, 1);
  const size_t before = peak_kib();
  const ProgramParts parts(one);
  const ProgramParts again(one);
  EXPECT_EQ(parts.difference(again), std::nullopt);
  one.constants.back()->data[kBytes / 2] = 2;
  EXPECT_EQ(parts.difference(ProgramParts(one)), "constants");
  EXPECT_LT(peak_kib() - before, 4 * kBytes / 1024);
}

TEST(ProgramDifference, TheFirstPartThatDiffersIsNamed) {
  const auto with = [](const auto& change) {
    exe::ExecutableT other = added();
    change(other);
    return difference(added(), other).value_or("nothing");
  };
  EXPECT_EQ(with([](auto& e) { e.image.back() ^= 1; }), "code");
  EXPECT_EQ(with([](auto& e) { e.results[0]->donated_to = 0; }), "results");
  EXPECT_EQ(with([](auto& e) { e.constants.push_back(std::make_unique<exe::ConstantT>()); }),
            "constants");
  EXPECT_EQ(with([](auto& e) {
              e.image.back() ^= 1;
              e.args[0]->replicated = !e.args[0]->replicated;
            }),
            "arguments");
  EXPECT_EQ(with([](auto& e) { e.partitions = 2; }), "number of partitions");
  EXPECT_EQ(difference(added(), *program("multiply")->executable), "code");
}

// As two processes have it that call a function from different lines.
TEST(ProgramDifference, ProgramsThatRunTheSameAreJoinedAsTheFirst) {
  const auto first = program("add");
  const auto other = std::make_shared<CompiledProgram>();
  exe::ExecutableT moved = added();
  moved.ops[0]->line += 7;
  other->executable = std::make_shared<exe::ExecutableT>(std::move(moved));
  other->artifact = first->artifact;
  const JoinedPrograms joined = join_programs({first, other}, {0, 1});
  EXPECT_EQ(joined.executable, first->executable);
  ASSERT_EQ(joined.arguments.size(), 2U);
  ASSERT_EQ(joined.arguments[1].size(), 2U);
  EXPECT_EQ(joined.arguments[1][1].own, 1U);
  EXPECT_FALSE(joined.arguments[1][1].constant.has_value());
}

TEST(ProgramDifference, PartitionsMustRunTheSame) {
  const auto first = std::make_shared<CompiledProgram>();
  first->executable = program("add")->executable;
  first->import.partitions = 2;
  try {
    join_programs({first, program("multiply")}, {0, 1});
    ADD_FAILURE();
  } catch (const driver::Error& error) {
    EXPECT_EQ(error.code(), driver::ErrorCode::kInvalidArgument);
    EXPECT_NE(error.message().find("have different code"), std::string::npos) << error.message();
  }
}

TEST(ProgramDifference, TheFirstLinesThatDifferAreShownWithTheirSources) {
  const std::string one =
      "module @\"jit_a\" {\n  func.func public @main(%0: tensor<4xf32> loc(\"x (1)\")) {\n"
      "    %1 = \"stablehlo.add\"(%0, %0) : tensor<4xf32> loc(#loc1)\n  }\n}\n"
      "#loc1 = loc(\"jit(a)/add\"(\"f\"(\"a.py\":3:9)))\n";
  std::string same = one;
  same.replace(same.find("jit_a"), 5, "jit_b");
  same.replace(same.find("x (1)"), 5, "other");
  same.replace(same.find("a.py"), 4, "b.py");
  EXPECT_EQ(first_difference(one, same), std::nullopt);
  std::string other = same;
  other.replace(other.find("stablehlo.add"), 13, "stablehlo.sub");
  const auto lines = first_difference(one, other);
  ASSERT_TRUE(lines.has_value());
  EXPECT_EQ(lines->first, "'%1 = \"stablehlo.add\"(%0, %0) : tensor<4xf32>' at a.py:3");
  EXPECT_EQ(lines->second, "'%1 = \"stablehlo.sub\"(%0, %0) : tensor<4xf32>' at b.py:3");
  const auto shorter = first_difference(one, one.substr(0, one.find("  }")));
  ASSERT_TRUE(shorter.has_value());
  EXPECT_EQ(shorter->second, "the end of the program");
  EXPECT_EQ(first_difference("", ""), std::nullopt);
}

}  // namespace
}  // namespace tpu::client
