// Launches that end without having started: whatever the reason, their donated buffers are live
// again and hold what they held, and nothing else is lost.
#include <gtest/gtest.h>

#include <new>

#include "tests/driver/failing_allocations.hpp"
#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"

namespace tpu::driver {
namespace {

using test::counting;
using test::NullBoard;
using test::ProgramBuilder;

class NeverStarted : public ::testing::Test {
 protected:
  // Takes over argument 0, reads argument 1.
  Executable load_step(uint32_t partitions = 8) {
    ProgramBuilder builder(partitions);
    builder.argument(DType::kI32, {256});
    builder.argument(DType::kI32, {16});
    builder.result(DType::kI32, {256}, false, 0);
    return n_.board.load(builder.bytes());
  }
  // Makes what the step reads.
  Executable load_input() {
    ProgramBuilder builder(8);
    builder.argument(DType::kI32, {16});
    builder.result(DType::kI32, {16});
    return n_.board.load(builder.bytes());
  }
  Array put_state(const Executable& step, uint8_t start = 40) {
    return step.put(0, counting(DType::kI32, {256}, start));
  }
  Array put_raw(const Executable& input) { return input.put(0, counting(DType::kI32, {16})); }

  void fail_every_launch() {
    n_.null->executor = [this](NullLaunch&) -> std::optional<tpu_fault_record_t> {
      ++launches_;
      tpu_fault_record_t fault{};
      fault.code = TPU_FAULT_DESCRIPTOR;
      fault.core = 2;
      return fault;
    };
  }
  static void expect_whole(const Array& state, uint8_t start = 40) {
    for (const Buffer& part : state.parts()) {
      EXPECT_TRUE(part.live());
    }
    EXPECT_EQ(state.to_host_checked("state").bytes, counting(DType::kI32, {256}, start).bytes);
  }

  // What the next step would read, made by a launch that fails.
  RunResult lose_input(const Executable& input, const Array& raw) {
    n_.board.synchronize();
    fail_every_launch();
    return input.run({raw});
  }

  NullBoard n_;
  int launches_ = 0;
};

TEST_F(NeverStarted, AnInputThatIsLostInTheQueueGivesTheOthersBack) {
  const Executable step = load_step();
  const Executable input = load_input();
  const Array state = put_state(step);
  const Array raw = put_raw(input);
  const RunResult batch = lose_input(input, raw);
  const RunResult after = step.run({state, batch.outputs[0]});
  EXPECT_NE(batch.done.wait_for_error(), nullptr);
  EXPECT_NE(after.done.wait_for_error(), nullptr);
  EXPECT_EQ(launches_, 1);
  expect_whole(state);
  EXPECT_FALSE(after.outputs[0].parts()[0].live());
}

TEST_F(NeverStarted, AnInputThatIsLostAtTheCallGivesTheOthersBack) {
  const Executable step = load_step();
  const Executable input = load_input();
  const Array state = put_state(step);
  const Array raw = put_raw(input);
  const RunResult batch = lose_input(input, raw);
  EXPECT_NE(batch.done.wait_for_error(), nullptr);
  EXPECT_NE(step.run({state, batch.outputs[0]}).done.wait_for_error(), nullptr);
  EXPECT_EQ(launches_, 1);
  expect_whole(state);
}

TEST_F(NeverStarted, AChainOfLaunchesGivesBackWhatNoneOfThemTouched) {
  const Executable step = load_step();
  const Executable input = load_input();
  const Array raw = put_raw(input);
  std::vector<Array> states;
  for (uint8_t i = 0; i < 4; ++i) {
    states.push_back(put_state(step, static_cast<uint8_t>(10 + i)));
  }
  Array batch = lose_input(input, raw).outputs[0];
  std::vector<Event> done;
  for (const Array& state : states) {
    done.push_back(step.run({state, batch}).done);
    batch = input.run({batch}).outputs[0];
  }
  for (const Event& event : done) {
    EXPECT_NE(event.wait_for_error(), nullptr);
  }
  EXPECT_EQ(launches_, 1);
  for (uint8_t i = 0; i < 4; ++i) {
    expect_whole(states[i], static_cast<uint8_t>(10 + i));
  }
}

TEST_F(NeverStarted, CancellingABoardStartsNothingMore) {
  const Executable step = load_step();
  const Array other = step.put(1, counting(DType::kI32, {16}));
  const Array first = put_state(step);
  const Array second = put_state(step);
  n_.board.synchronize();
  n_.null->executor = [this](NullLaunch&) -> std::optional<tpu_fault_record_t> {
    ++launches_;
    return std::nullopt;
  };
  n_.null->stuck_launches = 1;
  const Event running = step.run({first, other}).done;
  n_.board.put(0, counting(DType::kU8, {8})).ready().wait();  // lets it begin
  const Event queued = step.run({second, other}).done;
  n_.board.close(CloseMode::kCancel);
  EXPECT_NE(running.wait_for_error(), nullptr);
  const auto error = queued.wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kCancelled) << error->what();
  EXPECT_NE(error->message().find("the board is closed"), std::string::npos) << error->message();
  EXPECT_EQ(launches_, 0);
  EXPECT_FALSE(first.parts()[0].live());
  EXPECT_TRUE(second.parts()[0].live());
}

TEST_F(NeverStarted, ARefusedSlotTableGivesBack) {
  const Executable step = load_step();
  const Array other = step.put(1, counting(DType::kI32, {16}));
  const Array state = put_state(step);
  n_.board.synchronize();
  n_.null->corrupt_entries = 1 << 20;
  EXPECT_NE(step.run({state, other}).done.wait_for_error(), nullptr);
  n_.null->corrupt_entries = 0;
  expect_whole(state);
}

TEST_F(NeverStarted, ABrokenBoardSaysSo) {
  const Executable step = load_step();
  const Array other = step.put(1, counting(DType::kI32, {16}));
  const Array state = put_state(step);
  n_.board.synchronize();
  n_.null->throw_in_run = true;
  const Event done = step.run({state, other}).done;
  const auto error = done.wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_NE(error->message().find("told to break"), std::string::npos);
  EXPECT_THROW(step.run({state, other}), Error);
}

// Every allocation of the call fails once: it throws and has changed nothing, or it has launched.
TEST_F(NeverStarted, LackOfHostMemoryInTheCallGivesBack) {
  const Executable step = load_step();
  const Array other = step.put(1, counting(DType::kI32, {16}));
  Array state = put_state(step);
  n_.board.synchronize();
  const std::vector<uint64_t> before = test::hbm_used(n_.board);
  int failures = 0;
  for (;; ++failures) {
    ASSERT_LT(failures, 5000);
    const std::vector<Array> arguments = {state, other};
    RunResult result;
    bool thrown = false;
    test::allocations_left = failures;
    try {
      result = step.run(arguments);
    } catch (const std::bad_alloc&) {
      thrown = true;
    } catch (const Error& error) {
      thrown = true;
    }
    const bool failed = test::allocations_left < 0;
    test::allocations_left = -1;
    if (!failed) {
      ASSERT_EQ(result.done.wait_for_error(), nullptr);
      break;
    }
    if (thrown) {
      ASSERT_TRUE(state.parts()[7].live()) << "after allocation " << failures;
    } else {
      ASSERT_EQ(result.done.wait_for_error(), nullptr);
      state = result.outputs[0];
    }
    ASSERT_EQ(test::hbm_used(n_.board), before) << "after allocation " << failures;
  }
  EXPECT_GT(failures, 100);
}

}  // namespace
}  // namespace tpu::driver
