// Work that the rings of a core do not order: copies between cores, events of the host's own, waits
// that give up; on every transport.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
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
using test::hbm_used;
using test::NullBoard;
using test::passing;

Array one_part(const Buffer& buffer) {
  const Layout layout{buffer.shape(), {Shape(buffer.shape().size(), 0)}, true};
  return Array(buffer.dtype(), buffer.shape(), layout, {buffer});
}

class Async : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    OpenOptions options = test::open_options(GetParam());
    options.staging_bytes = uint64_t{1} << 20;
    board_ = Board::open(options);
  }
  void TearDown() override { board_.close(); }

  Board board_;
};

TEST_P(Async, CopiesGoToEveryCore) {
  for (const int64_t count : {0, 1, 4096, 700001}) {
    const HostArray sent = counting(DType::kU8, {count}, static_cast<uint8_t>(count + 3));
    Buffer buffer = board_.put(0, sent);
    for (const int device : {0, 1, 7, 4, 2, 0}) {
      buffer = board_.copy(buffer, device);  // nothing waits in between
      EXPECT_EQ(buffer.device(), device);
    }
    EXPECT_EQ(buffer.to_host().bytes, sent.bytes) << count;
  }
  board_.synchronize();
  EXPECT_EQ(hbm_used(board_), std::vector<uint64_t>(8, 0));
}

TEST_P(Async, CopiesOverTheLinksTakeLongerThanWithinACore) {
  if (test::is_null(GetParam())) {
    GTEST_SKIP() << "the null board has no time";
  }
  const Buffer source = board_.zeros(0, DType::kU8, {8 << 20});
  source.ready().wait();
  const auto cycles_to = [&](int device) {
    const uint64_t before = board_.now();
    board_.copy(source, device).ready().wait();
    return board_.now() - before;
  };
  const uint64_t within = cycles_to(0);
  EXPECT_GT(cycles_to(2), 2 * within);  // another chip: a link is slower than HBM
}

TEST_P(Async, LaunchesComeBehindCopiesFromOtherCores) {
  const HostArray sent = counting(DType::kI32, {70000});
  const auto bytes = passing(1, sent.shape).bytes();
  const Executable on_3 = board_.load(bytes, 3);
  const Executable on_6 = board_.load(bytes, 6);
  Array state = on_3.put(0, sent);
  for (int i = 0; i < 5; ++i) {
    const Array there = on_6.run({one_part(board_.copy(state.parts()[0], 6))}).outputs[0];
    state = on_3.run({one_part(board_.copy(there.parts()[0], 3))}).outputs[0];
  }
  EXPECT_EQ(state.to_host().bytes, sent.bytes);
}

TEST_P(Async, CopiesToCoresThatAreNotThereAreRefused) {
  const Buffer source = board_.put(0, counting(DType::kU8, {8}));
  EXPECT_EQ(code_of([&] { board_.copy(source, 8); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { board_.copy(source, -1); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { board_.copy(Buffer(), 1); }), ErrorCode::kInvalidArgument);
}

TEST_P(Async, WorkWaitsForAnEventOfTheHost) {
  const HostArray sent = counting(DType::kI32, {5000});
  const Executable program = board_.load(passing(1, sent.shape).bytes(), 2);
  const Array state = program.put(0, sent);
  const HostEvent go = board_.make_event();
  RunOptions behind;
  behind.after = {go.event()};
  const RunResult result = program.run({state}, behind);
  const Buffer copy = board_.copy(result.outputs[0].parts()[0], 5);
  std::vector<std::byte> out(sent.bytes.size());
  const Event read = copy.read(out);
  EXPECT_FALSE(state.parts()[0].live());
  // Other work overtakes it.
  EXPECT_EQ(board_.put(2, sent).to_host().bytes, sent.bytes);
  EXPECT_EQ(code_of([&] { read.wait_for(20ms); }), ErrorCode::kTimeout);
  EXPECT_FALSE(result.done.ready());
  go.set();
  read.wait();
  EXPECT_EQ(out, sent.bytes);
  EXPECT_TRUE(result.done.ready());
}

TEST_P(Async, AnUploadMayWaitForItsBytes) {
  const HostArray sent = counting(DType::kI32, {50000});  // several pieces of staging memory
  auto bytes = std::make_shared<std::vector<std::byte>>(sent.bytes.size());
  const HostEvent filled = board_.make_event();
  const Buffer buffer = board_.put(3, sent.dtype, sent.shape, bytes, {filled.event()});
  const Executable program = board_.load(passing(1, sent.shape).bytes(), 3);
  const RunResult result =
      program.run({Array(sent.dtype, sent.shape, {sent.shape, {{0}}, false}, {buffer})});
  EXPECT_EQ(board_.put(3, sent).to_host().bytes, sent.bytes) << "other work overtakes it";
  EXPECT_FALSE(buffer.ready().ready());
  *bytes = sent.bytes;
  filled.set();
  EXPECT_EQ(result.outputs[0].to_host().bytes, sent.bytes);
}

TEST_P(Async, AnUploadFailsWithWhatItWaitsFor) {
  const HostEvent filled = board_.make_event();
  const auto bytes = std::make_shared<const std::vector<std::byte>>(4);
  const Buffer buffer = board_.put(3, DType::kI32, {1}, bytes, {filled.event()});
  const Buffer copy = board_.copy(buffer, 1);
  filled.fail(Error(ErrorCode::kUnavailable, "the file has no end"));
  EXPECT_EQ(code_of([&] { copy.ready().wait(); }), ErrorCode::kUnavailable);
  EXPECT_EQ(code_of([&] { board_.put(3, DType::kI32, {2}, bytes, {}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(board_.put(3, DType::kI32, {1}, bytes, {}).to_host().bytes, *bytes);
}

TEST_P(Async, TheWaitForAllOfItMayHaveATimeout) {
  const HostArray sent = counting(DType::kI32, {5000});
  const Buffer buffer = board_.put(1, sent);
  board_.synchronize_for(60s);
  board_.synchronize_for(std::chrono::nanoseconds::max());
  EXPECT_TRUE(buffer.ready().ready());
  const HostEvent go = board_.make_event();
  std::vector<std::byte> out(sent.bytes.size());
  const Event read = buffer.read(out, {go.event()});
  EXPECT_EQ(code_of([&] { board_.synchronize_for(20ms); }), ErrorCode::kTimeout);
  EXPECT_EQ(code_of([&] { board_.synchronize_for(0ns); }), ErrorCode::kTimeout);
  EXPECT_FALSE(read.ready());
  go.set();
  board_.synchronize_for(60s);
  EXPECT_TRUE(read.ready());
  EXPECT_EQ(out, sent.bytes);
  const Buffer more = board_.put(2, sent);
  EXPECT_EQ(code_of([&] { board_.synchronize_for(0ns); }), ErrorCode::kTimeout);
  EXPECT_EQ(more.to_host().bytes, sent.bytes);
  EXPECT_EQ(code_of([] { Board().synchronize_for(1s); }), ErrorCode::kInvalidArgument);
}

TEST_P(Async, ThreadsAreWokenWhenTheHostSetsItsEvent) {
  const HostArray sent = counting(DType::kI32, {64});
  const Buffer buffer = board_.put(1, sent);
  const HostEvent go = board_.make_event();
  std::vector<std::byte> out(sent.bytes.size());
  const Event read = buffer.read(out, {go.event()});
  std::thread setter([&] {
    std::this_thread::sleep_for(20ms);
    go.set();
  });
  read.wait();
  setter.join();
  EXPECT_EQ(out, sent.bytes);
  const HostEvent again = board_.make_event();
  std::thread other([&] {
    std::this_thread::sleep_for(20ms);
    again.set();
  });
  again.event().wait_for(std::chrono::nanoseconds::max());  // longer than the clock can hold
  other.join();
}

TEST_P(Async, CallbacksOfEventsOfTheHostMayNotWait) {
  const HostEvent event = board_.make_event();
  const HostEvent open = board_.make_event();
  std::optional<ErrorCode> code;
  event.event().on_ready([&](const std::shared_ptr<const Error>&) {
    code = code_of([&] { open.event().wait_for(100ms); });
  });
  event.set();
  EXPECT_EQ(code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of([&] { open.event().wait_for(1ms); }), ErrorCode::kTimeout);  // outside of it
}

TEST_P(Async, AFailedEventFailsWhatDependsOnItAndGivesBack) {
  const HostArray sent = counting(DType::kI32, {64});
  const Executable program = board_.load(passing(1, sent.shape).bytes(), 4);
  const Array state = program.put(0, sent);
  const HostEvent go = board_.make_event();
  RunOptions behind;
  behind.after = {go.event()};
  const RunResult result = program.run({state}, behind);
  const Buffer copy = board_.copy(result.outputs[0].parts()[0], 0);
  go.fail(Error(ErrorCode::kResourceExhausted, "the host has no batch"));
  for (const Event& event : {result.done, copy.ready(), go.event()}) {
    const auto error = event.wait_for_error();
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code(), ErrorCode::kResourceExhausted);
    EXPECT_EQ(error->message(), "the host has no batch");
  }
  EXPECT_TRUE(state.parts()[0].live());
  EXPECT_EQ(program.run({state}).outputs[0].to_host().bytes, sent.bytes);
}

TEST_P(Async, EventsAreSetOnceAndNotForgotten) {
  HostEvent event = board_.make_event();
  const Event future = event.event();
  int calls = 0;
  future.on_ready([&](const std::shared_ptr<const Error>& error) {
    EXPECT_EQ(error, nullptr);
    ++calls;
  });
  event.set();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(future.ready());
  EXPECT_EQ(code_of([&] { event.set(); }), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of([&] { event.fail(Error(ErrorCode::kInternal, "x")); }),
            ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of([] { HostEvent().set(); }), ErrorCode::kInvalidArgument);
  HostEvent lost = board_.make_event();
  const Event never = lost.event();
  lost = HostEvent();
  EXPECT_EQ(code_of([&] { never.wait(); }), ErrorCode::kCancelled);
}

TEST_P(Async, ClosingCancelsWhatTheHostNeverLetGo) {
  const HostArray sent = counting(DType::kI32, {64});
  const Executable program = board_.load(passing(1, sent.shape).bytes());
  const Array state = program.put(0, sent);
  const HostEvent go = board_.make_event();
  RunOptions behind;
  behind.after = {go.event()};
  const Event done = program.run({state}, behind).done;
  const Event other = program.run({program.put(0, sent)}).done;
  board_.close();
  EXPECT_EQ(code_of([&] { done.wait(); }), ErrorCode::kCancelled);
  EXPECT_EQ(other.wait_for_error(), nullptr) << "it had no reason not to run";
  EXPECT_EQ(code_of([&] { go.event().wait(); }), ErrorCode::kCancelled);
  EXPECT_EQ(code_of([&] { go.set(); }), ErrorCode::kFailedPrecondition);
}

TEST_P(Async, EventsOfOtherBoardsAreRefused) {
  const NullBoard other;
  const HostEvent foreign = other.board.make_event();
  const Buffer buffer = board_.put(0, counting(DType::kU8, {8}));
  std::vector<std::byte> out(8);
  EXPECT_EQ(code_of([&] { buffer.read(out, {foreign.event()}); }), ErrorCode::kInvalidArgument);
  foreign.set();
  buffer.read(out, {foreign.event()}).wait();
}

TEST_P(Async, ArraysAreReadWithOneEvent) {
  const HostArray sent = counting(DType::kI32, {16, 3000});
  for (const Array& array : {board_.shard(sent), board_.replicate(sent)}) {
    std::vector<std::byte> out(sent.bytes.size());
    bool told = false;
    const Event done = array.read(out);
    done.on_ready([&](const std::shared_ptr<const Error>& error) { told = error == nullptr; });
    done.wait();
    board_.synchronize();  // callbacks run when the lock is free
    EXPECT_TRUE(told);
    EXPECT_EQ(out, sent.bytes);
    EXPECT_EQ(code_of([&] { array.read(std::span(out).first(5)); }), ErrorCode::kInvalidArgument);
  }
}

TEST_P(Async, PartsOfABufferAreReadIntoTheirPlace) {
  const HostArray sent = counting(DType::kU8, {(20 << 20) + 3});  // goes in pieces
  const Buffer buffer = board_.put(3, sent);
  const auto all = static_cast<uint64_t>(sent.bytes.size());
  for (const auto& [first, count] :
       {std::pair<uint64_t, uint64_t>{0, all}, {all - 1, 1}, {12345, (17 << 20) + 1}, {all, 0}}) {
    std::vector<std::byte> out(count + 2, std::byte{0xAB});
    buffer.read_part(first, std::span(out).subspan(1, count)).wait();
    EXPECT_EQ(out.front(), std::byte{0xAB});
    EXPECT_EQ(out.back(), std::byte{0xAB});
    EXPECT_TRUE(std::equal(out.begin() + 1, out.end() - 1,
                           sent.bytes.begin() + static_cast<ptrdiff_t>(first)))
        << first;
  }
  std::vector<std::byte> out(2);
  for (const uint64_t first : {all - 1, all + 1, UINT64_MAX}) {
    EXPECT_EQ(code_of([&] { buffer.read_part(first, out); }), ErrorCode::kInvalidArgument);
  }
}

TEST_P(Async, AWaitThatEndsEarlyLeavesEverythingUsable) {
  const HostArray sent = counting(DType::kU8, {6 << 20});
  const Buffer buffer = board_.put(3, sent);
  std::vector<std::byte> out(sent.bytes.size());
  const Event read = buffer.read(out);
  int early = 0;
  for (bool ready = false; !ready;) {
    try {
      read.wait_for(early < 3 ? 0ns : 1s);
      ready = true;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kTimeout);
      ++early;
    }
  }
  EXPECT_EQ(out, sent.bytes);
  read.wait_for(0ns);
  EXPECT_EQ(buffer.to_host().bytes, sent.bytes);
}

TEST_P(Async, ACallerAdvancesTheBoardForAWhile) {
  const HostArray sent = counting(DType::kI32, {4096});
  const Executable program = board_.load(passing(1, {4096}).bytes());
  const RunResult result = program.run({program.put(0, sent)});
  EXPECT_FALSE(result.done.advance_for(0ns));
  EXPECT_TRUE(result.done.advance_for(60s));
  EXPECT_TRUE(result.done.advance_for(0ns));
  const HostEvent gate = board_.make_event();
  const Event behind = board_.copy(result.outputs[0].parts()[0], 1, {gate.event()}).ready();
  EXPECT_FALSE(behind.advance_for(60s));  // at once: nothing in flight can make it ready
  gate.event().on_ready([&](const auto&) {
    EXPECT_FALSE(behind.advance_for(60s));  // a callback does not wait
  });
  gate.set();
  EXPECT_TRUE(behind.advance_for(60s));
}

INSTANTIATE_TEST_SUITE_P(Null, Async, ::testing::ValuesIn(test::null_boards()));
#ifdef TPU_HAVE_SIM_TRANSPORT
INSTANTIATE_TEST_SUITE_P(Sim, Async, ::testing::ValuesIn(test::sim_boards()));
#endif

// A launch writes the memory of the buffer that it takes over: not before an earlier read of it,
// which waits at the host. The executor counts the bytes up.
TEST(AsyncOrder, WritersComeBehindReadersThatWait) {
  const NullBoard n;
  const HostArray sent = counting(DType::kI32, {16});
  const Executable program = n.board.load(passing(1, sent.shape).bytes(), 1);
  const Array state = program.put(0, sent);
  n.board.synchronize();
  int launches = 0;
  n.null->executor = [&](NullLaunch& launch) -> std::optional<tpu_fault_record_t> {
    ++launches;
    const std::vector<std::byte> other(64, std::byte{0xEE});
    launch.parts[0].hbm->write(launch.parts[0].slots[0].base, other);
    return std::nullopt;
  };
  const HostEvent go = n.board.make_event();
  std::vector<std::byte> out(sent.bytes.size());
  const Event read = state.parts()[0].read(out, {go.event()});
  const RunResult result = program.run({state});
  // One that does not touch it goes first.
  EXPECT_EQ(program.run({program.put(0, sent)}).outputs[0].to_host().bytes,
            std::vector<std::byte>(64, std::byte{0xEE}));
  EXPECT_EQ(launches, 1);
  go.set();
  EXPECT_EQ(result.outputs[0].to_host().bytes, std::vector<std::byte>(64, std::byte{0xEE}));
  EXPECT_EQ(read.wait_for_error(), nullptr);
  EXPECT_EQ(out, sent.bytes);
  EXPECT_EQ(launches, 2);
}

TEST(AsyncOrder, AThreadGivesUpWhileAnotherOneWaits) {
  OpenOptions options;
  options.time_limit = 1.0;
  const NullBoard n(options);
  const HostArray sent = counting(DType::kI32, {16});
  const Executable program = n.board.load(passing(1, sent.shape).bytes(), 1);
  const Array state = program.put(0, sent);
  n.board.synchronize();
  n.null->endless_launches = 1;
  const Event done = program.run({state}).done;
  std::thread waiter([&] { EXPECT_EQ(code_of([&] { done.wait(); }), ErrorCode::kTimeout); });
  for (int i = 0; i < 3; ++i) {
    try {
      done.wait_for(5ms);
      ADD_FAILURE() << "an endless launch ended";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTimeout);
      EXPECT_NE(error.message().find("it can be waited for again"), std::string::npos)
          << error.what();
    }
  }
  waiter.join();
  EXPECT_EQ(n.board.put(1, sent).to_host().bytes, sent.bytes);
}

// The core that sends dies: its copy is done again, and what comes behind it on another core waits.
TEST(AsyncOrder, ACopyThatIsDoneAgainStillComesBeforeItsReader) {
  const NullBoard n;
  const HostArray sent = counting(DType::kU8, {3000});
  const Buffer source = n.board.put(6, sent);
  n.board.synchronize();
  n.null->corrupt_entries = 1;
  const Buffer copy = n.board.copy(source, 1);
  EXPECT_EQ(copy.to_host().bytes, sent.bytes);
}

// Waits block until another thread sets the event; a board does not take it.
TEST(EventOfNoBoard, BlocksUntilItIsSet) {
  const HostEvent host = HostEvent::of_no_board();
  const Event event = host.event();
  EXPECT_FALSE(event.ready());
  EXPECT_FALSE(event.advance_for(1ms));
  EXPECT_EQ(code_of([&] { event.wait_for(1ms); }), ErrorCode::kTimeout);
  int called = 0;
  event.on_ready([&](const std::shared_ptr<const Error>& error) {
    called += error == nullptr ? 1 : 100;
    EXPECT_EQ(code_of([&] {
                const HostEvent other = HostEvent::of_no_board();
                other.event().wait();
              }),
              ErrorCode::kFailedPrecondition);  // callbacks do not wait
  });
  std::thread setter([&] {
    std::this_thread::sleep_for(20ms);
    host.set();
  });
  event.wait();
  setter.join();
  EXPECT_EQ(called, 1);
  EXPECT_EQ(code_of([&] { host.set(); }), ErrorCode::kFailedPrecondition);

  std::optional<HostEvent> given_up = HostEvent::of_no_board();
  const Event lost = given_up->event();
  given_up.reset();
  EXPECT_EQ(code_of([&] { lost.wait(); }), ErrorCode::kCancelled);

  OpenOptions options;
  options.transport = "null";
  const Board board = Board::open(options);
  const HostEvent waiting = HostEvent::of_no_board();
  const Buffer zeros = board.zeros(0, DType::kF32, {1});
  EXPECT_EQ(code_of([&] { board.copy(zeros, 1, {waiting.event()}); }), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tpu::driver
