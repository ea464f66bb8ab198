// Threads that wait for events: what they let pass, when they sleep, when they give up.
#include "src/waits/waits.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "tests/unit/driver/fake_driver.hpp"

namespace tpu::driver {
namespace {

using namespace std::chrono_literals;

class WaitsTest : public testing::Test, protected test::FakeDriver {
 protected:
  std::shared_ptr<Operation> fill() {
    auto op = operations.begin("fill");
    auto command = std::make_shared<Command>();
    command->opcode = TPU_OP_FILL;
    operations.add(op, command);
    operations.seal(op);
    return op;
  }
  static Deadline soon() { return std::chrono::steady_clock::now() + 20ms; }

  int pumps_ = 0;
  std::function<bool()> once_ = [] { return false; };
  Waiters waiters_{[] {}};
  const ForkCheck forks_;
  std::shared_ptr<CompletionThread> thread_;
  Door door_{turn, forks_, outbox, operations, order, waiters_, thread_};
  Waits waits_{door_,
               turn,
               forks_,
               waiters_,
               news,
               health,
               outbox,
               operations,
               order,
               completions,
               thread_,
               handles,
               [this](Deadline) {
                 ++pumps_;
                 return once_();
               }};
};

TEST_F(WaitsTest, AWaitLetsTimePassUntilItsEventIsReady) {
  const auto op = fill();
  const auto other = fill();
  once_ = [&] {
    report(0);
    return true;
  };
  EXPECT_TRUE(waits_.wait(*op->event, std::nullopt));
  EXPECT_EQ(pumps_, 1);
  EXPECT_TRUE(other->event->open());
  EXPECT_TRUE(waits_.wait(*op->event, std::nullopt));
  EXPECT_EQ(pumps_, 1) << "it is ready already";
}

TEST_F(WaitsTest, AWaitForTheHostSleepsUntilTheHostSetsIt) {
  const auto event = handles.make_host_event();
  std::thread host([&] {
    std::this_thread::sleep_for(20ms);
    event->set(nullptr);
    news.add_event();
  });
  EXPECT_TRUE(waits_.wait(*event, std::nullopt));
  EXPECT_LE(pumps_, 2);
  host.join();
}

TEST_F(WaitsTest, ADeadlineEndsAWaitAndChangesNothing) {
  const auto event = handles.make_host_event();
  EXPECT_FALSE(waits_.wait(*event, soon()));
  EXPECT_TRUE(event->open());
}

TEST_F(WaitsTest, AnEventThatNothingCanMakeReadyFails) {
  const auto event = handles.make_event();
  EXPECT_TRUE(waits_.wait(*event, std::nullopt));
  ASSERT_TRUE(event->failed());
  EXPECT_EQ(event->error->code(), ErrorCode::kInternal);
}

TEST_F(WaitsTest, ABrokenBoardEndsAllWaits) {
  const auto event = handles.make_host_event();
  health.break_by(std::make_shared<Error>(ErrorCode::kInternal, "it broke"));
  EXPECT_TRUE(waits_.wait(*event, std::nullopt));
  EXPECT_EQ(event->error->message(), "it broke");
}

TEST_F(WaitsTest, SynchronizeWaitsForWhatWasSubmittedBefore) {
  const auto first = fill();
  std::shared_ptr<Operation> later;
  once_ = [&] {
    if (!later) {
      later = fill();  // as another thread does meanwhile
    }
    report(0);
    return true;
  };
  EXPECT_TRUE(waits_.synchronize(std::nullopt));
  EXPECT_FALSE(first->event->open());
  EXPECT_TRUE(later->event->open());
}

TEST_F(WaitsTest, AdvanceLeavesABoardThatRunsToItsThread) {
  const auto op = fill();
  turn.enter(EntryKind::kCall, std::nullopt);
  turn.begin_run();
  waits_.advance(*op->event, soon());
  EXPECT_EQ(pumps_, 0);
  turn.end_run();
  turn.leave();
  once_ = [&] {
    report(0);
    return true;
  };
  waits_.advance(*op->event, std::nullopt);
  EXPECT_FALSE(op->event->open());
}

}  // namespace
}  // namespace tpu::driver
