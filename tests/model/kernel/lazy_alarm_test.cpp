// The alarm goes off at the cycle for which it was set last, and costs few events otherwise.
#include "kernel/lazy_alarm.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tpu::model {
namespace {

struct Listener : sc_core::sc_module {
  SC_HAS_PROCESS(Listener);
  explicit Listener(sc_core::sc_module_name name) : sc_module(name) {
    SC_METHOD(alarm_method);
    sensitive << alarm.event();
    dont_initialize();
  }
  void alarm_method() {
    ++wakes;
    if (alarm.due()) {
      rung.push_back(now_cycles());
    }
  }

  LazyAlarm alarm{"alarm"};
  int wakes = 0;
  std::vector<uint64_t> rung;
};

void run_to(uint64_t cycle) { sc_core::sc_start(from_cycles(cycle - now_cycles())); }

TEST(LazyAlarm, GoesOffAtTheCycleForWhichItWasSetLast) {
  using Cycles = std::vector<uint64_t>;
  Listener listener("listener");
  run_to(1);
  listener.alarm.set(999);
  for (uint64_t cycle = 2; cycle < 900; ++cycle) {
    run_to(cycle);
    listener.alarm.cancel();
    listener.alarm.set(1000);
  }
  run_to(1898);
  EXPECT_EQ(listener.rung, Cycles());
  EXPECT_EQ(listener.wakes, 1);  // at 1000
  run_to(2000);
  EXPECT_EQ(listener.rung, Cycles({1899}));
  EXPECT_EQ(listener.wakes, 2);

  listener.alarm.set(100);
  listener.alarm.cancel();
  run_to(3000);
  EXPECT_EQ(listener.rung, Cycles({1899}));

  listener.alarm.set(10'000);
  listener.alarm.set(10);  // sooner
  run_to(20'000);
  EXPECT_EQ(listener.rung, Cycles({1899, 3010}));

  listener.alarm.set(5);
  run_to(20'005);
  run_to(20'006);
  EXPECT_EQ(listener.rung, Cycles({1899, 3010, 20'005}));
}

}  // namespace
}  // namespace tpu::model
