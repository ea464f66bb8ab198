// 10,000 damaged artifacts (flipped bits, changed bytes, cuts, spliced pieces) through import and
// passes, under sanitizers: each is refused with compiler::Error or compiled, nothing else. The
// same seed gives the same inputs (TPU_FUZZ_SEED chooses another).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "import/import.hpp"
#include "lower/lower.hpp"
#include "tests/fuzz/corpus.hpp"

namespace tpu::compiler {
namespace {

constexpr int kMutations = 10000;
constexpr uint32_t kSeed = 20240601;

using Bytes = std::vector<std::byte>;

std::vector<Bytes> corpus() { return test::fuzz_corpus(TPU_TEST_DATA, ".mlirbc"); }

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  Bytes mutate(const Bytes& original) {
    Bytes b = original;
    const size_t changes = 1 + below(4);
    for (size_t i = 0; i < changes && !b.empty(); ++i) {
      const size_t at = below(b.size());
      switch (below(6)) {
        case 0:
        case 1:
          b[at] ^= static_cast<std::byte>(1u << below(8));
          break;
        case 2:
          b[at] = static_cast<std::byte>(below(256));
          break;
        case 3:
          b.resize(at);
          break;
        case 4: {  // a piece of the file over another
          const size_t n = std::min({below(16) + 1, b.size() - at, b.size()});
          const size_t from = below(b.size() - n + 1);
          std::copy_n(Bytes(b.begin() + static_cast<std::ptrdiff_t>(from), b.end()).begin(), n,
                      b.begin() + static_cast<std::ptrdiff_t>(at));
          break;
        }
        default:
          b.insert(b.begin() + static_cast<std::ptrdiff_t>(at), static_cast<std::byte>(below(256)));
          break;
      }
    }
    return b;
  }

 private:
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  std::mt19937 random_;
};

TEST(VhloFuzz, DamagedArtifactsAreRefusedOrCompiled) {
  const std::vector<Bytes> seeds = corpus();
  ASSERT_GE(seeds.size(), 10u);
  const char* chosen = std::getenv("TPU_FUZZ_SEED");
  const uint32_t seed = chosen != nullptr ? static_cast<uint32_t>(std::stoul(chosen)) : kSeed;
  Mutator mutator(seed);
  int refused = 0;
  for (int i = 0; i < kMutations; ++i) {
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
  std::printf("--seed=%u: %d of %d inputs refused\n", seed, refused, kMutations);
  EXPECT_GT(refused, kMutations / 4);
  EXPECT_LT(refused, kMutations);
}

}  // namespace
}  // namespace tpu::compiler
