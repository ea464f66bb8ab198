// One core that stands for all, by which programs of millions of commands are estimated: as near to
// all cores, one by one, as an estimate must be to the board.
#include "program/estimate.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "board/board_loader.hpp"
#include "entry/compile.hpp"
#include "import/file.hpp"
#include "program/timed_gang.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::compiler {
namespace {

constexpr uint64_t kNoLimit = UINT64_MAX;

class Estimate : public ::testing::TestWithParam<const char*> {};

TEST_P(Estimate, OneCoreThatStandsForAllIsWithinFivePercent) {
  const spec::BoardParams board = spec::load_board("v3_8");
  const Compiled out =
      compile(read_file(std::string(TPU_SOURCES) + "/" + GetParam() + ".mlirbc"), "step", board);
  ASSERT_EQ(out.executable.partitions, 8u);
  const auto image = std::as_bytes(std::span(out.executable.image));
  const auto code = image.subspan(sizeof(tpu_program_image_header_t));
  const std::vector<int> cores = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto all = TimedGang(code, cores, board, GangMode::kAll).run(kNoLimit);
  const auto folded = TimedGang(code, cores, board, GangMode::kFolded).run(kNoLimit);
  ASSERT_TRUE(all && folded);
  EXPECT_EQ(out.executable.estimated_cycles, *all);
  const double error = static_cast<double>(*folded) / static_cast<double>(*all) - 1;
  RecordProperty("percent_off", std::to_string(100 * error));
  EXPECT_LE(std::abs(error), 0.05) << *folded << " cycles folded, " << *all << " of all cores";
}

INSTANTIATE_TEST_SUITE_P(TrainingSteps, Estimate,
                         ::testing::Values("tests/data/mlp_sgd", "tests/data/mlp_adam",
                                           "examples/mnist_mlp/train_step",
                                           "examples/mnist_convnet/train_step"));

}  // namespace
}  // namespace tpu::compiler
