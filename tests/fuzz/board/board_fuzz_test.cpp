// Damaged core programs with a right hash on one simulated board, through driver, PCIe and
// firmware: each launch succeeds or ends with an error of its own, and the board computes the
// undamaged program afterwards as before. Reading and decoding alone: tests/fuzz/exe.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "exe/executable.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/spec/program_image.h"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

constexpr int kMutations = 1000;
constexpr int kBetweenChecks = 50;
// An endless program ends sooner than with the board's own watchdog.
constexpr const char* kShortWatchdog = "mgmt.watchdog_us=1000";

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> text((std::istreambuf_iterator<char>(file)), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

class BoardFuzz : public ::testing::Test {
 protected:
  void SetUp() override {
    exe_ = exe::read_executable(read_file(TPU_TANH_LAYER));
    OpenOptions options;
    options.overrides = {kShortWatchdog};
    board_ = Board::open(options);
    good_ = board_.load(exe::write_executable(exe_));
    expected_ = run_good();
  }

  std::vector<Array> arguments(const Executable& program) const {
    std::vector<Array> placed;
    for (size_t i = 0; i < program.arguments().size(); ++i) {
      const ParameterInfo& info = program.arguments()[i];
      placed.push_back(program.put(i, test::counting(info.dtype, info.shape)));
    }
    return placed;
  }

  std::vector<std::byte> run_good() const {
    return good_.run(arguments(good_)).outputs[0].to_host().bytes;
  }

  // Empty: the launch succeeded.
  std::string outcome(const exe::ExecutableT& exe) {
    try {
      const Executable program = board_.load(exe::write_executable(exe));
      const auto error = program.run(arguments(program)).done.wait_for_error();
      return error == nullptr ? "" : code_of(*error);
    } catch (const Error& error) {
      return code_of(error);
    }
  }

  static std::string code_of(const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kDeviceFault ||
                error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kTimeout)
        << error.what();
    return error_code_name(error.code());
  }

  exe::ExecutableT exe_;
  Board board_;
  Executable good_;
  std::vector<std::byte> expected_;
};

TEST_F(BoardFuzz, DamagedCodeEndsAndTheBoardLives) {
  const char* chosen = std::getenv("TPU_FUZZ_SEED");
  const uint32_t seed = chosen != nullptr ? static_cast<uint32_t>(std::stoul(chosen)) : 20240603;
  std::mt19937 random(seed);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  std::map<std::string, int> outcomes;
  for (int i = 0; i < kMutations; ++i) {
    exe::ExecutableT bad = exe_;
    for (size_t n = 1 + below(2); n > 0; --n) {
      uint8_t& byte = bad.image[sizeof(tpu_program_image_header_t) +
                                below(bad.image.size() - sizeof(tpu_program_image_header_t))];
      byte = static_cast<uint8_t>(below(2) == 0 ? byte ^ (1u << below(8)) : below(256));
    }
    const auto start = std::chrono::steady_clock::now();
    ++outcomes[outcome(bad)];
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 20.0) << "mutation " << i << " of seed " << seed;
    if (i % kBetweenChecks == 0) {
      ASSERT_EQ(run_good(), expected_) << "after mutation " << i << " of seed " << seed;
    }
  }
  for (const auto& [name, count] : outcomes) {
    std::printf("%s: %d\n", name.empty() ? "success" : name.c_str(), count);
  }
  EXPECT_GT(outcomes[""], 0);
  EXPECT_GT(outcomes["DeviceFault"], 0);
  EXPECT_EQ(run_good(), expected_);
}

}  // namespace
}  // namespace tpu::driver
