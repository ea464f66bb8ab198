// 10,000 damaged artifacts (flipped bits, changed bytes, cuts, spliced pieces) through import and
// passes, under sanitizers: each is refused with compiler::Error or compiled, nothing else. The
// same seed gives the same inputs (TPU_FUZZ_SEED chooses another).
#include <gtest/gtest.h>

#include "entry/pipeline.hpp"
#include "import/import.hpp"
#include "tests/fuzz/amount.hpp"
#include "tests/fuzz/artifact_mutator.hpp"
#include "tests/fuzz/corpus.hpp"

namespace tpu::compiler {
namespace {

constexpr int kMutations = 10000;
constexpr uint32_t kSeed = 20240601;

using Bytes = std::vector<std::byte>;

std::vector<Bytes> corpus() { return test::fuzz_corpus(TPU_TEST_DATA, ".mlirbc"); }

TEST(VhloFuzz, DamagedArtifactsAreRefusedOrCompiled) {
  const std::vector<Bytes> seeds = corpus();
  ASSERT_GE(seeds.size(), 10u);
  const uint32_t seed = test::fuzz_seed(kSeed);
  test::ArtifactMutator mutator(seed);
  int refused = 0;
  const int mutations = test::fuzz_inputs(kMutations);
  for (int i = 0; i < mutations; ++i) {
    const Bytes input = mutator.mutate(seeds[static_cast<size_t>(i) % seeds.size()]);
    try {
      Module m = import_vhlo(input, "fuzz");
      run_passes(m, compile_passes());
    } catch (const Error&) {
      ++refused;
    } catch (const std::exception& e) {
      ADD_FAILURE() << "mutation " << i << " of seed " << seed << ": " << e.what();
    }
  }
  std::printf("--seed=%u: %d of %d inputs refused\n", seed, refused, mutations);
  EXPECT_GT(refused, mutations / 4);
  EXPECT_LT(refused, mutations);
}

}  // namespace
}  // namespace tpu::compiler
