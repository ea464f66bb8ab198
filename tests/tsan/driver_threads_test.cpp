// Host threads on one board of the null transport: submitting, waiting, callbacks, handles that end
// elsewhere, faults, and the end of the board while others use it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/tpu.hpp"
#include "transport/null/null_transport.hpp"

namespace tpu::driver {
namespace {

using test::counting;
using test::ProgramBuilder;

constexpr int kThreads = 6;

// With and without a completion thread.
class DriverThreads : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    OpenOptions options;
    options.completion_thread = GetParam();
    board_ = test::open_null(null_, options);
  }

  // A donated state of 256 i32.
  Executable load(uint32_t partitions, int device = 0) const {
    ProgramBuilder builder(partitions);
    builder.argument(DType::kI32, {256});
    builder.result(DType::kI32, {256}, false, 0);
    return board_.load(builder.bytes(), device);
  }

  static HostArray state(int start) {
    return counting(DType::kI32, {256}, static_cast<uint8_t>(start));
  }

  static void in_threads(const std::function<void(int)>& work) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back(work, t);
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  NullTransport* null_ = nullptr;
  Board board_;
};

TEST_P(DriverThreads, GangsAndSingleCoresShareTheBoard) {
  const Executable gang = load(8);
  std::atomic<int> good{0};
  in_threads([&](int t) {
    const Executable single = load(1, t);
    for (int i = 0; i < 8; ++i) {
      const Executable& program = (i + t) % 2 == 0 ? gang : single;
      const HostArray sent = state(t * 8 + i);
      Array array = program.put(0, sent);
      for (int launch = 0; launch < 3; ++launch) {
        array = program.run({array}).outputs[0];
      }
      good += array.to_host_checked("state").bytes == sent.bytes ? 1 : 0;
    }
  });
  EXPECT_EQ(good, kThreads * 8);
}

TEST_P(DriverThreads, CallbacksSubmitWhileOthersWait) {
  std::atomic<int> calls{0};
  std::atomic<int> second_calls{0};
  in_threads([&](int t) {
    for (int i = 0; i < 10; ++i) {
      const Buffer first = board_.put(t, state(i));
      const int device = (t + 1) % 8;
      first.ready().on_ready([&, device](const std::shared_ptr<const Error>& error) {
        calls += error == nullptr ? 1 : 0;
        board_.put(device, state(3))
            .ready()
            .on_ready([&](const std::shared_ptr<const Error>& again) {
              second_calls += again == nullptr ? 1 : 0;
            });
      });
      if (i % 3 == 0) {
        first.ready().wait();
      }
    }
    board_.synchronize();
  });
  // The completion thread may still be about to call what it took.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (second_calls < kThreads * 10 && std::chrono::steady_clock::now() < deadline) {
    board_.synchronize();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(calls, kThreads * 10);
  EXPECT_EQ(second_calls, kThreads * 10);
}

// Registering takes no lock of the board: one thread ends the events meanwhile.
TEST_P(DriverThreads, CallbacksAreRegisteredWhileEventsEnd) {
  constexpr int kEvents = 60;
  for (int round = 0; round < 5; ++round) {
    std::vector<Buffer> buffers;
    for (int i = 0; i < kEvents; ++i) {
      buffers.push_back(board_.put(i % 8, state(i)));
    }
    std::atomic<int> calls{0};
    in_threads([&](int t) {
      if (t == 0) {
        board_.synchronize();
        return;
      }
      for (const Buffer& buffer : buffers) {
        buffer.ready().on_ready(
            [&](const std::shared_ptr<const Error>& error) { calls += error == nullptr ? 1 : 0; });
      }
    });
    EXPECT_EQ(calls, kEvents * (kThreads - 1));
  }
}

TEST_P(DriverThreads, EventsAreSharedByManyWaiters) {
  const Executable program = load(8);
  for (int round = 0; round < 5; ++round) {
    const RunResult result = program.run({program.put(0, state(round))});
    std::atomic<int> seen{0};
    in_threads([&](int t) {
      if (t % 2 == 0) {
        result.done.wait();
      } else {
        result.done.advance_for(std::chrono::microseconds(t * t * 10));
      }
      seen += result.outputs[0].to_host().bytes == state(round).bytes ? 1 : 0;
      seen += result.done.ready() ? 1 : 0;
    });
    EXPECT_EQ(seen, 2 * kThreads);
  }
}

TEST_P(DriverThreads, HandlesEndInOtherThreads) {
  const uint64_t before = board_.devices()[0].hbm_used;
  in_threads([&](int t) {
    for (int i = 0; i < 10; ++i) {
      Executable program = load(1, t);
      Array array = program.put(0, state(i));
      array = program.run({array}).outputs[0];
      std::thread([dropped = std::move(array), gone = std::move(program)]() mutable {
        dropped = Array();
        gone = Executable();
      }).join();
    }
  });
  board_.synchronize();
  EXPECT_EQ(board_.devices()[0].hbm_used, before);
}

TEST_P(DriverThreads, FaultsReachTheThreadThatLaunched) {
  std::atomic<int> launches{0};  // the executor runs in whatever thread lets simulated time pass
  null_->executor = [&](NullLaunch& launch) -> std::optional<tpu_fault_record_t> {
    if (++launches % 5 != 0) {
      return std::nullopt;
    }
    tpu_fault_record_t fault{};
    fault.code = TPU_FAULT_DESCRIPTOR;
    fault.core = static_cast<uint8_t>(launch.parts[0].core);
    return fault;
  };
  std::atomic<int> good{0};
  std::atomic<int> lost{0};
  in_threads([&](int t) {
    const Executable program = load(1, t);
    for (int i = 0; i < 10; ++i) {
      const HostArray sent = state(t + i);
      const RunResult result = program.run({program.put(0, sent)});
      if (result.done.wait_for_error() == nullptr) {
        good += result.outputs[0].to_host().bytes == sent.bytes ? 1 : 0;
      } else {
        ++lost;
      }
    }
  });
  EXPECT_EQ(good + lost, kThreads * 10);
  EXPECT_GE(lost, 1);
  EXPECT_GE(good, 1);
}

TEST_P(DriverThreads, CountersAndTimeAreReadBeside) {
  const Executable program = load(8);
  in_threads([&](int t) {
    uint64_t last = 0;
    for (int i = 0; i < 10; ++i) {
      if (t % 2 == 0) {
        program.run({program.put(0, state(i))}).done.wait();
        continue;
      }
      const uint64_t now = board_.now();
      EXPECT_GE(now, last);
      last = now;
      EXPECT_EQ(board_.counters().cores.size(), 8u);
      EXPECT_EQ(board_.devices().size(), 8u);
    }
  });
}

// Step k of each launch gives back its batch. One thread feeds, another takes.
TEST_P(DriverThreads, LaunchesAreFedAndTheirResultsTaken) {
  null_->executor = [](NullLaunch& launch) -> std::optional<tpu_fault_record_t> {
    for (NullLaunchPart& part : launch.parts) {
      std::vector<std::byte> batch(part.slots[1].size);
      part.hbm->read(part.slots[1].base, batch);
      part.hbm->write(part.slots[2].base, batch);
    }
    return std::nullopt;
  };
  const auto load_fed = [&](uint32_t partitions, int device) {
    ProgramBuilder builder(partitions);
    builder.argument(DType::kI32, {256});
    builder.argument(DType::kI32, {64}, true);
    builder.result(DType::kI32, {256}, false, 0);
    builder.result(DType::kI32, {64}, true);
    return board_.load(builder.bytes(), device);
  };
  const auto batch = [](int t, uint32_t step) {
    return counting(DType::kI32, {64}, static_cast<uint8_t>(17 * t + static_cast<int>(step)));
  };
  std::atomic<int> good{0};
  constexpr uint32_t kSteps = 12;
  std::vector<Executable> programs;
  for (int t = 0; t < kThreads; ++t) {
    programs.push_back(t % 3 == 0 ? load_fed(8, 0) : load_fed(1, t));
  }
  RunOptions options;
  options.steps = kSteps;
  options.infeed = options.outfeed = {1};
  in_threads([&](int t) {
    const Executable& program = programs[static_cast<size_t>(t)];
    const RunResult run = program.run({program.put(0, state(t)), Array()}, options);
    std::thread taker([&, feed = run.feed] {
      for (uint32_t step = 0; step < kSteps; ++step) {
        good += feed.take(step).at(0).bytes == batch(t, step).bytes ? 1 : 0;
      }
    });
    for (uint32_t step = 0; step < kSteps; ++step) {
      run.feed.feed({batch(t, step)});
    }
    taker.join();
    EXPECT_EQ(run.outputs[0].to_host_checked("state").bytes, state(t).bytes);
  });
  EXPECT_EQ(good, kThreads * static_cast<int>(kSteps));
  in_threads([&](int t) {  // each flushes those behind it, which are sent again
    const Executable& program = programs[static_cast<size_t>(t)];
    RunResult starved = program.run({program.put(0, state(t)), Array()}, options);
    starved.feed.feed({batch(t, 0)});
    std::thread([feed = std::exchange(starved.feed, {})] { feed.ready(0).wait(); }).join();
    const auto error = starved.done.wait_for_error();
    EXPECT_TRUE(error && error->code() == ErrorCode::kInvalidArgument);
  });
}

TEST_P(DriverThreads, CloseEndsWhatOthersDo) {
  const Executable program = load(8);
  std::atomic<int> running{0};
  std::thread closer([&] {
    while (running < kThreads) {
      std::this_thread::yield();
    }
    board_.close(CloseMode::kCancel);
  });
  in_threads([&](int t) {
    try {
      for (int i = 0; i < 10000; ++i) {
        Array array = program.put(0, state(t));
        program.run({array}).done.wait();
        running += i == 0 ? 1 : 0;
      }
      ADD_FAILURE() << "the board was never closed";
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kDeviceFault) << error.what();
    }
  });
  closer.join();
}

// Each board has firmware of its own on each core, in whatever thread lets it run.
TEST_P(DriverThreads, BoardsInDifferentThreadsShareNothing) {
  in_threads([&](int t) {
    OpenOptions options;
    options.transport = "null";
    options.completion_thread = GetParam();
    const Board board = Board::open(options);
    ProgramBuilder builder(8);
    builder.argument(DType::kI32, {256});
    builder.result(DType::kI32, {256}, false, 0);
    const Executable program = board.load(builder.bytes());
    const HostArray sent = state(t);
    Array array = program.put(0, sent);
    for (int i = 0; i < 20; ++i) {
      array = program.run({array}).outputs[0];
    }
    EXPECT_EQ(array.to_host_checked("state").bytes, sent.bytes);
  });
}

INSTANTIATE_TEST_SUITE_P(CompletionThread, DriverThreads, ::testing::Bool());

}  // namespace
}  // namespace tpu::driver
