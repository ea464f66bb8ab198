// What a client of futures sees of failures: whatever depends on something lost fails with the same
// error, whether it was submitted before or after, nothing of it is sent, and the rest goes on.
#include <gtest/gtest.h>

#include <future>

#include "tests/driver/error_code.hpp"
#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"

namespace tpu::driver {
namespace {

using test::code_of;
using test::counting;
using test::NullBoard;
using test::ProgramBuilder;
using ErrorPtr = std::shared_ptr<const Error>;

OpenOptions with_thread() {
  OpenOptions options;
  options.completion_thread = true;
  return options;
}

class Poison : public ::testing::Test {
 protected:
  // Takes over argument 0, reads argument 1.
  Executable load_step() {
    ProgramBuilder builder(8);
    builder.argument(DType::kI32, {256});
    builder.argument(DType::kI32, {16});
    builder.result(DType::kI32, {256}, false, 0);
    builder.result(DType::kI32, {16});
    return n_.board.load(builder.bytes());
  }

  // The error with which the event becomes ready by itself; null when it is good.
  static ErrorPtr end_of(const Event& event) {
    std::promise<ErrorPtr> told;
    event.on_ready([&](ErrorPtr error) { told.set_value(std::move(error)); });
    return told.get_future().get();
  }

  // The first launch fails on core 5, in the program's only op.
  void fail_first_launch() {
    n_.null->executor = [this](NullLaunch&) -> std::optional<tpu_fault_record_t> {
      if (launches_++ > 0) {
        return std::nullopt;
      }
      tpu_fault_record_t fault{};
      fault.code = TPU_FAULT_DESCRIPTOR;
      fault.core = 5;
      return fault;
    };
  }

  const HostArray state_ = counting(DType::kI32, {256});
  const HostArray input_ = counting(DType::kI32, {16});
  std::atomic<int> launches_{0};
  NullBoard n_{with_thread()};
};

TEST_F(Poison, AFaultInTheMiddleFailsWhatWasSubmittedBehindIt) {
  const Executable step = load_step();
  const Array input = step.put(1, input_);
  const Array state = step.put(0, state_);
  n_.board.synchronize();
  fail_first_launch();
  const HostEvent gate = n_.board.make_event();  // all of it is submitted before anything runs
  const RunResult lost =
      step.run({state, input}, {.steps = 1, .keep = {}, .after = {gate.event()}});
  const RunResult behind = step.run({lost.outputs[0], input});
  const Buffer moved = n_.board.copy(behind.outputs[1].parts()[3], 6);
  std::vector<std::byte> out(input_.bytes.size(), std::byte{0xAB});
  const Event read = moved.read(out);
  const RunResult other =
      step.run({step.put(0, state_), input}, {.steps = 1, .keep = {}, .after = {gate.event()}});
  gate.set();

  const ErrorPtr error = end_of(lost.done);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kDeviceFault);
  EXPECT_EQ(error->place().device, 5);
  EXPECT_EQ(error->place().op, "dot_general");
  EXPECT_EQ(error->place().source, "model.py:42");
  for (const Event& event :
       {behind.done, behind.outputs[0].parts()[0].ready(), moved.ready(), read}) {
    EXPECT_EQ(end_of(event), error);
  }
  EXPECT_EQ(out, std::vector<std::byte>(out.size(), std::byte{0xAB}));
  EXPECT_FALSE(state.parts()[0].live());
  EXPECT_FALSE(lost.outputs[0].parts()[0].live());
  EXPECT_EQ(end_of(other.done), nullptr);
  EXPECT_EQ(other.outputs[0].to_host_checked("other").bytes, state_.bytes);
  EXPECT_EQ(launches_, 2);
}

TEST_F(Poison, WhatIsSubmittedAfterAFailureFailsAlikeAndSendsNothing) {
  const Executable step = load_step();
  const Array input = step.put(1, input_);
  fail_first_launch();
  const RunResult lost = step.run({step.put(0, state_), input});
  const ErrorPtr error = end_of(lost.done);
  ASSERT_NE(error, nullptr);
  const Array state = step.put(0, state_);
  n_.board.synchronize();
  const uint64_t sent = n_.null->commands_done;
  const RunResult behind = step.run({state, lost.outputs[1]});
  EXPECT_EQ(end_of(behind.done), error);
  const Buffer copy = n_.board.copy(behind.outputs[1].parts()[0], 0);
  EXPECT_EQ(end_of(copy.ready()), error);
  EXPECT_EQ(end_of(n_.board.copy(copy, 7).ready()), error);
  std::vector<std::byte> out(input_.bytes.size());
  EXPECT_EQ(end_of(copy.read(out)), error);
  EXPECT_EQ(code_of([&] { copy.to_host(); }), ErrorCode::kDeviceFault);
  n_.board.synchronize();
  EXPECT_EQ(n_.null->commands_done, sent);
  // What it would have taken over is whole, and good for another launch.
  EXPECT_EQ(step.run({state, input}).outputs[0].to_host_checked("state").bytes, state_.bytes);
}

TEST_F(Poison, AnEventThatTheHostFailsReachesAllThatWaitsForIt) {
  const Executable step = load_step();
  const Array input = step.put(1, input_);
  const Array state = step.put(0, state_);
  n_.board.synchronize();
  const HostEvent gate = n_.board.make_event();
  const RunResult lost =
      step.run({state, input}, {.steps = 1, .keep = {}, .after = {gate.event()}});
  const RunResult behind = step.run({lost.outputs[0], input});
  std::vector<std::byte> out(state_.bytes.size());
  const Event read = behind.outputs[0].read(out);
  gate.fail(Error(ErrorCode::kCancelled, "the batch was not read"));
  for (const Event& event : {lost.done, behind.done, read}) {
    const ErrorPtr error = end_of(event);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->message(), "the batch was not read");
  }
  EXPECT_EQ(state.to_host_checked("state").bytes, state_.bytes);
}

}  // namespace
}  // namespace tpu::driver
