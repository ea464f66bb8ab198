// Damaged artifacts that still are programs through the whole compiler, under sanitizers: each is
// refused with compiler::Error, or becomes an executable that the reader accepts. Programs whose
// arrays a mutation made large are left out: they are not wrong, they only take long. The input
// under way lies in a file, so that a crash leaves it behind.
#include <gtest/gtest.h>

#include <fstream>

#include "board/board_loader.hpp"
#include "entry/codegen.hpp"
#include "entry/pipeline.hpp"
#include "import/import.hpp"
#include "tests/fuzz/amount.hpp"
#include "tests/fuzz/artifact_mutator.hpp"
#include "tests/fuzz/corpus.hpp"

namespace tpu::compiler {
namespace {

constexpr int kMutations = 6000;
constexpr uint32_t kSeed = 20240605;
constexpr int64_t kLargestArray = int64_t{1} << 18;  // bytes
constexpr size_t kMostOps = 500;

bool is_small(const Module& m) {
  size_t ops = 0;
  int64_t largest = 0;
  walk(m.main->body, [&](const Op& op) {
    ++ops;
    for (const auto& result : op.results) {
      largest = std::max(largest, result->type.bytes());
    }
  });
  for (const auto& arg : m.main->body.args) {
    largest = std::max(largest, arg->type.bytes());
  }
  return ops <= kMostOps && largest <= kLargestArray;
}

void keep(const std::vector<std::byte>& input) {
  std::ofstream file(testing::TempDir() + "codegen_fuzz_last.mlirbc", std::ios::binary);
  file.write(reinterpret_cast<const char*>(input.data()),
             static_cast<std::streamsize>(input.size()));
}

TEST(CodegenFuzz, DamagedProgramsAreRefusedOrBecomeExecutables) {
  const auto seeds = test::fuzz_corpus(TPU_TEST_DATA, ".mlirbc");
  ASSERT_GE(seeds.size(), 10u);
  const uint32_t seed = test::fuzz_seed(kSeed);
  const spec::BoardParams board = spec::load_board("v3_8");
  test::ArtifactMutator mutator(seed);
  int compiled = 0;
  const int mutations = test::fuzz_inputs(kMutations);
  for (int i = 0; i < mutations; ++i) {
    SCOPED_TRACE("mutation " + std::to_string(i) + " of seed " + std::to_string(seed));
    const auto input = mutator.mutate(seeds[static_cast<size_t>(i) % seeds.size()]);
    keep(input);
    try {
      Module m = import_vhlo(input, "fuzz");
      run_passes(m, compile_passes());
      if (!is_small(m)) {
        continue;
      }
      const exe::ExecutableT exe = generate(m, board);
      EXPECT_NO_THROW(static_cast<void>(exe::read_executable(exe::write_executable(exe))));
      ++compiled;
    } catch (const Error&) {
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
  std::printf("--seed=%u: %d of %d inputs compiled\n", seed, compiled, mutations);
  EXPECT_GT(compiled, mutations / 50);
}

}  // namespace
}  // namespace tpu::compiler
