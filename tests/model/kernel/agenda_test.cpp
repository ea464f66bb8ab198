// Tasks of an agenda have their turns in the cycles and delta cycles of SC_METHODs that wait for
// the same, and cost SystemC few delta cycles.
#include "kernel/agenda.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tpu::model {
namespace {

constexpr size_t kMembers = 24;
constexpr uint32_t kReasons = 3;
using Turns = std::vector<std::vector<uint64_t>>;  // of each member: the cycles

// What a member does in a turn, by its own random numbers.
struct Choice {
  explicit Choice(std::mt19937& numbers) {
    const auto random = [&numbers] { return static_cast<uint32_t>(numbers()); };
    for (uint32_t i = random() % 3; i > 0; --i) {
      const auto to = random() % kMembers;
      notified.emplace_back(to, 1U << random() % kReasons);
    }
    reasons = random() % 8 | Task::kWake;
    switch (random() % 8) {
      case 0:
        timed = false;
        break;
      case 1:
        cycles = random() % 20'000;  // many of them far
        break;
      case 2:
        cycles = 2040 + random() % 16;
        break;
      case 3:
        cycles = 0;
        break;
      default:
        cycles = 1 + random() % 50;
    }
  }

  std::vector<std::pair<size_t, uint32_t>> notified;
  uint32_t reasons = 0;
  bool timed = true;
  uint64_t cycles = 0;
};

struct Member {
  std::mt19937 random;
  std::vector<uint64_t> turns;
};

template <class Members>
Turns turns_of(const Members& members) {
  Turns all;
  for (const auto& each : members) {
    all.push_back(each->of.turns);
  }
  return all;
}

class Tasks {
 public:
  Tasks() {
    for (size_t i = 0; i < kMembers; ++i) {
      members_.push_back(std::make_unique<One>(*this, i));
    }
  }
  void notify(size_t member, uint32_t reasons) { members_[member]->task.notify(reasons); }
  Turns turns() const { return turns_of(members_); }

 private:
  struct One {
    One(Tasks& tasks, size_t index)
        : all(tasks),
          of{std::mt19937(static_cast<uint32_t>(index)), {}},
          task(Task::of<&One::run>(tasks.agenda_, *this)) {}
    void run() {
      of.turns.push_back(now_cycles());
      const Choice choice(of.random);
      for (const auto& [to, reasons] : choice.notified) {
        all.notify(to, reasons);
      }
      choice.timed ? task.wait_cycles(choice.cycles, choice.reasons) : task.wait(choice.reasons);
    }
    Tasks& all;
    Member of;
    Task task;
  };

  Agenda agenda_{"agenda"};
  std::vector<std::unique_ptr<One>> members_;
};

class Methods {
 public:
  Methods() {
    for (size_t i = 0; i < kMembers; ++i) {
      members_.push_back(std::make_unique<One>(("member" + std::to_string(i)).c_str(), *this, i));
    }
  }
  void notify(size_t member, uint32_t reasons) {
    for (uint32_t bit = 0; bit < kReasons; ++bit) {
      if ((reasons >> bit & 1) != 0) {
        members_[member]->events[bit].notify(sc_core::SC_ZERO_TIME);
      }
    }
  }
  Turns turns() const { return turns_of(members_); }

 private:
  struct One : sc_core::sc_module {
    SC_HAS_PROCESS(One);
    One(sc_core::sc_module_name name, Methods& methods, size_t index)
        : sc_module(name), all(methods), of{std::mt19937(static_cast<uint32_t>(index)), {}} {
      for (uint32_t mask = 0; mask < lists.size(); ++mask) {
        for (uint32_t bit = 0; bit < kReasons; ++bit) {
          if ((mask >> bit & 1) != 0) {
            lists[mask] |= events[bit];
          }
        }
      }
      SC_METHOD(run);
      sensitive << events[0];
      dont_initialize();
    }
    void run() {
      of.turns.push_back(now_cycles());
      const Choice choice(of.random);
      for (const auto& [to, reasons] : choice.notified) {
        all.notify(to, reasons);
      }
      if (choice.timed) {
        next_trigger(from_cycles(choice.cycles), lists[choice.reasons]);
      } else {
        next_trigger(lists[choice.reasons]);
      }
    }
    Methods& all;
    Member of;
    std::array<sc_core::sc_event, kReasons> events;
    std::array<sc_core::sc_event_or_list, 1U << kReasons> lists;
  };

  std::vector<std::unique_ptr<One>> members_;
};

// A process of SystemC that notifies both.
struct Stranger : sc_core::sc_module {
  SC_HAS_PROCESS(Stranger);
  Stranger(sc_core::sc_module_name name, Tasks& a, Methods& b)
      : sc_module(name), tasks(a), methods(b) {
    SC_METHOD(run);
  }
  void run() {
    const auto next = [this] { return static_cast<uint32_t>(random()); };
    const size_t member = next() % kMembers;
    const uint32_t reason = 1U << next() % kReasons;
    tasks.notify(member, reason);
    methods.notify(member, reason);
    next_trigger(from_cycles(1 + next() % 400));
  }
  Tasks& tasks;
  Methods& methods;
  std::mt19937 random{99};
};

TEST(Agenda, GivesTurnsAsMethodsHaveThem) {
  Tasks tasks;
  Methods methods;
  Stranger stranger("stranger", tasks, methods);
  for (int part = 0; part < 100; ++part) {
    sc_core::sc_start(from_cycles(997));
    tasks.notify(0, Task::kWake);  // between runs
    methods.notify(0, Task::kWake);
  }
  EXPECT_EQ(tasks.turns(), methods.turns());
  for (const std::vector<uint64_t>& turns : tasks.turns()) {
    EXPECT_GT(turns.size(), 100U);
  }
}

// A chain of notifications in one cycle.
struct Chain {
  void run() {
    if (++turns < 1000) {
      task.notify();
    }
    task.wait();
  }
  Agenda agenda{"agenda"};
  int turns = 0;
  Task task{Task::of<&Chain::run>(agenda, *this)};
};

TEST(Agenda, TurnsOfTasksAloneAreNoDeltaCyclesOfSystemC) {
  Chain chain;
  chain.task.notify();
  sc_core::sc_start(from_cycles(1));
  EXPECT_EQ(chain.turns, 1000);
  EXPECT_LT(sc_core::sc_delta_count(), 10U);
}

struct Late {
  void run() {
    cycles.push_back(now_cycles());
    task.wait();
  }
  Agenda agenda{"agenda"};
  std::vector<uint64_t> cycles;
  Task task{Task::of<&Late::run>(agenda, *this)};
};

// Two tasks, and processes of SystemC of which one notifies a task in the delta cycle in which the
// other task is due, before the agenda has its turn.
struct Between : sc_core::sc_module {
  SC_HAS_PROCESS(Between);
  explicit Between(sc_core::sc_module_name name) : sc_module(name) {
    SC_METHOD(first);
    SC_METHOD(second);
    sensitive << second_event;
    dont_initialize();
    SC_METHOD(third);
    sensitive << third_event;
    dont_initialize();
  }
  void first() {
    due.notify();
    due.notify();                                // no second turn
    second_event.notify(sc_core::SC_ZERO_TIME);  // SystemC begins with the last event
  }
  void second() {
    third_event.notify(sc_core::SC_ZERO_TIME);
    late.notify();
  }
  void third() { add("third"); }
  void run_due() { add("due"); }
  void run_late() { add("late"); }
  void add(const std::string& name) {
    turns.push_back(name + " " + std::to_string(sc_core::sc_delta_count() - start));
  }
  sc_core::sc_event second_event{"second_event"};
  sc_core::sc_event third_event{"third_event"};
  Agenda agenda{"agenda"};
  Task due{Task::of<&Between::run_due>(agenda, *this)};
  Task late{Task::of<&Between::run_late>(agenda, *this)};
  uint64_t start = sc_core::sc_delta_count();
  std::vector<std::string> turns;
};

TEST(Agenda, ATaskIsNotDueInTheDeltaCycleThatNotifiesIt) {
  Between between("between");
  sc_core::sc_start(from_cycles(1));
  EXPECT_EQ(between.turns, std::vector<std::string>({"due 1", "late 2", "third 2"}));
}

// SystemC knows the next turn, to the cycle: windows of a pod end there.
TEST(Agenda, WakesSystemCForTheNextTurn) {
  const auto ahead = [] { return to_cycles(sc_core::sc_time_to_pending_activity()); };
  Late near;
  sc_core::sc_start(from_cycles(5));
  near.task.wait_cycles(3000);
  EXPECT_EQ(ahead(), 3000U);
  near.task.wait_cycles(40);
  EXPECT_EQ(ahead(), 40U);
  near.task.wait_cycles(2047);
  EXPECT_EQ(ahead(), 2047U);
  near.task.wait();
  EXPECT_GT(ahead(), uint64_t{1} << 40);
  near.task.wait_cycles(2048);
  sc_core::sc_start(from_cycles(5000));
  EXPECT_EQ(near.cycles, std::vector<uint64_t>({2053}));
}

}  // namespace
}  // namespace tpu::model
