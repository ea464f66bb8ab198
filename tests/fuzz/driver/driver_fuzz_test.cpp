// Executables with damaged tables and a right hash through the driver, under sanitizers, on the
// null transport: each is refused with an error of its own, or loaded, launched and read back. The
// same on the simulated board: tests/fuzz/board.
#include <gtest/gtest.h>

#include <map>

#include "tests/fuzz/amount.hpp"
#include "tests/fuzz/corpus.hpp"
#include "tests/fuzz/table_mutator.hpp"
#include "tests/fuzz/use_damaged.hpp"

namespace tpu {
namespace {

constexpr int kMutations = 3000;
constexpr uint32_t kSeed = 20240604;

TEST(DriverFuzz, DamagedTablesAreRefusedOrLaunched) {
  const uint32_t seed = test::fuzz_seed(kSeed);
  const auto corpus = test::fuzz_corpus(TPU_PROGRAMS, ".tpuexe");
  ASSERT_GE(corpus.size(), 7u);
  std::vector<exe::ExecutableT> programs;
  for (const auto& file : corpus) {
    programs.push_back(exe::read_executable(file));
  }
  driver::OpenOptions options;
  options.transport = "null";
  const driver::Board board = driver::Board::open(options);
  test::TableMutator mutator(seed);
  std::map<std::string, int> outcomes;
  const int mutations = test::fuzz_inputs(kMutations);
  for (int i = 0; i < mutations; ++i) {
    SCOPED_TRACE("mutation " + std::to_string(i) + " of seed " + std::to_string(seed));
    exe::ExecutableT damaged = programs[static_cast<size_t>(i) % programs.size()];
    mutator.change(damaged);
    ++outcomes[test::use_damaged(board, exe::write_executable(damaged))];
  }
  for (const auto& [name, count] : outcomes) {
    std::printf("%s: %d\n", name.empty() ? "success" : name.c_str(), count);
  }
  EXPECT_GT(outcomes[""], mutations / 20);
  EXPECT_GT(outcomes["InvalidArgument"], mutations / 20);
  for (const auto& file : corpus) {
    EXPECT_EQ(test::use_damaged(board, file), "");
  }
  for (const driver::DeviceInfo& device : board.devices()) {
    EXPECT_EQ(device.hbm_used, 0u) << "memory that a refused or a dropped program keeps";
  }
}

}  // namespace
}  // namespace tpu
