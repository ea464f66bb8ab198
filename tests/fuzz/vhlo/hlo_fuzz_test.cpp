// 10,000 damaged HLO modules through import and passes, under sanitizers: each is refused with
// compiler::Error or compiled, nothing else. Half are damaged as bytes, half as protocol buffers.
// The same seed gives the same inputs (TPU_FUZZ_SEED chooses another, TPU_FUZZ_INPUTS how many).
#include <gtest/gtest.h>

#include "entry/pipeline.hpp"
#include "import/import.hpp"
#include "tests/fuzz/amount.hpp"
#include "tests/fuzz/artifact_mutator.hpp"
#include "tests/fuzz/corpus.hpp"
#include "tests/fuzz/proto_mutator.hpp"

namespace tpu::compiler {
namespace {

using Bytes = std::vector<std::byte>;

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(HloFuzz, DamagedModulesAreRefusedOrCompiled) {
  const std::vector<Bytes> seeds = test::fuzz_corpus(TPU_TEST_DATA "/hlo", ".pb");
  ASSERT_GE(seeds.size(), 8u);
  const uint32_t seed = test::fuzz_seed(20251128);
  const int inputs = test::fuzz_inputs(10000);
  test::ArtifactMutator bytes(seed);
  test::ProtoMutator fields(seed);
  int refused = 0;
  for (int i = 0; i < inputs; ++i) {
    const Bytes& original = seeds[static_cast<size_t>(i / 2) % seeds.size()];
    Bytes input = i % 2 == 0 ? bytes.mutate(original) : Bytes();
    if (i % 2 != 0) {
      const std::string damaged = fields.mutate(text_of(original));
      const auto all = std::as_bytes(std::span(damaged));
      input.assign(all.begin(), all.end());
    }
    try {
      Module m = import_program(input, "fuzz");
      run_passes(m, compile_passes());
    } catch (const Error&) {
      ++refused;
    } catch (const std::exception& e) {
      ADD_FAILURE() << "input " << i << " of seed " << seed << ": " << e.what();
    }
  }
  std::printf("--seed=%u: %d of %d inputs refused\n", seed, refused, inputs);
  EXPECT_GT(refused, inputs / 4);
  EXPECT_LT(refused, inputs);
}

}  // namespace
}  // namespace tpu::compiler
