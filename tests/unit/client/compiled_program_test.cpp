// Programs as clients of a process share them.
#include "compiled_program.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "file/whole_file.hpp"
#include "program_difference.hpp"
#include "tpu/error.hpp"

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

// The first, which keeps it, is asked in the middle of the compilation; the second behind it.
TEST(CompiledProgram, HasTheSameTextFromItsCompilation) {
  const std::string path = "../../examples/mnist_mlp/train_step";
  std::string kept;
  {
    const auto program = compile_program(artifact(path), {.text = true});
    const base::MutexLock lock(program->text_mutex);
    kept = program->text;
  }
  EXPECT_NE(kept, "");
  EXPECT_EQ(program_text(*compile_program(artifact(path))), kept);
}

TEST(CompiledProgram, ThreadsThatWantOneProgramWaitForOneCompilation) {
  const std::vector<std::byte> step = artifact("../../examples/mnist_mlp/train_step");
  std::vector<std::shared_ptr<const CompiledProgram>> programs(8);
  std::vector<std::thread> threads;
  for (auto& program : programs) {
    threads.emplace_back([&] { program = compile_program(step); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(std::set(programs.begin(), programs.end()).size(), 1U);
}

TEST(CompiledProgram, ThreadsThatWantAWrongProgramAllGetItsError) {
  const std::vector<std::byte> wrong = artifact("bad_f16");
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      try {
        compile_program(wrong);
      } catch (const driver::Error& error) {
        refused += error.code() == driver::ErrorCode::kUnimplemented ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(refused, 8);
}

// Executables in the folder, by name, with the number of their inode: one that is written again has
// another.
std::map<std::string, ino_t> kept_in(const std::string& folder) {
  std::map<std::string, ino_t> kept;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    struct stat status {};
    if (entry.path().extension() == ".cached" && ::stat(entry.path().c_str(), &status) == 0) {
      kept[entry.path().filename()] = status.st_ino;
    }
  }
  return kept;
}

// The number of what fails; 0: nothing.
int join_twice(const std::string& folder) {
  ::setenv("TPUBOARD_CACHE", folder.c_str(), 1);
  std::vector<std::shared_ptr<const CompiledProgram>> programs;
  for (int r = 0; r < 4; ++r) {
    programs.push_back(
        compile_program(spec::read_whole_file(std::string(TPU_TEST_DATA) + "/replica_rank_" +
                                              std::to_string(r) + ".mlirbc"),
                        {.import = {.replicas = 4}}));
  }
  if (kept_in(folder).size() != 4) {
    return 1;
  }
  const JoinedPrograms first = join_programs(programs, {0, 1, 2, 3});
  const auto kept = kept_in(folder);
  if (kept.size() != 5) {
    return 2;
  }
  const JoinedPrograms second = join_programs(programs, {0, 1, 2, 3});
  if (kept_in(folder) != kept) {
    return 3;
  }
  if (ProgramParts(*first.executable).difference(ProgramParts(*second.executable)) ||
      first.arguments.size() != second.arguments.size()) {
    return 4;
  }
  join_programs({programs[1], programs[0], programs[2], programs[3]}, {0, 1, 2, 3});
  return kept_in(folder).size() == 6 ? 0 : 5;  // another order is another program
}

// In a process of its own, where the options of the cache have not been read yet.
TEST(CompiledProgram, JoinedProgramsAreKeptInTheCache) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::string folder = testing::TempDir() + "/joined_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  EXPECT_EXIT(std::exit(join_twice(folder)), testing::ExitedWithCode(0), "");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tpu::client
