// Damaged core programs with a right hash on one simulated board, through driver, PCIe and
// firmware: each launch succeeds or ends with an error of its own within a bounded number of
// cycles, and the board computes the undamaged program afterwards as before. Reading and decoding
// alone: tests/fuzz/exe; the driver's part under sanitizers: tests/fuzz/driver.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "exe/executable.hpp"
#include "tests/driver/program_builder.hpp"
#include "tests/fuzz/amount.hpp"
#include "tests/fuzz/corpus.hpp"
#include "tests/fuzz/table_mutator.hpp"
#include "tests/fuzz/use_damaged.hpp"
#include "tpu/spec/program_image.h"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

constexpr int kMutations = 1000;
constexpr int kTableMutations = 1000;
constexpr int kBetweenChecks = 50;
// An endless program ends sooner than with the board's own watchdog.
constexpr double kWatchdogSeconds = 1e-3;
constexpr const char* kShortWatchdog = "mgmt.watchdog_us=1000";
// Load, launch and the recovery after a fault end within so many of them.
constexpr double kMostWatchdogs = 4;

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> text((std::istreambuf_iterator<char>(file)), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

class BoardFuzz : public ::testing::Test {
 protected:
  // One board for all: a process has one simulated board.
  static void SetUpTestSuite() {
    exe_ = exe::read_executable(read_file(std::string(TPU_PROGRAMS) + "/tanh_layer.tpuexe"));
    OpenOptions options;
    options.overrides = {kShortWatchdog};
    board_ = Board::open(options);
    good_ = board_.load(exe::write_executable(exe_));
    expected_ = run_good();
  }
  static void TearDownTestSuite() {
    good_ = {};
    board_ = {};
  }

  static std::vector<Array> arguments(const Executable& program) {
    std::vector<Array> placed;
    for (size_t i = 0; i < program.arguments().size(); ++i) {
      const ParameterInfo& info = program.arguments()[i];
      placed.push_back(program.put(i, test::counting(info.dtype, info.shape)));
    }
    return placed;
  }

  static std::vector<std::byte> run_good() {
    return good_.run(arguments(good_)).outputs[0].to_host().bytes;
  }

  // Cycles that the board may take for one damaged program.
  static double most_cycles() { return kMostWatchdogs * kWatchdogSeconds * board_.clock_hz(); }

  static uint32_t fuzz_seed() { return tpu::test::fuzz_seed(20240603); }

  // Empty: the launch succeeded.
  static std::string outcome(const exe::ExecutableT& exe) {
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

  static void print(const std::map<std::string, int>& outcomes) {
    for (const auto& [name, count] : outcomes) {
      std::printf("%s: %d\n", name.empty() ? "success" : name.c_str(), count);
    }
  }

  inline static exe::ExecutableT exe_;
  inline static Board board_;
  inline static Executable good_;
  inline static std::vector<std::byte> expected_;
};

TEST_F(BoardFuzz, DamagedCodeEndsAndTheBoardLives) {
  const uint32_t seed = fuzz_seed();
  std::mt19937 random(seed);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  std::map<std::string, int> outcomes;
  const int mutations = tpu::test::fuzz_inputs(kMutations);
  for (int i = 0; i < mutations; ++i) {
    exe::ExecutableT bad = exe_;
    for (size_t n = 1 + below(2); n > 0; --n) {
      uint8_t& byte = bad.image[sizeof(tpu_program_image_header_t) +
                                below(bad.image.size() - sizeof(tpu_program_image_header_t))];
      byte = static_cast<uint8_t>(below(2) == 0 ? byte ^ (1u << below(8)) : below(256));
    }
    const uint64_t start = board_.now();
    ++outcomes[outcome(bad)];
    EXPECT_LT(static_cast<double>(board_.now() - start), most_cycles())
        << "mutation " << i << " of seed " << seed;
    if (i % kBetweenChecks == 0) {
      ASSERT_EQ(run_good(), expected_) << "after mutation " << i << " of seed " << seed;
    }
  }
  print(outcomes);
  EXPECT_GT(outcomes[""], 0);
  EXPECT_GT(outcomes["DeviceFault"], 0);
  EXPECT_EQ(run_good(), expected_);
}

TEST_F(BoardFuzz, DamagedTablesEndAndTheBoardLives) {
  std::vector<exe::ExecutableT> programs;
  for (const auto& file : tpu::test::fuzz_corpus(TPU_PROGRAMS, ".tpuexe")) {
    programs.push_back(exe::read_executable(file));
  }
  const uint32_t seed = fuzz_seed() + 1;
  tpu::test::TableMutator mutator(seed);
  std::map<std::string, int> outcomes;
  const int mutations = tpu::test::fuzz_inputs(kTableMutations);
  for (int i = 0; i < mutations; ++i) {
    SCOPED_TRACE("mutation " + std::to_string(i) + " of seed " + std::to_string(seed));
    exe::ExecutableT bad = programs[static_cast<size_t>(i) % programs.size()];
    mutator.change(bad);
    const uint64_t start = board_.now();
    ++outcomes[tpu::test::use_damaged(board_, exe::write_executable(bad))];
    EXPECT_LT(static_cast<double>(board_.now() - start), most_cycles());
    if (i % kBetweenChecks == 0) {
      ASSERT_EQ(run_good(), expected_);
    }
  }
  print(outcomes);
  EXPECT_GT(outcomes[""], 0);
  EXPECT_GT(outcomes["InvalidArgument"], 0);
  EXPECT_EQ(run_good(), expected_);
  for (const exe::ExecutableT& undamaged : programs) {
    EXPECT_EQ(tpu::test::use_damaged(board_, exe::write_executable(undamaged)), "")
        << undamaged.name;
  }
}

}  // namespace
}  // namespace tpu::driver
