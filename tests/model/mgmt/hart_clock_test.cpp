// Sleepers wake at their cycles, in the order of their numbers, and those of one cycle share it.
#include "mgmt/hart_clock.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kernel/cycles.hpp"

namespace tpu::model {
namespace {

using Wakes = std::vector<std::pair<uint64_t, uint32_t>>;  // cycle, number

struct Sleeper : HartClock::Sleeper {
  Sleeper(HartClock& of, uint32_t own, Wakes& log) : clock(of), number(own), wakes(log) {}
  void wake() override {
    wakes.emplace_back(now_cycles(), number);
    if (again > 0) {
      clock.wake_at(now_cycles() + std::exchange(again, 0), number, *this);
    }
  }
  HartClock& clock;
  const uint32_t number;
  Wakes& wakes;
  uint64_t again = 0;
};

TEST(HartClock, WakesEachAtItsCycle) {
  HartClock clock("clock");
  Wakes wakes;
  Sleeper first(clock, 0, wakes);
  Sleeper second(clock, 1, wakes);
  Sleeper third(clock, 2, wakes);
  clock.wake_at(100, 2, third);
  clock.wake_at(40, 1, second);  // sooner than what was sent
  clock.wake_at(100, 0, first);
  second.again = 60;
  first.again = 1;
  sc_core::sc_start(from_cycles(60));
  EXPECT_EQ(wakes, (Wakes{{40, 1}}));
  sc_core::sc_start(from_cycles(200));
  EXPECT_EQ(wakes, (Wakes{{40, 1}, {100, 0}, {100, 1}, {100, 2}, {101, 0}}));
  clock.wake_at(now_cycles() + 5, 2, third);
  sc_core::sc_start(from_cycles(10));
  EXPECT_EQ(wakes.back(), (std::pair<uint64_t, uint32_t>{265, 2}));
}

}  // namespace
}  // namespace tpu::model
