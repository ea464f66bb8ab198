// How far a process may run: single rules, and made-up pods whose processes take turns at random,
// which end all runs where one process ends them and have its history.
#include "wire/pod_clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "wire/wire.hpp"

namespace tpu::model {
namespace {

using What = PodClock::Step::What;

constexpr uint64_t kNone = UINT64_MAX;
constexpr uint64_t kLookahead = 20;

PodStatus status_of(uint64_t done, uint64_t silent, uint64_t busy, uint64_t until = kPodQuiet) {
  PodStatus status{};
  status.run = 1;
  status.done = done;
  status.silent = silent;
  status.halt = kNone;
  status.busy = busy;
  status.until = until;
  return status;
}

class TwoProcesses : public ::testing::Test {
 protected:
  TwoProcesses() { clock.begin(1, 10); }
  PodClock::Step next(const PodStatus& other, const PodStatus& mine, bool active = true) {
    EXPECT_TRUE(clock.hear(1, other));
    return clock.next(mine, active);
  }
  PodClock clock{0, 2, kLookahead};
};

TEST_F(TwoProcesses, WaitUntilTheOtherHasSaidSomething) {
  EXPECT_EQ(clock.next(status_of(10, 20, 11), true).what, What::kWait);
}

TEST_F(TwoProcesses, RunStrictlyBelowTheFirstArrival) {
  const PodClock::Step step = next(status_of(10, 45, 11), status_of(10, 30, 11));
  EXPECT_EQ(step.what, What::kRun);
  EXPECT_EQ(step.to, 30 + kLookahead - 1);
  EXPECT_EQ(clock.end(), step.to);
  EXPECT_EQ(clock.silent(), 30);
}

TEST_F(TwoProcesses, BeginAWindowTogether) {
  EXPECT_EQ(next(status_of(10, 11, 11), status_of(10, 11, 11)).to, 30);
  EXPECT_EQ(clock.next(status_of(30, 500, 31), true).what, What::kWait);
  EXPECT_EQ(next(status_of(29, 400, 30), status_of(30, 500, 31)).what, What::kWait);
  EXPECT_EQ(next(status_of(30, 300, 31), status_of(30, 500, 31)).to, 319);
}

// The other one has heard all of this window and is in the next one.
TEST_F(TwoProcesses, KeepStatusesOfTheNextWindow) {
  EXPECT_FALSE(clock.hear(1, status_of(11, 40, 12)));
  EXPECT_EQ(next(status_of(10, 11, 11), status_of(10, 11, 11)).to, 30);
  EXPECT_TRUE(clock.hear(1, status_of(11, 40, 12)));
}

TEST_F(TwoProcesses, DoNotPassAnInterrupt) {
  PodStatus other = status_of(10, 50, 11);
  other.halt = 33;
  EXPECT_EQ(next(other, status_of(10, 30, 11)).to, 33);
  EXPECT_EQ(next(other, status_of(33, 53, 34)).what, What::kWait);
}

TEST_F(TwoProcesses, FollowWithNothingInFlight) {
  EXPECT_EQ(next(status_of(10, 50, 11), status_of(10, 30, 0), false).to, 11);
  EXPECT_EQ(next(status_of(10, 50, 31), status_of(10, 30, 0), false).to, 31);
}

TEST_F(TwoProcesses, StopWhereNothingIsInFlight) {
  const PodClock::Step step = next(status_of(10, 50, 10), status_of(10, 30, 0), false);
  EXPECT_EQ(step.what, What::kStop);
  EXPECT_TRUE(step.quiet);
}

TEST_F(TwoProcesses, KeepStatusesOfTheNextRun) {
  PodStatus other = status_of(10, 50, 11);
  other.run = 2;
  EXPECT_FALSE(clock.hear(1, other));
  other.run = 3;
  EXPECT_THROW(clock.hear(1, other), PodLost);
}

TEST_F(TwoProcesses, RejectWhatIsTakenBack) {
  EXPECT_EQ(next(status_of(10, 50, 11), status_of(10, 50, 11)).to, 69);
  EXPECT_TRUE(clock.hear(1, status_of(12, 49, 13)));
  EXPECT_THROW(clock.hear(1, status_of(11, 49, 13)), PodLost);
  EXPECT_THROW(clock.hear(1, status_of(12, 48, 13)), PodLost);
  EXPECT_THROW(clock.hear(1, status_of(13, 13, 14)), PodLost);
}

TEST_F(TwoProcesses, RejectRunsThatDiffer) {
  EXPECT_THROW(next(status_of(10, 50, 11, 100), status_of(10, 20, 11)), PodLost);
}

// A made-up board: work items that take time, make others, send some to other boards, and raise
// interrupts. Its history is a function of what arrives and when.
struct Item {
  uint64_t at;
  uint32_t from;
  uint64_t number;
  uint64_t seed;
  bool calm = false;  // makes a calm one or ends, and sends nothing
  bool operator<(const Item& other) const {
    return std::tie(at, from, number) < std::tie(other.at, other.from, other.number);
  }
};

struct Sent {
  uint32_t to;
  Item item;
};

struct Toy {
  uint32_t id = 0;
  uint32_t boards = 1;
  std::set<Item> items;       // under way: the board is busy while there is one
  std::set<uint64_t> alarms;  // events that count as nothing
  std::set<uint64_t> msi;     // on their way to the host
  bool interrupt = false;
  uint64_t count = 0;
  uint64_t hash = 0;

  bool busy() const { return !items.empty() || !msi.empty(); }
  uint64_t next() const {
    uint64_t least = items.empty() ? kNone : items.begin()->at;
    least = std::min(least, alarms.empty() ? kNone : *alarms.begin());
    return std::min(least, msi.empty() ? kNone : *msi.begin());
  }
  // First cycle in which it may send, unless something arrives. What a calm item makes comes later.
  uint64_t silent() const {
    uint64_t least = kNone;
    for (const Item& item : items) {
      least = std::min(least, item.at + (item.calm ? 1 : 0));
    }
    return least;
  }
  std::vector<Sent> perform(uint64_t now) {
    std::vector<Sent> sent;
    while (!items.empty() && items.begin()->at == now) {
      const Item item = *items.begin();
      items.erase(items.begin());
      hash = hash * 1'000'003 + item.at * 31 + item.from * 7 + item.seed;
      std::mt19937_64 chance(item.seed);
      const uint64_t kind = chance() % 100;
      if (item.calm || kind >= 95) {
        if (kind < 80) {
          items.insert({now + 1 + chance() % 30, id, ++count, chance(), kind < 70});
        }
        continue;
      }
      if (kind < 55) {
        items.insert({now + 1 + chance() % 30, id, ++count, chance()});
      }
      if (kind >= 40 && kind < 62 && boards > 1) {
        const auto to = static_cast<uint32_t>((id + 1 + chance() % (boards - 1)) % boards);
        sent.push_back({to, {now + kLookahead + chance() % 40, id, ++count, chance()}});
      }
      if (kind >= 62 && kind < 70) {
        msi.insert(now + kLookahead + chance() % 9);
      }
      if (kind >= 70 && kind < 80) {
        alarms.insert(now + 1 + chance() % 200);
      }
    }
    if (alarms.erase(now) != 0) {
      hash = hash * 1'000'003 + now;
    }
    interrupt = interrupt || msi.erase(now) != 0;
    return sent;
  }
  void kick(uint64_t now, uint64_t seed) { items.insert({now + 25, id, ++count, seed}); }
};

struct Stop {
  uint64_t at;
  bool quiet;
  bool interrupt;
  bool operator==(const Stop&) const = default;
};

struct History {
  std::vector<Stop> stops;
  std::vector<uint64_t> hashes;
  bool operator==(const History&) const = default;
};

constexpr int kRuns = 40;
constexpr uint32_t kBoards = 4;

std::vector<Toy> toys() {
  std::vector<Toy> all(kBoards);
  for (uint32_t id = 0; id < kBoards; ++id) {
    all[id].id = id;
    all[id].boards = kBoards;
  }
  return all;
}

// Between two runs the host acts on some boards.
void host_acts(const std::vector<Toy*>& boards, uint64_t seed, int run, uint64_t now) {
  for (Toy* toy : boards) {
    std::mt19937_64 chance(seed * 1000 + static_cast<uint64_t>(run) * 10 + toy->id);
    toy->interrupt = false;
    if (chance() % 3 != 0) {
      toy->kick(now, chance());
    }
  }
}

History in_one_process(uint64_t seed) {
  History history;
  std::vector<Toy> boards = toys();
  std::vector<Toy*> all;
  for (Toy& toy : boards) {
    all.push_back(&toy);
  }
  uint64_t now = 0;
  std::multimap<uint64_t, Sent> wires;  // count as in flight
  for (int run = 0; run < kRuns; ++run) {
    host_acts(all, seed, run, now);
    for (;;) {
      const bool interrupt = std::ranges::any_of(boards, &Toy::interrupt);
      const bool busy = !wires.empty() || std::ranges::any_of(boards, &Toy::busy);
      if (interrupt || !busy) {
        history.stops.push_back({now, !busy, interrupt});
        break;
      }
      uint64_t next = wires.empty() ? kNone : wires.begin()->first;
      for (const Toy& toy : boards) {
        next = std::min(next, toy.next());
      }
      now = next;
      while (!wires.empty() && wires.begin()->first == now) {
        boards[wires.begin()->second.to].items.insert(wires.begin()->second.item);
        wires.erase(wires.begin());
      }
      for (Toy& toy : boards) {
        for (const Sent& sent : toy.perform(now)) {
          wires.emplace(sent.item.at, sent);
        }
      }
    }
  }
  for (const Toy& toy : boards) {
    history.hashes.push_back(toy.hash);
  }
  return history;
}

// A process with some of the boards, as board/pod_process.cpp runs them.
struct Process {
  Process(uint32_t rank_in, uint32_t ranks)
      : rank(rank_in), clock(rank_in, ranks, kLookahead), inbox(ranks) {}

  struct Word {
    bool is_status;
    PodStatus status;
    Sent sent;
  };

  // `silent` is said once for a cycle.
  uint64_t silent_now() {
    if (!silent || silent->first != now) {
      on_the_way.erase(on_the_way.begin(), on_the_way.upper_bound(now));
      uint64_t next = on_the_way.empty() ? kNone : *on_the_way.begin();
      for (const Toy* toy : boards) {
        next = std::min(next, toy->silent());
      }
      silent = {now, std::max(now + 1, next)};
    }
    return silent->second;
  }
  PodStatus status() {
    PodStatus mine{};
    mine.run = clock.run();
    mine.done = now;
    mine.silent = silent_now();
    mine.halt = kNone;
    bool busy = false;
    bool interrupt = false;
    for (const Toy* toy : boards) {
      busy = busy || toy->busy();
      interrupt = interrupt || toy->interrupt;
      mine.halt = std::min<uint64_t>(mine.halt, toy->msi.empty() ? kNone : *toy->msi.begin());
    }
    mine.busy = std::max(busy ? now + 1 : 0, sent_until);
    mine.until = kPodQuiet;
    mine.flags = interrupt ? TPU_POD_WIRE_STOP : 0;
    if (interrupt) {
      mine.halt = now;
    }
    return mine;
  }
  bool active() const {
    return std::ranges::any_of(boards, [](const Toy* toy) { return toy->busy(); });
  }

  const uint32_t rank;
  PodClock clock;
  std::vector<std::deque<Word>> inbox;  // by rank
  std::vector<Toy*> boards;
  uint64_t now = 0;
  uint64_t sent_until = 0;
  std::multiset<uint64_t> on_the_way;  // arrivals of what it has sent to others
  std::optional<std::pair<uint64_t, uint64_t>> silent;
  std::optional<PodStatus> said;
  uint64_t windows = 0;
  std::vector<Stop> stops;
};

History in_processes(uint64_t seed, uint32_t ranks, uint64_t order) {
  std::mt19937_64 chance(order);
  std::vector<Toy> boards = toys();
  std::deque<Process> processes;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    processes.emplace_back(rank, ranks);
  }
  const auto home = [&](uint32_t board) { return board * ranks / kBoards; };
  for (Toy& toy : boards) {
    processes[home(toy.id)].boards.push_back(&toy);
  }
  for (Process& process : processes) {
    host_acts(process.boards, seed, 0, 0);
    process.clock.begin(1, 0);
  }
  for (int turn = 0; turn < 2'000'000; ++turn) {
    if (std::ranges::all_of(processes, [](const Process& process) {
          return process.stops.size() == static_cast<size_t>(kRuns);
        })) {
      break;
    }
    Process& process = processes[chance() % ranks];
    if (process.stops.size() == static_cast<size_t>(kRuns)) {
      continue;
    }
    for (uint32_t from = 0; from < ranks; ++from) {
      for (uint64_t words = chance() % 8; words > 0 && !process.inbox[from].empty(); --words) {
        const Process::Word& word = process.inbox[from].front();
        if (word.is_status) {
          if (!process.clock.hear(from, word.status)) {
            break;
          }
        } else {
          EXPECT_GT(word.sent.item.at, process.clock.end()) << "it comes earlier than promised";
          boards[word.sent.to].items.insert(word.sent.item);
        }
        process.inbox[from].pop_front();
      }
    }
    const PodStatus mine = process.status();
    const auto say = [&] {
      if (process.said && std::memcmp(&mine, &*process.said, sizeof mine) == 0) {
        return;
      }
      process.said = mine;
      for (Process& other : processes) {
        if (&other != &process) {
          other.inbox[process.rank].push_back({true, mine, {}});
        }
      }
    };
    if (mine.done == process.clock.end() || mine.flags != 0) {
      say();
    }
    const PodClock::Step step = process.clock.next(mine, process.active());
    if (step.what != What::kRun) {
      say();
    }
    if (step.what == What::kStop) {
      process.stops.push_back({process.now, step.quiet, step.interrupt});
      host_acts(process.boards, seed, static_cast<int>(process.stops.size()), process.now);
      process.clock.begin(process.clock.run() + 1, process.now);
      process.silent.reset();
    }
    if (step.what != What::kRun) {
      continue;
    }
    ++process.windows;
    const bool was_active = process.active();
    while (process.now < step.to) {
      uint64_t next = step.to;
      for (const Toy* toy : process.boards) {
        next = std::min(next, toy->next());
      }
      process.now = next;
      bool interrupt = false;
      for (Toy* toy : process.boards) {
        for (const Sent& sent : toy->perform(next)) {
          process.sent_until = std::max(process.sent_until, sent.item.at);
          if (home(sent.to) == process.rank) {
            boards[sent.to].items.insert(sent.item);
          } else {
            EXPECT_GE(process.now, process.clock.silent()) << "it leaves earlier than promised";
            process.on_the_way.insert(sent.item.at);
            processes[home(sent.to)].inbox[process.rank].push_back({false, {}, sent});
          }
        }
        interrupt = interrupt || toy->interrupt;
      }
      if (interrupt || (was_active && !process.active())) {
        break;
      }
    }
  }
  History history;
  for (const Process& process : processes) {
    EXPECT_EQ(process.stops, processes.front().stops);
  }
  history.stops = processes.front().stops;
  for (const Toy& toy : boards) {
    history.hashes.push_back(toy.hash);
  }
  return history;
}

TEST(PodClock, EndsRunsWhereOneProcessDoes) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const History one = in_one_process(seed);
    ASSERT_EQ(one.stops.size(), static_cast<size_t>(kRuns));
    for (const uint32_t ranks : {2U, 3U, 4U}) {
      EXPECT_EQ(in_processes(seed, ranks, seed * 17 + ranks), one)
          << "seed " << seed << " in " << ranks << " processes";
    }
  }
}

}  // namespace
}  // namespace tpu::model
