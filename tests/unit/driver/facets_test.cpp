// Entry to a board and leaving it, and the facets of a board that only look.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "image/firmware_image.hpp"
#include "src/facets/counter_reader.hpp"
#include "src/facets/debug_port.hpp"
#include "src/facets/memory_calls.hpp"
#include "src/facets/profiling.hpp"
#include "src/facets/sim_calls.hpp"
#include "tests/unit/driver/fake_cores.hpp"
#include "tpu/spec/perf_regs.hpp"

namespace tpu::driver {
namespace {

// A debug port with one word.
class Port : public test::SilentWire {
 public:
  std::string change_sim(const SimOptions& sim) override {
    traced = sim.trace_path;
    return traced == "full" ? "the disk is full" : "";
  }
  std::string traced;
  uint64_t now() override { return 42; }
  std::optional<uint32_t> debug_read(int device, uint32_t address) override {
    return device == 1 && address == 0x20000000 ? std::optional<uint32_t>(word) : std::nullopt;
  }
  bool debug_write(int device, uint32_t address, uint32_t value) override {
    word = value;
    return device == 1 && address == 0x20000000;
  }
  TransportStats stats() override {
    TransportStats stats;
    stats.hart_instructions = {5, 6};
    stats.counters = {std::vector<uint64_t>(64, 1), std::vector<uint64_t>(64, 2)};
    return stats;
  }
  uint32_t word = 7;
};

class FacetsTest : public testing::Test, protected test::FakeBoard {
 protected:
  FacetsTest() : transport_(std::make_unique<Port>()) { counters_.set_mxus(2); }

  std::unique_ptr<Transport> transport_;
  int settled_ = 0;
  int woken_ = 0;
  Waiters waiters_{[this] { ++woken_; }};
  const ForkCheck forks_;
  std::shared_ptr<CompletionThread> thread_;
  Door door_{turn, forks_, outbox, operations, order, waiters_, thread_};
  LaunchRecords records_{transport_};
  DebugPort debug_port_{door_, health, cores.devices, transport_};
  Profiling profiling_{door_, health, transport_, records_, [this] { ++settled_; }};
  CounterReader counters_{door_,
                          health,
                          cores.devices,
                          operations,
                          memory,
                          transport_,
                          {.settle =
                               [this](uint64_t) {
                                 for (const int device : {0, 1}) {
                                   report(device);
                                 }
                               },
                           .add_own = [](BoardCounters& own) { own.late_calls = 3; }}};
};

TEST_F(FacetsTest, CallbacksRunWhenTheCallHasLeftTheLock) {
  EventState event;
  bool entered = false;
  event.callbacks.push_back([&](const ErrorPtr&) {
    entered = turn.enter(EntryKind::kWait, std::chrono::steady_clock::now());
    turn.leave();
  });
  {
    const Door::Entry call(door_);
    EXPECT_TRUE(call.entered());
    outbox.set_event(event, nullptr);
    EXPECT_FALSE(turn.enter(EntryKind::kWait, std::chrono::steady_clock::now()));
  }
  EXPECT_TRUE(entered);
}

TEST_F(FacetsTest, ALookLeavesCallbacksToOthers) {
  EventState event;
  int calls = 0;
  event.callbacks.push_back([&](const ErrorPtr&) { ++calls; });
  {
    const Door::Entry look(door_, EntryKind::kLook);
    outbox.set_event(event, nullptr);
  }
  EXPECT_EQ(calls, 0);
  { const Door::Entry call(door_); }
  EXPECT_EQ(calls, 1);
}

TEST_F(FacetsTest, AWaitThatLeavesNothingTellsThatItIsOver) {
  const Waiters::Waiter waiter(waiters_);
  EXPECT_TRUE(waiters_.leave_to_them());
  { const Door::Entry wait(door_, EntryKind::kWait); }
  { const Waiters::Waiter::Pause sleeps(waiter); }
  EXPECT_EQ(woken_, 0);
}

TEST_F(FacetsTest, WordsAreReadAndWrittenByPlace) {
  EXPECT_EQ(debug_port_.peek_word(1, "0x20000000"), 7u);
  debug_port_.poke_word(1, "0x20000000", 9);
  EXPECT_EQ(debug_port_.peek_word(1, "0x20000000"), 9u);
  EXPECT_THROW(debug_port_.peek_word(2, "0x20000000"), Error);
  EXPECT_THROW(debug_port_.peek_word(0, "0x20000000"), Error);
  EXPECT_THROW(debug_port_.peek_word(1, "no.SUCH"), Error);
  EXPECT_THROW(debug_port_.poke_word(0, "0x20000000", 1), Error);
}

TEST_F(FacetsTest, LooksCostNothingAndLogsWaitForLaunches) {
  EXPECT_EQ(profiling_.now(), 42u);
  EXPECT_EQ(profiling_.hart_instructions(), (std::vector<uint64_t>{5, 6}));
  EXPECT_EQ(settled_, 0);
  profiling_.take_commands();
  EXPECT_EQ(settled_, 1);
  health.begin_closing();
  EXPECT_THROW(profiling_.now(), Error);
}

TEST_F(FacetsTest, AnUploadWaitsForTheHostAndNothingEntersAClosedBoard) {
  Transfers transfers(memory, operations, order, handles, turn);
  std::vector<uint64_t> prepared;
  MemoryCalls calls(door_, health, memory, transfers,
                    [&](uint64_t bytes) { prepared.push_back(bytes); });
  const std::vector<float> values{1, 2};
  const HostView view(DType::kF32, {2}, std::as_bytes(std::span(values)));
  const Buffer made = calls.upload({1}, view, Box(view, Shape{0}, {2}), {2}, 0, "x").front();
  EXPECT_EQ(prepared, std::vector<uint64_t>{8});
  EXPECT_EQ(cores.devices[1].ring.open(), 1u);
  EXPECT_TRUE(turn.enter(EntryKind::kWait, std::chrono::steady_clock::now())) << "it has left";
  turn.leave();
  health.begin_closing();
  EXPECT_THROW(calls.zeros(0, DType::kF32, {2}, 0), Error);
  EXPECT_THROW(calls.upload({1}, view, Box(view, Shape{0}, {2}), {2}, 0, "x"), Error);
  EXPECT_EQ(prepared.size(), 1u);
}

TEST_F(FacetsTest, OptionsAndLimitsChangeBetweenLaunches) {
  Harts harts(transport_, cores.registers, outbox);
  harts.set_firmware(std::make_shared<firmware::Image>(), 0);
  TimeLimit limit(
      transport_, cores.devices, cores.registers, harts,
      [](const char*, const Operation*, const std::vector<UnitWait>&, const TransportStats&) {
        return std::string();
      },
      [](const ErrorPtr&) {});
  SimCalls calls(door_, health, transport_, records_, harts, limit, [this] { ++settled_; });
  calls.open({});
  calls.open_limit(std::nullopt, 2);
  EXPECT_EQ(limit.seconds(), 60);
  calls.change_time_limit(5);
  EXPECT_EQ(limit.seconds(), 5);
  EXPECT_THROW(calls.change_time_limit(-1), Error);
  EXPECT_EQ(limit.seconds(), 5) << "nothing has changed";
  SimOptions sim;
  sim.trace_path = "full";
  EXPECT_THROW(calls.change_sim(sim), Error);
  EXPECT_EQ(calls.sim().trace_path, "full") << "files of the last options, not these, are broken";
  EXPECT_EQ(settled_, 3);
}

TEST_F(FacetsTest, CountersComeByCommandsOrFromTheDebugPort) {
  const BoardCounters asked = counters_.counters();
  ASSERT_EQ(asked.cores.size(), 2u);
  EXPECT_EQ(asked.cores[0].all.size(), spec::perf::kMxu2BusyCycles);
  EXPECT_EQ(asked.cores[1].hart_instructions, 6u);
  EXPECT_EQ(asked.now_cycles, 42u);
  EXPECT_EQ(asked.late_calls, 3u);
  const BoardCounters seen = counters_.peek();
  EXPECT_EQ(seen.cores[1].cycles, 2u);
  health.break_by(std::make_shared<Error>(ErrorCode::kInternal, "it broke"));
  EXPECT_THROW(counters_.peek(), Error);
}

}  // namespace
}  // namespace tpu::driver
