// Turn-taking: who has the board, news of the host, and what is left to threads that wait.
#include "src/turn/turn.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "src/turn/completion_thread.hpp"
#include "src/turn/fork_check.hpp"
#include "src/turn/host_news.hpp"
#include "src/turn/waiters.hpp"

namespace tpu::driver {
namespace {

using namespace std::chrono_literals;

// Until `there` is true; false after ten seconds.
template <typename There>
bool comes(const There& there) {
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (!there() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(1ms);
  }
  return there();
}

TEST(Turn, CallsAreServedInTheOrderOfArrival) {
  Turn turn([] {});
  ASSERT_TRUE(turn.enter(EntryKind::kCall, std::nullopt));
  std::vector<int> order;
  std::vector<std::thread> callers;
  std::atomic<int> started{0};
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&, i] {
      ++started;
      turn.enter(EntryKind::kWait, std::nullopt);
      order.push_back(i);
      turn.leave();
    });
    ASSERT_TRUE(comes([&] { return started == i + 1; }));
    std::this_thread::sleep_for(20ms);  // it has drawn its ticket
  }
  turn.leave();
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(Turn, ACallParksTheBoardThatRunsAndIsCountedAsLate) {
  std::atomic<bool> parked{false};
  Turn turn([&] { parked = true; });
  ASSERT_TRUE(turn.enter(EntryKind::kCall, std::nullopt));
  ASSERT_TRUE(turn.begin_run());
  std::thread caller([&] {
    turn.enter(EntryKind::kCall, std::nullopt);
    turn.leave();
  });
  EXPECT_TRUE(comes([&] { return parked.load(); }));
  turn.end_run();
  EXPECT_FALSE(turn.begin_run()) << "the caller waits: the board must be handed over";
  turn.hand_over(std::nullopt);
  caller.join();
  EXPECT_TRUE(turn.begin_run());
  turn.end_run();
  turn.leave();
  EXPECT_EQ(turn.late_calls(), 1u);
}

TEST(Turn, AWaitParksNothing) {
  std::atomic<bool> parked{false};
  Turn turn([&] { parked = true; });
  ASSERT_TRUE(turn.enter(EntryKind::kCall, std::nullopt));
  ASSERT_TRUE(turn.begin_run());
  std::thread waiter(
      [&] { EXPECT_FALSE(turn.enter(EntryKind::kWait, std::chrono::steady_clock::now() + 20ms)); });
  waiter.join();
  EXPECT_FALSE(parked);
  turn.end_run();
  EXPECT_TRUE(turn.begin_run()) << "who gave up is not waited for";
  turn.end_run();
  turn.leave();
  EXPECT_EQ(turn.late_calls(), 0u);
}

TEST(Turn, ABoardThatIsKeptRunsAlthoughACallWaits) {
  Turn turn([] {});
  ASSERT_TRUE(turn.enter(EntryKind::kCall, std::nullopt));
  std::thread caller([&] {
    turn.enter(EntryKind::kCall, std::nullopt);
    turn.leave();
  });
  EXPECT_TRUE(comes([&] {
    const bool runs = turn.begin_run();
    turn.end_run();
    return !runs;
  }));
  {
    const Turn::Kept whole(turn);
    EXPECT_TRUE(turn.begin_run());
    turn.end_run();
  }
  {
    const Turn::Left others(turn);
    caller.join();
  }
  EXPECT_TRUE(turn.begin_run());
  turn.end_run();
  turn.leave();
}

TEST(HostNews, WakesWhoSleepsAndLosesNothingInBetween) {
  HostNews news;
  const uint64_t seen = news.count();
  news.add();
  news.await(seen, std::nullopt);  // it has come already
  EXPECT_EQ(news.count(), seen + 1);
  std::thread other([&] { news.add(); });
  news.await(seen + 1, std::nullopt);
  other.join();
  news.await(seen + 2, std::chrono::steady_clock::now() + 10ms);
  EXPECT_EQ(news.count(), seen + 2);
}

TEST(Waiters, TheLastOneHandsBackWhatWasLeftToThem) {
  int calls = 0;
  Waiters waiters([&] { ++calls; });
  EXPECT_FALSE(waiters.leave_to_them()) << "there are none";
  {
    const Waiters::Waiter first(waiters);
    {
      const Waiters::Waiter second(waiters);
      EXPECT_TRUE(waiters.leave_to_them());
    }
    EXPECT_EQ(calls, 0);
    {
      const Waiters::Waiter::Pause sleeps(first);
      EXPECT_EQ(calls, 1) << "who sleeps lets no time pass";
    }
    EXPECT_TRUE(waiters.leave_to_them());
    waiters.done();
  }
  EXPECT_EQ(calls, 1) << "what is over is not handed back";
}

TEST(ForkCheck, OnlyAChildProcessIsRefused) {
  const ForkCheck check;
  EXPECT_FALSE(check.in_child());
  EXPECT_NO_THROW(check.check());
  const pid_t child = fork();
  if (child == 0) {
    std::_Exit(check.in_child() && !ForkCheck().in_child() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(CompletionThread, WorksAfterACallUntilThereIsNothingMore) {
  std::atomic<int> looks{0};
  CompletionThread thread([&] { return ++looks < 3; });
  EXPECT_EQ(looks, 0);
  thread.call_is_over();
  EXPECT_TRUE(comes([&] { return looks == 3; }));
  thread.begin_at_once();
  EXPECT_TRUE(comes([&] { return looks == 4; }));
}

}  // namespace
}  // namespace tpu::driver
