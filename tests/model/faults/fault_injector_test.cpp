// When a fault happens within its cycle.
#include "faults/fault_injector.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <systemc>
#include <utility>
#include <vector>

#include "board/board_loader.hpp"
#include "kernel/cycles.hpp"
#include "kernel/end_cycle.hpp"

namespace tpu::model {
namespace {

constexpr uint64_t kCycle = 50;
constexpr int kChain = 20;  // delta cycles

// What else happens in the cycle: a chain of events, and a gate process that waits for all of it.
class Others : public sc_core::sc_module {
 public:
  SC_HAS_PROCESS(Others);
  explicit Others(sc_core::sc_module_name name) : sc_module(name) {
    SC_METHOD(link_method);
    sensitive << link_;
    dont_initialize();
    SC_THREAD(gate_thread);
    link_.notify(from_cycles(kCycle));
  }
  std::vector<std::string> order;

 private:
  void link_method() {
    order.push_back("link");
    if (++links_ < kChain) {
      link_.notify(sc_core::SC_ZERO_TIME);
    }
  }
  void gate_thread() {
    wait(from_cycles(kCycle));
    end_cycle();
    EXPECT_EQ(now_cycles(), kCycle);
    order.emplace_back("gate");
  }
  sc_core::sc_event link_{"link"};
  int links_ = 0;
};

class Targets : public FaultTargets {
 public:
  explicit Targets(std::vector<std::string>& order) : order_(order) {}
  std::string upset(const FaultEntry& entry, const FaultWords& /*words*/,
                    uint64_t /*command*/) override {
    order_.push_back("fault " + std::to_string(entry.number));
    EXPECT_EQ(now_cycles(), kCycle);
    return "a bit flips";
  }

 private:
  std::vector<std::string>& order_;
};

// Faults 1 and 3 are known from the start, 2 when its program begins: in the same cycle, or long
// before.
TEST(FaultInjector, FaultsComeBehindAllElseOfTheirCycleByNumber) {
  const std::string core = "kind = \"hbm\"\nwhere = \"core 1\"\n";
  const std::string at = "at = \"cycle " + std::to_string(kCycle) + "\"\n";
  const std::string text = "[[fault]]\n" + core + at + "[[fault]]\n" + core +
                           "at = \"launch 7\"\n[[fault]]\n" + core + at;
  Others others("others");
  Targets targets(others.order);
  ProbeSet probes;
  const LaunchPrograms programs;
  const spec::BoardParams params = spec::load_board("v3_8");
  FaultInjector injector(
      "faults", parse_fault_script(text, "faults.toml", 0, params),
      ::testing::TempDir() + "fault_injector.log",
      static_cast<uint32_t>(params.board.cores_per_chip), targets,
      [](const FaultEntry&) { return true; }, probes, programs);
  sc_core::sc_start(from_cycles(kCycle / 2));
  injector.program({.cycle = kCycle, .core = 1, .launch = 7, .begin = true});
  sc_core::sc_start(from_cycles(kCycle));
  std::vector<std::string> expected(kChain, "link");
  expected.insert(expected.end(), {"fault 1", "fault 2", "fault 3", "gate"});
  EXPECT_THAT(others.order, ::testing::ElementsAreArray(expected));
}

}  // namespace
}  // namespace tpu::model
