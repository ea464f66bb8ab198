// The profile: which steps are in it, and that taking it forgets them. What XProf reads from one:
// tests/driver/xprof_test.py.
#include "timeline/xprof_sink.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "board/board_loader.hpp"

namespace tpu::model {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void run_step(XprofSink& sink, uint64_t step) {
  const ProbeSource source{.core = 2,
                           .unit = static_cast<uint32_t>(spec::Queue::kMxu0),
                           .sequence = step + 1,
                           .step = step,
                           .op_id = 41,
                           .opcode = static_cast<uint8_t>(spec::Opcode::kMatmul)};
  const uint64_t at = 1000 * step;
  sink.program({.cycle = at, .core = 2, .mask = 4, .launch = 1, .step = step, .begin = true});
  sink.start({.cycle = at + 10, .source = source, .flops = 2000});
  sink.done({.cycle = at + 500, .source = source, .start = at + 10});
  sink.program({.cycle = at + 900, .core = 2, .mask = 4, .launch = 1, .step = step});
}

TEST(XprofSink, TakesWhatIsOverAndForgetsIt) {
  const LaunchPrograms programs;
  XprofSink sink(spec::load_board("v3_8"), 0, UINT64_MAX, programs);
  EXPECT_EQ(sink.take_xspace(), "");
  run_step(sink, 0);
  const std::string space = sink.take_xspace();
  EXPECT_THAT(space, HasSubstr("/device:TPU:2"));
  EXPECT_THAT(space, Not(HasSubstr("/device:TPU:1")));  // ran nothing
  EXPECT_THAT(space, HasSubstr("%op 41.41"));
  EXPECT_THAT(space, HasSubstr("matrix_unit_utilization_percent"));
  EXPECT_EQ(sink.take_xspace(), "");
  run_step(sink, 1);
  // The same again but for the number of the step: times begin with the first step.
  EXPECT_EQ(sink.take_xspace().size(), space.size());
}

TEST(XprofSink, NamesTheKindOfTheChip) {
  const LaunchPrograms programs;
  for (const auto& [board, kind, other] :
       {std::tuple{"v3_8", "TPU v3", "TPU v2"}, std::tuple{"v2_8", "TPU v2", "TPU v3"}}) {
    XprofSink sink(spec::load_board(board), 0, UINT64_MAX, programs);
    run_step(sink, 0);
    const std::string space = sink.take_xspace();
    EXPECT_THAT(space, HasSubstr(kind));
    EXPECT_THAT(space, Not(HasSubstr(other)));
  }
}

TEST(XprofSink, AStepThatIsNotOverIsLeftOut) {
  const LaunchPrograms programs;
  XprofSink sink(spec::load_board("v3_8"), 0, UINT64_MAX, programs);
  sink.program({.cycle = 5, .core = 1, .mask = 2, .launch = 1, .begin = true});
  EXPECT_THAT(sink.take_xspace(), Not(HasSubstr("/device:TPU:1")));
}

TEST(XprofSink, AWindowOfSteps) {
  const LaunchPrograms programs;
  XprofSink sink(spec::load_board("v3_8"), 3, 2, programs);
  run_step(sink, 0);
  EXPECT_EQ(sink.take_xspace(), "");
  run_step(sink, 4);
  EXPECT_NE(sink.take_xspace(), "");
  run_step(sink, 5);
  EXPECT_EQ(sink.take_xspace(), "");
}

}  // namespace
}  // namespace tpu::model
