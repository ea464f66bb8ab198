// Letting simulated time pass: one park of the board, the time limit of launches, a turn of the
// pump.
#include "src/pump/pump.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "src/pump/launch_reporter.hpp"
#include "src/residency/program.hpp"
#include "tests/unit/driver/fake_driver.hpp"

namespace tpu::driver {
namespace {

using namespace std::chrono_literals;
namespace core_page = spec::core_page;

// A board whose runs a test plays.
class RunWire : public test::FaultWire {
 public:
  RunOutcome run() override {
    ++runs;
    return play ? play()
                : RunOutcome{.quiescent = true, .expired = false, .msi = {}, .console = {}};
  }
  RunOutcome run_until(uint64_t cycle) override {
    until.push_back(cycle);
    clock = cycle;
    return {};
  }
  uint64_t now() override { return clock; }
  void limit_run(std::chrono::nanoseconds limit) override { limits.push_back(limit); }
  void host_prepares(bool begins) override { prepares.push_back(begins); }

  std::function<RunOutcome()> play;
  int runs = 0;
  uint64_t clock = 100;
  std::vector<uint64_t> until;
  std::vector<std::chrono::nanoseconds> limits;
  std::vector<bool> prepares;
};

class PumpTest : public testing::Test, protected test::FakeDriver {
 protected:
  PumpTest() {
    auto made = std::make_unique<RunWire>();
    wire_ = made.get();
    cores.registers.connect(wire_);
    transport = std::move(made);
    run = [this] { return run_.run(); };
    turn.enter(EntryKind::kCall, std::nullopt);
  }
  ~PumpTest() override { turn.leave(); }

  std::shared_ptr<Operation> launch(const std::string& what = "launch of add", int device = 0) {
    return launch_of(std::make_shared<exe::ExecutableT>(), {device}, what);
  }
  std::shared_ptr<Operation> launch_of(const std::shared_ptr<exe::ExecutableT>& exe,
                                       const std::vector<int>& on, const std::string& what) {
    auto op = operations.begin(what);
    op->program = std::make_shared<LoadedProgram>(exe, on);
    for (const int device : on) {
      auto command = std::make_shared<Command>();
      command->device = device;
      command->opcode = TPU_OP_LAUNCH;
      op->commands.push_back(command);
      op->calls.resize(exe->host_calls.empty() ? 0 : on.size());
    }
    launcher.give_id(*op);
    operations.submit_gang(op);
    return op;
  }
  // A launch on core 1 whose program sends nothing to the host, and waits for it.
  std::shared_ptr<Operation> launch_that_calls() {
    const auto exe = std::make_shared<exe::ExecutableT>();
    exe->ops.push_back(std::make_unique<exe::OpInfoT>());
    exe->host_calls.push_back(std::make_unique<exe::HostCallT>());
    exe->host_calls[0]->to_host = true;
    exe->host_calls[0]->dims = {0};
    return launch_of(exe, {1}, "launch that calls");
  }
  // The oldest command of a core ends so.
  void end(int core, uint16_t status = TPU_STATUS_OK) {
    tpu_completion_t record{};
    record.seq = cores.oldest(core)->seq;
    record.status = status;
    cores.write(core, record);
  }

  RunWire* wire_ = nullptr;
  TimeLimit limit_{transport,
                   cores.devices,
                   cores.registers,
                   harts,
                   [](const char*, const Operation*, const std::vector<UnitWait>&,
                      const TransportStats&) { return std::string(); },
                   break_board};
  BoardRun run_{transport,
                turn,
                health,
                cores.devices,
                cores.registers,
                feeds,
                completions,
                harts,
                outbox,
                limit_,
                {.break_board = break_board,
                 .abort_launches = [this] { recovery.abort_launches(); },
                 .chip_events = [](std::span<const uint32_t>) {}}};
  Pump pump_{transport, turn,        health,   news, cores.devices, order,      feeds,
             calls,     completions, recovery, run_, limit_,        break_board};
};

TEST_F(PumpTest, ARunSendsDoorbellsAndTellsWhetherTheBoardIsQuiescent) {
  launch();
  wire_->writes.clear();
  wire_->play = [&] {
    EXPECT_FALSE(wire_->writes.empty()) << "doorbells come first";
    EXPECT_TRUE(turn.running());
    return RunOutcome{};
  };
  EXPECT_TRUE(run_.run());
  EXPECT_FALSE(turn.running());
  wire_->play = nullptr;
  EXPECT_FALSE(run_.run());
}

TEST_F(PumpTest, ARunGoesOnUntilItsDeadlineAndNoLonger) {
  wire_->play = [] {
    std::this_thread::sleep_for(1ms);
    RunOutcome outcome;
    outcome.expired = true;
    return outcome;
  };
  EXPECT_TRUE(run_.run(std::chrono::steady_clock::now() + 200ms));
  EXPECT_GT(wire_->runs, 1);
  EXPECT_GT(wire_->limits.front().count(), 0);
  EXPECT_LE(wire_->limits.front(), 200ms);
}

TEST_F(PumpTest, ACallThatWaitsGetsTheBoardBetweenTwoRuns) {
  std::thread caller([&] {
    turn.enter(EntryKind::kCall, std::nullopt);
    turn.leave();
  });
  while (turn.begin_run()) {
    turn.end_run();
    std::this_thread::sleep_for(1ms);
  }
  run_.run();
  EXPECT_EQ(wire_->runs, 0) << "it was handed over";
  caller.join();
}

TEST_F(PumpTest, AModelThatThrowsBreaksTheBoard) {
  wire_->play = []() -> RunOutcome { throw std::runtime_error("out of memory"); };
  EXPECT_FALSE(run_.run());
  ASSERT_NE(broken, nullptr);
  EXPECT_EQ(broken->message(), "the board model failed: out of memory");
  EXPECT_FALSE(turn.running());
}

TEST_F(PumpTest, ALaunchThatEndsNoStepIsTakenOffAndThenBreaksTheBoard) {
  const auto op = launch();
  limit_.set_clock(LaunchClock(8, 2));
  EXPECT_GT(limit_.slice().count(), 0);
  for (int tick = 0; tick < 10 && !op->verdict; ++tick) {
    limit_.spend(1s);
  }
  ASSERT_NE(op->verdict, nullptr);
  EXPECT_EQ(op->verdict->code(), ErrorCode::kTimeout);
  EXPECT_EQ(wire_->written(0, core_page::kAbort), std::vector<uint32_t>{op->launch_id});
  EXPECT_EQ(broken, nullptr);
  for (int tick = 0; tick < 10 && !broken; ++tick) {
    limit_.spend(1s);
  }
  ASSERT_NE(broken, nullptr);
  EXPECT_NE(broken->message().find("It did not end when it was aborted"), std::string::npos);
}

TEST_F(PumpTest, LaunchesThatHangOnTwoCoresAreReportedInTurn) {
  std::vector<std::string> lines;
  OpenOptions options;
  options.progress_seconds = 60;
  options.progress = [&](const std::string& line) { lines.push_back(line.substr(0, 11)); };
  LaunchReporter reporter(options, 2, 1e9);
  for (const int device : {0, 1}) {
    launch("launch of " + std::to_string(device), device);
  }
  for (int second = 0; second < 4 * 60 + 1; ++second) {
    reporter.report_after(1s, cores.devices, *wire_);
  }
  EXPECT_EQ(lines,
            (std::vector<std::string>{"launch of 0", "launch of 1", "launch of 0", "launch of 1"}));
}

TEST_F(PumpTest, ATurnWithoutProgressOnAQuiescentBoardIsAStall) {
  launch();
  EXPECT_FALSE(pump_.pump(std::nullopt, {}));
  EXPECT_EQ(recovery.repeated_doorbells(), 1u);
  health.break_by(std::make_shared<Error>(ErrorCode::kInternal, "it broke"));
  const int runs = wire_->runs;
  EXPECT_FALSE(pump_.pump(std::nullopt, {}));
  EXPECT_EQ(wire_->runs, runs);
}

// An upload to core 0 arrives poisoned and flushes a gang there; the next core of the gang has a
// launch to end before, which stands at a host call meanwhile.
TEST_F(PumpTest, HostCallsAreAnsweredWhileARecoveryWaitsForALaunch) {
  auto upload = operations.begin("upload");
  auto copy = std::make_shared<Command>();
  copy->opcode = TPU_OP_COPY;
  operations.add(upload, copy);
  operations.seal(upload);
  const auto before = launch_that_calls();
  int answers = 0;
  before->on_host_call = [&](const HostCallInfo&, size_t, std::span<std::byte>) { ++answers; };
  const auto gang = launch_of(std::make_shared<exe::ExecutableT>(), {0, 1}, "launch of add");
  end(0, TPU_STATUS_POISON);
  RunOutcome quiescent = {.quiescent = true, .expired = false, .msi = {}, .console = {}};
  int stops = 0;  // of the board, at its interrupts
  wire_->play = [&] {
    tpu_completion_t call{};
    switch (stops) {
      case 0:
        end(0, TPU_STATUS_FLUSHED);
        break;
      case 1:
        call.seq = cores.oldest(1)->seq;
        call.flags = TPU_CPL_FLAG_MORE | TPU_CPL_FLAG_CALL;
        cores.write(1, call);
        break;
      case 2:
        if (wire_->written(1, core_page::kCallRequest).empty()) {
          return quiescent;
        }
        end(1);
        break;
      case 3:
        EXPECT_EQ(recovery.recoveries(), 0u) << "core 1 has not reported the gang";
        end(1, TPU_STATUS_FLUSHED);
        break;
      default:
        return quiescent;
    }
    ++stops;
    return RunOutcome{};
  };
  for (int turns = 0; turns < 9 && recovery.recoveries() == 0; ++turns) {
    pump_.pump(std::nullopt, {});
  }
  EXPECT_EQ(answers, 1);
  EXPECT_EQ(recovery.repeated_doorbells(), 0u);
  EXPECT_TRUE(hangs.empty());
  ASSERT_EQ(broken, nullptr) << broken->message();
  EXPECT_TRUE(before->finished);
  EXPECT_FALSE(before->event->failed());
  ASSERT_EQ(cores.devices[0].ring.open(), 2u) << "the upload and the gang are sent again";
  EXPECT_EQ(cores.oldest(0)->op, upload);
  EXPECT_EQ(cores.oldest(1)->op, gang);
}

TEST_F(PumpTest, TheBoardGoesOnWhileTheHostIsBusy) {
  pump_.spend_host_time(0);
  EXPECT_TRUE(wire_->until.empty());
  pump_.prepare_input(40);
  EXPECT_EQ(wire_->until, std::vector<uint64_t>{140});
  EXPECT_EQ(wire_->prepares, (std::vector<bool>{true, false}));
  run_.run();
  EXPECT_EQ(wire_->runs, 1) << "it is busy no more";
}

}  // namespace
}  // namespace tpu::driver
