// What threads do to each other on one board: calls beside endless launches, waits that end in
// time, boards that are closed while others use them. On the null board, whose launches a test can
// keep from ending.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "tests/driver/error_code.hpp"
#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using namespace std::chrono_literals;
using test::code_of;
using test::counting;
using test::NullBoard;
using test::passing;
using test::ProgramBuilder;
using Clock = std::chrono::steady_clock;

// For what takes milliseconds, on a host that is busy. Launches go on for longer, to their limit.
constexpr auto kSoon = 20s;
constexpr double kLimit = 100;

OpenOptions with_limit(double seconds, bool completion_thread = false) {
  OpenOptions options;
  options.time_limit = seconds;
  options.completion_thread = completion_thread;
  return options;
}

// A launch on TPU:0 that ends at its time limit, or with the board.
Event endless_launch(const NullBoard& n) {
  const Executable program = n.board.load(passing(1).bytes(), 0);
  const Array state = program.put(0, counting(DType::kI32, {16}));
  n.board.synchronize();
  n.null->endless_launches = 1;
  return program.run({state}).done;
}

template <typename F>
Clock::duration time_of(F&& work) {
  const auto begin = Clock::now();
  work();
  return Clock::now() - begin;
}

// It copies without the lock, which another thread's launch has then.
TEST(Threads, ALargeUploadDoesNotWaitForALaunchOfAnotherCore) {
  for (const bool completion_thread : {false, true}) {
    const NullBoard n(with_limit(kLimit, completion_thread));
    const Event done = endless_launch(n);
    std::thread waits([&] { static_cast<void>(code_of([&] { done.wait(); })); });
    std::this_thread::sleep_for(50ms);
    const HostArray large = counting(DType::kU8, {1 << 20});
    EXPECT_LT(time_of([&] {
                for (int i = 0; i < 5; ++i) {
                  n.board.put(1, large);
                }
              }),
              kSoon);
    EXPECT_FALSE(done.ready());
    n.board.close(CloseMode::kCancel);
    waits.join();
  }
}

// Both let simulated time pass in turns; calls of a third thread change who has it.
TEST(Threads, AWaitEndsInTimeBesideOneThatDoesNot) {
  const NullBoard n(with_limit(kLimit));
  const Event done = endless_launch(n);
  std::thread forever([&] { static_cast<void>(code_of([&] { done.wait(); })); });
  std::this_thread::sleep_for(20ms);
  for (int calls = 1; calls <= 5; ++calls) {
    std::thread in_time([&] {
      EXPECT_LT(
          time_of([&] { EXPECT_EQ(code_of([&] { done.wait_for(100ms); }), ErrorCode::kTimeout); }),
          kSoon);
    });
    std::this_thread::sleep_for(10ms);
    for (int i = 0; i < calls; ++i) {
      n.board.now();
      std::this_thread::sleep_for(5ms);
    }
    in_time.join();
  }
  n.board.close(CloseMode::kCancel);
  forever.join();
}

TEST(Threads, CountersDoNotWaitForWhatOthersGoOnSubmitting) {
  const NullBoard n(with_limit(0, true));
  std::atomic<bool> stop = false;
  std::vector<std::thread> uploads;
  for (int device = 0; device < 8; ++device) {
    uploads.emplace_back([&, device] {
      const HostArray sent = counting(DType::kU8, {65536});
      while (!stop) {
        n.board.put(device, sent);
      }
    });
  }
  std::this_thread::sleep_for(20ms);
  EXPECT_LT(time_of([&] { n.board.counters(); }), kSoon);
  stop = true;
  for (std::thread& upload : uploads) {
    upload.join();
  }
}

TEST(Closing, CallbacksRunWithAndWithoutACompletionThread) {
  for (const bool completion_thread : {false, true}) {
    std::atomic<int> called = 0;
    const NullBoard n(with_limit(0, completion_thread));
    const HostEvent gate = n.board.make_event();
    const Buffer copy =
        n.board.copy(n.board.put(0, counting(DType::kI32, {16})), 0, {gate.event()});
    copy.ready().on_ready([&](const auto& error) { called += error != nullptr ? 1 : 0; });
    gate.event().on_ready([&](const auto& error) { called += error != nullptr ? 1 : 0; });
    n.board.close();
    for (const auto end = Clock::now() + 30s; called < 2 && Clock::now() < end;) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(called, 2) << completion_thread;
  }
}

// The first one waits for the launch; the second one cancels it, and neither returns before the
// board is closed.
TEST(Closing, TheSecondToCloseCancelsAndWaitsForTheFirst) {
  const NullBoard n(with_limit(kLimit));
  const Event done = endless_launch(n);
  std::atomic<bool> closed = false;
  std::thread first([&] {
    n.board.close(CloseMode::kDrain);
    closed = true;
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(closed);
  EXPECT_LT(time_of([&] { n.board.close(CloseMode::kCancel); }), kSoon);
  EXPECT_TRUE(done.ready());
  first.join();
  EXPECT_EQ(code_of([&] { done.wait(); }), ErrorCode::kCancelled);
  n.board.close();  // is closed; returns at once
}

// HBM has room for one array of 9 GiB: the second launch waits for the first one's.
TEST(Closing, ALaunchThatWaitsForRoomIsRefused) {
  const NullBoard n(with_limit(kLimit));
  constexpr int64_t kLarge = int64_t{9} << 28;
  const Executable keeps = n.board.load(passing(1, {kLarge}).bytes(), 0);
  ProgramBuilder makes_large(1);
  makes_large.argument(DType::kI32, {16});
  makes_large.result(DType::kI32, {kLarge});
  const Executable makes = n.board.load(makes_large.bytes(), 0);
  const Array small = makes.put(0, counting(DType::kI32, {16}));
  n.null->endless_launches = 1;
  keeps.run({keeps.zeros(0)});
  std::thread waits(
      [&] { EXPECT_EQ(code_of([&] { makes.run({small}); }), ErrorCode::kFailedPrecondition); });
  std::this_thread::sleep_for(100ms);
  n.board.close(CloseMode::kCancel);
  waits.join();
}

// Its threads are in the other process, and what they wait for would be waited for here.
TEST(Closing, AChildProcessDropsABoardThatAThreadWaitsFor) {
  auto n = std::make_unique<NullBoard>(with_limit(0));
  const HostEvent gate = n->board.make_event();
  Buffer copy = n->board.copy(n->board.put(0, counting(DType::kI32, {16})), 0, {gate.event()});
  std::thread waits([&] { n->board.synchronize(); });
  std::this_thread::sleep_for(50ms);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    copy = Buffer();
    n.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  gate.set();
  waits.join();
}

// With it goes the last handle of an event, whose callback uses the board.
TEST(Closing, AHandlerGoesAwayWithoutTheLock) {
  const NullBoard n(with_limit(0));
  const HostArray sent = counting(DType::kI32, {16});
  const Executable program = n.board.load(passing(1).bytes(), 0);
  const Array state = program.put(0, sent);
  std::atomic<int> called = 0;
  {
    const HostEvent gate = n.board.make_event();
    gate.event().on_ready([&](const auto&) {
      n.board.put(1, sent);
      ++called;
    });
    RunOptions options;
    options.on_host_call = [gate](const HostCallInfo&, size_t, std::span<std::byte>) {};
    program.run({state}, options);
  }
  n.board.synchronize();
  EXPECT_EQ(called, 1);
}

}  // namespace
}  // namespace tpu::driver
