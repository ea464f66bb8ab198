// Seed and number of the inputs of a fuzz test. Both can be chosen; sim_scripts/fuzz.py does, and
// reads in the report of a test how many inputs it had.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace tpu::test {

/// TPU_FUZZ_SEED, or what a test usually has.
inline uint32_t fuzz_seed(uint32_t usual) {
  const char* const chosen = std::getenv("TPU_FUZZ_SEED");
  return chosen != nullptr ? static_cast<uint32_t>(std::stoul(chosen)) : usual;
}

/// TPU_FUZZ_INPUTS, or what a test usually has: inputs of the test that runs. Once for each test.
inline int fuzz_inputs(int usual) {
  const char* const chosen = std::getenv("TPU_FUZZ_INPUTS");
  const int inputs = chosen != nullptr ? std::stoi(chosen) : usual;
  ::testing::Test::RecordProperty("inputs", inputs);
  return inputs;
}

}  // namespace tpu::test
