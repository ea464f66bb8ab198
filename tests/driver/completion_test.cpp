// Boards with a completion thread, and boards that several threads use: events become ready by
// themselves, and a call does not wait for what the board does for others.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "tests/driver/error_code.hpp"
#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"
#include "tests/driver/worker_process.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using namespace std::chrono_literals;
using test::code_of;
using test::counting;
using test::NullBoard;
using test::passing;
using test::ProgramBuilder;

constexpr auto kPatience = 60s;  // of the tests, for what takes milliseconds

OpenOptions with_thread(const char* transport = "null") {
  OpenOptions options = test::open_options(transport);
  options.completion_thread = true;
  return options;
}

// Whether `event` becomes ready although nobody waits for it on the board.
bool comes_by_itself(const Event& event) {
  const auto told = std::make_shared<std::promise<void>>();
  event.on_ready([told](const auto&) { told->set_value(); });
  return told->get_future().wait_for(kPatience) == std::future_status::ready;
}

class Completion : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { board_ = Board::open(with_thread(GetParam())); }
  void TearDown() override { board_.close(); }

  const HostArray sent_ = counting(DType::kI32, {16});
  Board board_;
};

TEST_P(Completion, EventsBecomeReadyWithoutACallerWhoWaits) {
  const Executable program = board_.load(passing(8).bytes(), std::vector<int>());
  for (int i = 0; i < 5; ++i) {
    const RunResult result = program.run({program.put(0, sent_)});
    std::vector<std::byte> out(sent_.bytes.size());
    const Event read = result.outputs[0].parts()[7].read(out);
    EXPECT_TRUE(comes_by_itself(read));
    EXPECT_TRUE(result.done.ready());
    EXPECT_EQ(out, sent_.bytes);
    EXPECT_TRUE(comes_by_itself(board_.put(3, sent_).ready()));
  }
}

TEST_P(Completion, WhatComesAfterAnEventOfTheHostIsSentByItself) {
  const Executable program = board_.load(passing(1).bytes(), std::vector<int>{2});
  const HostEvent gate = board_.make_event();
  const RunResult result =
      program.run({program.put(0, sent_)}, {.steps = 1, .keep = {}, .after = {gate.event()}});
  const Buffer copy = board_.copy(result.outputs[0].parts()[0], 6);
  std::this_thread::sleep_for(5ms);
  EXPECT_FALSE(copy.ready().ready());
  gate.set();
  EXPECT_TRUE(comes_by_itself(copy.ready()));
  EXPECT_EQ(copy.to_host().bytes, sent_.bytes);
}

// The completion thread copies into staging memory without the lock: meanwhile nothing of the
// upload is on the board, and it is not over either.
TEST_P(Completion, WhoWaitsMeetsAnUploadThatIsBeingSent) {
  const auto bytes = std::make_shared<const std::vector<std::byte>>(12 << 20, std::byte{5});
  for (int i = 0; i < 24; ++i) {
    const HostEvent gate = board_.make_event();
    const Buffer buffer = board_.put(1, DType::kU8, {int64_t{12} << 20}, bytes, {gate.event()});
    gate.set();
    std::this_thread::sleep_for(i / 3 * 200us);
    if (i % 3 == 0) {
      EXPECT_NO_THROW(buffer.ready().wait());
    } else if (i % 3 == 1) {
      board_.synchronize();
    } else {
      board_.change_time_limit(5);  // waits until the board is idle
    }
    EXPECT_TRUE(buffer.ready().ready()) << i;
    if (i < 3) {
      EXPECT_EQ(buffer.to_host().bytes, *bytes);
    }
  }
}

// The read waits in the driver until the other core's copy is over.
TEST_P(Completion, WhatWaitsForAnotherCoreIsSentByItself) {
  for (int i = 0; i < 50; ++i) {
    const Buffer copy = board_.copy(board_.put(2, sent_), 5);
    std::vector<std::byte> out(sent_.bytes.size());
    ASSERT_TRUE(comes_by_itself(copy.read(out))) << i;
    EXPECT_EQ(out, sent_.bytes);
  }
}

TEST(CompletionThread, CallbacksOfWorkThatEndsWithTheLastHandleRun) {
  const auto bytes = std::make_shared<const std::vector<std::byte>>(64);
  for (int i = 0; i < 20; ++i) {
    std::optional<Board> board = Board::open(with_thread());
    const HostEvent gate = board->make_event();  // outlives the board
    std::promise<ErrorCode> told;
    board->put(0, DType::kI32, {16}, bytes, {gate.event()})
        .ready()
        .on_ready([&](const auto& error) {
          told.set_value(error == nullptr ? ErrorCode::kInternal : error->code());
        });
    board.reset();
    auto code = told.get_future();
    ASSERT_EQ(code.wait_for(kPatience), std::future_status::ready) << i;
    EXPECT_EQ(code.get(), ErrorCode::kCancelled);
  }
}

// A chain of calls, each made by the callback of the one before.
TEST_P(Completion, CallbacksGoOnWithTheWork) {
  std::promise<HostArray> end;
  std::vector<std::byte> out(sent_.bytes.size());
  const std::function<void(Buffer, int)> pass = [&](const Buffer& buffer, int device) {
    buffer.ready().on_ready([&, buffer, device](const auto&) {
      if (device < 8) {
        pass(board_.copy(buffer, device), device + 1);
      } else {
        buffer.read(out).on_ready([&](const auto&) { end.set_value({}); });
      }
    });
  };
  pass(board_.put(0, sent_), 1);
  ASSERT_EQ(end.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(out, sent_.bytes);
}

// The caller lets time pass himself; what he has no time for comes by itself.
TEST_P(Completion, ACallerAdvancesTheBoardForAWhile) {
  const Executable program = board_.load(passing(8).bytes(), std::vector<int>());
  for (int i = 0; i < 20; ++i) {
    const RunResult result = program.run({program.put(0, sent_)});
    const bool ready = result.done.advance_for(i % 2 == 0 ? 0ns : 20us);
    EXPECT_TRUE(!ready || result.done.ready());
    EXPECT_TRUE(comes_by_itself(result.done));
  }
  const HostEvent gate = board_.make_event();
  const Event behind = board_.copy(board_.put(0, sent_), 1, {gate.event()}).ready();
  EXPECT_FALSE(behind.advance_for(20ms));  // nothing in flight can make it ready
  gate.set();
  EXPECT_TRUE(comes_by_itself(behind));
}

// Each thread moves its own arrays over all cores and runs programs on them; some wait, some poll.
TEST_P(Completion, ThreadsShareTheBoard) {
  const auto one = passing(1).bytes();
  const auto gang = passing(8).bytes();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const auto number = static_cast<uint8_t>(t + 1);
      const HostArray mine = counting(DType::kI32, {16}, number);
      const HostArray large = counting(DType::kU8, {300000}, number);
      const Executable single = board_.load(one, std::vector<int>{t});
      const Executable all = board_.load(gang, std::vector<int>());
      for (int i = 0; i < 15; ++i) {
        const Buffer moved = board_.copy(board_.put(t, large), (t + i) % 8);
        Array state = single.put(0, mine);
        for (int k = 0; k < 3; ++k) {
          state = single.run({state}).outputs[0];
        }
        const RunResult wide = all.run({all.put(0, mine)});
        if (t % 3 == 0) {
          wide.done.wait();
        } else {
          if (t % 3 == 1) {
            wide.done.advance_for(i % 2 == 0 ? 1us : 1ms);
          }
          EXPECT_TRUE(comes_by_itself(wide.done));
        }
        EXPECT_EQ(state.to_host().bytes, mine.bytes);
        EXPECT_EQ(wide.outputs[0].to_host_checked("wide").bytes, mine.bytes);
        EXPECT_EQ(moved.to_host().bytes, large.bytes);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  board_.synchronize();
}

// Of buffers that several threads donate, each goes to one launch, and nobody sees it half-way.
TEST_P(Completion, ABufferIsDonatedOnce) {
  constexpr int64_t kCount = 400000;  // more than one piece of the staging memory
  ProgramBuilder builder(1);
  builder.argument(DType::kI32, {kCount});
  builder.result(DType::kI32, {kCount}, false, 0);
  const Executable program = board_.load(builder.bytes(), std::vector<int>{4});
  const HostArray sent = counting(DType::kI32, {kCount});
  for (int i = 0; i < 5; ++i) {
    const Array state = program.put(0, sent);
    std::atomic<int> taken{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        try {
          const Array output = program.run({state}).outputs[0];
          ++taken;
          EXPECT_EQ(output.to_host().bytes, sent.bytes);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition) << error.what();
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(taken, 1);
  }
}

TEST_P(Completion, AChildProcessIsToldThatTheBoardIsNotThere) {
  const Buffer buffer = board_.put(1, sent_);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);  // a hang ends the child, and so the test
    const bool told = code_of([&] { board_.put(0, sent_); }) == ErrorCode::kFailedPrecondition &&
                      code_of([&] { buffer.to_host(); }) == ErrorCode::kFailedPrecondition &&
                      code_of([&] { board_.close(); }) == ErrorCode::kFailedPrecondition;
    board_ = Board();
    _exit(told ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(buffer.to_host().bytes, sent_.bytes);
}

INSTANTIATE_TEST_SUITE_P(Null, Completion, ::testing::ValuesIn(test::null_boards()));
#ifdef TPU_HAVE_SIM_TRANSPORT
INSTANTIATE_TEST_SUITE_P(Sim, Completion, ::testing::ValuesIn(test::sim_boards()));
#endif

// The launch would run for its whole time limit, a minute; calls of others take milliseconds.
TEST(CompletionNull, CallsReturnWhileALaunchRuns) {
  for (const bool thread : {false, true}) {
    OpenOptions options;
    options.completion_thread = thread;
    const NullBoard n(options);
    const HostArray sent = counting(DType::kI32, {16});
    const Executable program = n.board.load(passing(1).bytes(), 0);
    const Array state = program.put(0, sent);
    n.board.synchronize();
    n.null->endless_launches = 1;
    const Event done = program.run({state}).done;
    std::thread waiter([&] { EXPECT_NE(done.wait_for_error(), nullptr); });
    std::this_thread::sleep_for(5ms);
    const auto start = std::chrono::steady_clock::now();
    const Executable other = n.board.load(passing(1).bytes(), 1);  // which waits for the board
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(other.run({other.put(0, sent)}).outputs[0].to_host().bytes, sent.bytes);
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
    n.board.close(CloseMode::kCancel);
    waiter.join();
  }
}

TEST(CompletionNull, TheLastHandleMayGoAwayInACallback) {
  for (int i = 0; i < 20; ++i) {
    auto board = std::make_unique<Board>(Board::open(with_thread()));
    std::promise<void> gone;
    auto buffer = std::make_unique<Buffer>(board->put(0, counting(DType::kI32, {16})));
    const Event ready = buffer->ready();
    buffer.reset();
    ready.on_ready([&](const auto&) {
      board.reset();
      gone.set_value();
    });
    ASSERT_EQ(gone.get_future().wait_for(kPatience), std::future_status::ready);
  }
}

TEST(CompletionDeathTest, AProcessEndsWithWorkInFlight) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const char* transport : {"null", "sim"}) {
#ifndef TPU_HAVE_SIM_TRANSPORT
    if (transport == std::string("sim")) {
      continue;
    }
#endif
    EXPECT_EXIT(
        {
          alarm(60);
          const auto* board = new Board(Board::open(with_thread(transport)));  // never closed
          const auto* program = new Executable(board->load(passing(8).bytes(), std::vector<int>()));
          std::thread([&] {
            for (;;) {
              try {
                program->run({program->put(0, counting(DType::kI32, {16}))}).done.wait();
              } catch (const Error&) {
                std::this_thread::sleep_for(1s);
              }
            }
          }).detach();
          std::this_thread::sleep_for(20ms);
          std::exit(3);
        },
        ::testing::ExitedWithCode(3), "");
  }
}

}  // namespace
}  // namespace tpu::driver
