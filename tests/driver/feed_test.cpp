// Infeed and outfeed: launches of several steps whose batches come and whose results go while they
// run. The program is a delay line on two cores: y = s, s = x; so each result shows the batch of
// the step before, and a batch that is lost, doubled or late shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "tests/driver/error_code.hpp"
#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::code_of;
using test::counting;

constexpr const char* kSlots = R"(.partitions 2
.slot argument bytes=4096
.slot argument bytes=4096
.slot result bytes=4096 index=1
.arg "s" elem=i32 global=[2048] local=[1024] offsets=[0,1024] replicated=0 slot=0 donated_to=0
.arg "x" elem=i32 global=[2048] local=[1024] offsets=[0,1024] replicated=0 slot=1
.result "s" elem=i32 global=[2048] local=[1024] offsets=[0,1024] replicated=0 slot=0
.result "y" elem=i32 global=[2048] local=[1024] offsets=[0,1024] replicated=0 slot=2
)";

std::string move(const std::string& head, const std::string& from, const std::string& to) {
  return "  " + head + " src=" + from + " dst=" + to +
         " elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]\n";
}

std::string delay_line() {
  return std::string(".program \"delay\"\n") + kSlots +
         move("dma_in.dma signal=0:1", "hbm[0]+0", "vmem+0") +
         move("dma_in.dma signal=1:1", "hbm[1]+0", "vmem+4096") +
         move("dma_out.dma wait=0:1:take", "vmem+0", "hbm[2]+0") +
         move("dma_out.dma wait=1:1:take signal=2:1", "vmem+4096", "hbm[0]+0") +
         "  swait r2, r0, 1\n  halt\n";
}

// Leaves its slot.
std::string faulty() {
  return ".program \"faulty\"\n.partitions 2\n.slot argument bytes=4096\n"
         ".arg \"x\" elem=i32 global=[2048] local=[1024] offsets=[0,1024] replicated=0 slot=0\n" +
         move("dma_in.dma", "hbm[0]+64", "vmem+0") + "  halt\n";
}

std::optional<tpu_fault_record_t> run_null(NullLaunch& launch) {
  for (NullLaunchPart& part : launch.parts) {
    if (part.slots.size() == 1) {
      tpu_fault_record_t record{};
      record.code = TPU_FAULT_SLOT_RANGE;
      record.core = static_cast<uint8_t>(part.core);
      return record;
    }
    std::array<std::vector<std::byte>, 2> data;
    for (size_t i = 0; i < data.size(); ++i) {
      data[i].resize(part.slots[i].size);
      part.hbm->read(part.slots[i].base, data[i]);
    }
    part.hbm->write(part.slots[2].base, data[0]);
    part.hbm->write(part.slots[0].base, data[1]);
  }
  return std::nullopt;
}

HostArray batch(uint32_t step) {
  HostArray made{DType::kI32, {2048}, std::vector<std::byte>(8192)};
  for (uint32_t i = 0; i < 2048; ++i) {
    const uint32_t value = step * 100'000 + i;
    std::memcpy(made.bytes.data() + 4 * i, &value, 4);
  }
  return made;
}

class Feed : public ::testing::TestWithParam<const char*> {
 protected:
  void open(OpenOptions options = {}) {
    if (std::string(GetParam()) == "null") {
      board_ = test::open_null<NullTransport>(
          null_, std::move(options), [](NullTransport& null) { null.executor = run_null; });
    } else {
      board_ = Board::open(options);
    }
    delay_ = load(delay_line());
    state_ = delay_.put(0, batch(1000));
  }
  void TearDown() override {
    if (board_.valid()) {
      board_.close();
    }
  }
  Executable load(const std::string& text) {
    return board_.load(
        exe::write_executable(compiler::assemble(text, "test.s", spec::load_board("v3_8"))));
  }
  RunResult start(uint32_t steps, const std::vector<Event>& after = {}) {
    RunResult result =
        delay_.run({state_, Array()},
                   {.steps = steps, .keep = {}, .after = after, .infeed = {1}, .outfeed = {1}});
    state_ = result.outputs[0];
    return result;
  }
  // What step `step` gives: the batch of the one before.
  static void expect(const RunResult& run, uint32_t step, const HostArray& before) {
    const auto results = run.feed.take(step);
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0].bytes, before.bytes) << "step " << step;
  }
  static std::shared_ptr<const Error> failure(const RunResult& run) {
    return run.done.wait_for_error();
  }

  NullTransport* null_ = nullptr;
  Board board_;
  Executable delay_;
  Array state_;
};

TEST_P(Feed, EachStepTakesItsBatchAndGivesItsResult) {
  open();
  constexpr uint32_t kSteps = 23;
  const RunResult run = start(kSteps);
  EXPECT_FALSE(run.outputs[1].valid());
  HostArray before = batch(1000);
  for (uint32_t step = 0; step < kSteps; ++step) {
    run.feed.feed({batch(step)}).wait();
    expect(run, step, before);
    before = batch(step);
  }
  run.done.wait();
  EXPECT_EQ(run.outputs[0].to_host().bytes, before.bytes);
  EXPECT_EQ(code_of([&] { run.feed.feed({batch(0)}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { run.feed.take(3); }), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of([&] { run.feed.take(kSteps); }), ErrorCode::kInvalidArgument);
}

// The copies of its 46 batches and results would not fit into the window of the firmware behind the
// launches that wait for their turn.
TEST_P(Feed, LaunchesBehindALongOneDoNotKeepItsBatchesFromIt) {
  open();
  constexpr uint32_t kSteps = 23;
  const RunResult first = start(kSteps);
  const RunResult second = start(2);
  const RunResult third = start(2);
  HostArray before = batch(1000);
  for (const auto& [run, steps] : {std::pair(&first, kSteps), {&second, 2U}, {&third, 2U}}) {
    for (uint32_t step = 0; step < steps; ++step) {
      run->feed.feed({batch(step + steps)});
    }
    for (uint32_t step = 0; step < steps; ++step) {
      expect(*run, step, before);
      before = batch(step + steps);
    }
    EXPECT_EQ(failure(*run), nullptr);
  }
}

TEST_P(Feed, LaunchesAreFedOneBehindTheOtherAndBesideOtherWork) {
  open();
  const HostEvent begin = board_.make_event();
  std::vector<RunResult> runs;
  for (const uint32_t steps : {3U, 8U, 1U, 50U}) {
    runs.push_back(
        start(steps, runs.empty() ? std::vector<Event>{begin.event()} : std::vector<Event>{}));
  }
  std::vector<Event> there;
  const auto feed = [&](size_t run, uint32_t steps, uint32_t first) {
    for (uint32_t step = 0; step < steps; ++step) {
      there.push_back(runs[run].feed.feed({batch(first + step)}));
    }
  };
  feed(3, 50, 12);  // in any order of the launches
  feed(1, 8, 3);
  const HostArray other = counting(DType::kU8, {100'000});
  const Buffer buffer = board_.put(1, other);
  begin.set();
  feed(0, 3, 0);
  feed(2, 1, 11);
  EXPECT_EQ(buffer.to_host().bytes, other.bytes);
  HostArray before = batch(1000);
  uint32_t number = 0;
  for (size_t run = 0; run < runs.size(); ++run) {
    const uint32_t steps = std::array<uint32_t, 4>{3, 8, 1, 50}[run];
    for (uint32_t step = 0; step < steps; ++step) {
      expect(runs[run], step, before);
      before = batch(number++);
    }
  }
  for (const Event& event : there) {
    EXPECT_NO_THROW(event.wait());
  }
  EXPECT_EQ(state_.to_host().bytes, before.bytes);
}

// The lines of docs/host_driver.md.
TEST_P(Feed, TheExampleOfTheDriversPage) {
  open();
  const Executable step = delay_;
  Array state = state_;
  std::vector<HostArray> losses;
#include "feed_example.inc"
  ASSERT_EQ(losses.size(), 50U);
  for (uint32_t k = 0; k < 50; ++k) {
    EXPECT_EQ(losses[k].bytes, batch(k == 0 ? 1000 : k - 1).bytes) << k;
  }
  EXPECT_EQ(state.to_host().bytes, batch(49).bytes);
  run.done.wait();
}

TEST_P(Feed, InfeedAndOutfeedGoWithoutEachOther) {
  open();
  RunResult in = delay_.run({state_, Array()},
                            {.steps = 5, .keep = {}, .after = {}, .infeed = {1}, .outfeed = {}});
  for (uint32_t step = 0; step < 5; ++step) {
    in.feed.feed({batch(step)});
  }
  EXPECT_EQ(in.outputs[1].to_host().bytes, batch(3).bytes);
  EXPECT_EQ(code_of([&] { in.feed.take(0); }), ErrorCode::kInvalidArgument);
  RunResult out = delay_.run({in.outputs[0], delay_.put(1, batch(77))},
                             {.steps = 6, .keep = {}, .after = {}, .infeed = {}, .outfeed = {1}});
  expect(out, 5, batch(77));
  expect(out, 0, batch(4));
  EXPECT_EQ(code_of([&] { out.feed.feed({batch(0)}); }), ErrorCode::kInvalidArgument);
  out.done.wait();
}

TEST_P(Feed, ALaunchBehindAFaultGetsItsBatchesAgain) {
  open();
  const HostArray other = batch(9);
  const Executable bad = load(faulty());
  const Array argument = bad.put(0, other);
  const RunResult failed = bad.run({argument});
  const RunResult run = start(7);
  for (uint32_t step = 0; step < 7; ++step) {
    run.feed.feed({batch(step)});
  }
  EXPECT_NE(failure(failed), nullptr);
  HostArray before = batch(1000);
  for (uint32_t step = 0; step < 7; ++step) {
    expect(run, step, before);
    before = batch(step);
  }
  EXPECT_EQ(state_.to_host().bytes, before.bytes);
  EXPECT_EQ(board_.counters().recoveries, 1U);
}

// The launches behind it and its copies would not fit into the window of the firmware together.
TEST_P(Feed, ALaunchThatIsSentAgainIsFedBeforeManyBehindIt) {
  open();
  const Executable bad = load(faulty());
  const Array argument = bad.put(0, batch(9));
  const Array other = delay_.put(1, batch(77));
  const RunResult failed = bad.run({argument});
  const RunResult run = start(4);
  for (uint32_t step = 0; step < 4; ++step) {
    run.feed.feed({batch(step)});
  }
  for (int i = 0; i < 28; ++i) {
    state_ = delay_.run({state_, other}).outputs[0];
  }
  EXPECT_NE(failure(failed), nullptr);
  HostArray before = batch(1000);
  for (uint32_t step = 0; step < 4; ++step) {
    expect(run, step, before);
    before = batch(step);
  }
  EXPECT_EQ(failure(run), nullptr);
  EXPECT_EQ(state_.to_host().bytes, other.to_host().bytes);
}

TEST_P(Feed, ResultsThatAFaultBehindTheLaunchHasFlushedComeAllTheSame) {
  open();
  const Executable bad = load(faulty());
  const Array argument = bad.put(0, batch(9));
  for (uint32_t turn = 0; turn < 4; ++turn) {
    const RunResult run = start(2 + turn);
    for (uint32_t step = 0; step < 2 + turn; ++step) {
      run.feed.feed({batch(step)});
    }
    const RunResult failed = bad.run({argument});
    EXPECT_NE(failure(failed), nullptr);
    for (uint32_t step = 0; step < 2 + turn; ++step) {
      expect(run, step, batch(step == 0 ? 1000 : step - 1));
    }
    state_ = delay_.put(0, batch(1000));
  }
}

TEST_P(Feed, AnInfeedThatRunsDrySaysWhoWaits) {
  open();
  const Array bystander = delay_.put(1, batch(5));
  const Array given = state_;
  {
    const RunResult run = start(10);
    for (uint32_t step = 0; step < 3; ++step) {
      run.feed.feed({batch(step)});
    }
    expect(run, 2, batch(1));
    run.feed.end();
    EXPECT_EQ(code_of([&] { run.feed.feed({batch(3)}); }), ErrorCode::kFailedPrecondition);
    const auto error = failure(run);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(error->message().find("TPU:0, TPU:1 wait for the batch of step 3; the launch needs "
                                    "10, got 3"),
              std::string::npos)
        << error->message();
    expect(run, 0, batch(1000));  // what was there stays there
    EXPECT_EQ(code_of([&] { run.feed.take(4); }), ErrorCode::kInvalidArgument);
  }
  EXPECT_FALSE(given.parts()[0].live());
  EXPECT_EQ(bystander.to_host().bytes, batch(5).bytes);
  // Nothing was given: the state comes back. The last handle goes away without a word.
  state_ = delay_.put(0, batch(1000));
  const Array kept = state_;
  Event done;
  {
    const RunResult run = start(2);
    done = run.done;
  }
  EXPECT_EQ(code_of([&] { done.wait(); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(kept.to_host().bytes, batch(1000).bytes);
  state_ = kept;
  const RunResult run = start(1);
  run.feed.feed({batch(4)}).wait();
  expect(run, 0, batch(1000));
  run.done.wait();
}

TEST_P(Feed, WhoNeverFeedsMeetsTheTimeLimit) {
  OpenOptions options;
  options.time_limit = 0.05;
  open(options);
  const RunResult run = start(4);
  run.feed.feed({batch(0)});
  const auto error = failure(run);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kTimeout);
  EXPECT_NE(error->message().find("needs 4, got 1"), std::string::npos) << error->message();
  state_ = delay_.put(0, batch(1000));
  EXPECT_EQ(state_.to_host().bytes, batch(1000).bytes);
}

TEST_P(Feed, AnotherThreadFeeds) {
  open();
  constexpr uint32_t kSteps = 20;
  const RunResult run = start(kSteps);
  std::thread feeder([&] {
    for (uint32_t step = 0; step < kSteps; ++step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      run.feed.feed({batch(step)});
    }
  });
  for (uint32_t step = 0; step < kSteps; ++step) {
    expect(run, step, batch(step == 0 ? 1000 : step - 1));
  }
  feeder.join();
  run.done.wait();
}

TEST_P(Feed, RefusesWhatCannotBeFed) {
  open();
  const auto run = [&](const std::vector<Array>& arguments, const RunOptions& options) {
    return code_of([&] { delay_.run(arguments, options); });
  };
  const Array x = delay_.put(1, batch(0));
  const auto in = [](const std::vector<size_t>& infeed, const std::vector<size_t>& outfeed) {
    return RunOptions{.steps = 2, .keep = {}, .after = {}, .infeed = infeed, .outfeed = outfeed};
  };
  EXPECT_EQ(run({Array(), x}, in({0}, {})), ErrorCode::kInvalidArgument);  // donated
  EXPECT_EQ(run({state_, x}, in({}, {0})), ErrorCode::kInvalidArgument);   // in place
  EXPECT_EQ(run({state_, x}, in({1}, {})), ErrorCode::kInvalidArgument);   // not empty
  EXPECT_EQ(run({state_, Array()}, in({1, 1}, {})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(run({state_, Array()}, in({2}, {})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(run({state_, x}, in({}, {2})), ErrorCode::kInvalidArgument);
  const RunResult good = start(2);
  EXPECT_EQ(code_of([&] { good.feed.feed({}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { good.feed.feed({batch(0), batch(1)}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { good.feed.feed({counting(DType::kF32, {2048})}); }),
            ErrorCode::kInvalidArgument);
  HostArray cut = batch(0);
  cut.bytes.pop_back();
  EXPECT_EQ(code_of([&] { good.feed.feed({cut}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { StepFeed().end(); }), ErrorCode::kInvalidArgument);
  good.feed.feed({batch(0)});
  good.feed.feed({batch(1)});
  expect(good, 1, batch(0));
  EXPECT_EQ(code_of([&] { good.feed.take(1); }), ErrorCode::kFailedPrecondition);  // twice
}

TEST_P(Feed, AClosedBoardEndsALaunchThatWaits) {
  open();
  const RunResult run = start(3);
  run.feed.feed({batch(0)}).wait();
  const Event later = run.feed.ready(2);
  board_.close();
  EXPECT_EQ(code_of([&] { run.done.wait(); }), ErrorCode::kCancelled);
  EXPECT_EQ(code_of([&] { later.wait(); }), ErrorCode::kCancelled);
  EXPECT_EQ(code_of([&] { run.feed.feed({batch(1)}); }), ErrorCode::kFailedPrecondition);
}

INSTANTIATE_TEST_SUITE_P(Null, Feed, ::testing::Values("null"),
                         [](const auto& test) { return std::string(test.param); });
INSTANTIATE_TEST_SUITE_P(Sim, Feed, ::testing::Values("sim"),
                         [](const auto& test) { return std::string(test.param); });

// The bar of many steps a launch: the same bits, and of each step the dispatch is gone.
TEST(FeedTime, StepsOfOneLaunchSpareTheirDispatch) {
  constexpr uint32_t kSteps = 50;
  constexpr uint64_t kDispatch = 13'160'000;  // 14 ms
  OpenOptions options;
  options.overrides = {"host.dispatch_cycles=" + std::to_string(kDispatch)};
  const Board board = Board::open(options);
  const Executable delay = board.load(
      exe::write_executable(compiler::assemble(delay_line(), "test.s", spec::load_board("v3_8"))));
  std::vector<HostArray> single, fed;
  Array state = delay.put(0, batch(1000));
  state.wait();
  const uint64_t start = board.now();
  for (uint32_t step = 0; step < kSteps; ++step) {
    RunResult run = delay.run({state, delay.put(1, batch(step))});
    state = run.outputs[0];
    single.push_back(run.outputs[1].to_host());
  }
  const uint64_t middle = board.now();
  Array other = delay.put(0, batch(1000));
  const RunResult run = delay.run(
      {other, Array()}, {.steps = kSteps, .keep = {}, .after = {}, .infeed = {1}, .outfeed = {1}});
  for (uint32_t step = 0; step < kSteps; ++step) {
    run.feed.feed({batch(step)});
  }
  for (uint32_t step = 0; step < kSteps; ++step) {
    fed.push_back(run.feed.take(step)[0]);
  }
  run.done.wait();
  const uint64_t end = board.now();
  for (uint32_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(single[step].bytes, fed[step].bytes) << step;
  }
  EXPECT_EQ(state.to_host().bytes, run.outputs[0].to_host().bytes);
  const double spared = static_cast<double>((middle - start) - (end - middle)) / kSteps;
  const double dispatch = static_cast<double>(kDispatch) * (kSteps - 1) / kSteps;
  EXPECT_NEAR(spared, dispatch, 0.01 * dispatch);
  // The batches come while the steps before them run: a step takes no longer than the upload of its
  // batch, the barrier and the program do one after the other.
  EXPECT_LT((end - middle - kDispatch) / kSteps, 20'000U);
  EXPECT_EQ(board.counters().late_calls, 0U);
  board.close();
}

}  // namespace
}  // namespace tpu::driver
