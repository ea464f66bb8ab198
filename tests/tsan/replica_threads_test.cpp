// Launches whose devices ask for them one by one, from many threads: those that meet, those that a
// missing device ends, arrays that are read and given up while they are still to come.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "runtime/local_runtime.hpp"
#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"
#include "transport/null/null_transport.hpp"

namespace tpu::pjrt {
namespace {

using driver::test::ProgramBuilder;

constexpr int kDevices = 8;

class ReplicaThreads : public testing::Test {
 protected:
  void open(double limit, bool completion_thread = true) {
    driver::OpenOptions options;
    options.completion_thread = completion_thread;
    board_ = driver::test::open_null(null_, options);
    runtime_ = std::make_unique<LocalRuntime>(
        board_, std::chrono::duration<double>(limit),
        [this](const auto& programs, const auto& /*cores*/, const auto& /*who*/) {
          ++joins_;
          client::JoinedPrograms joined;
          joined.executable = programs[0]->executable;
          joined.arguments.assign(programs.size(), {{.own = 0, .constant = {}}});
          return joined;
        });
    ProgramBuilder builder(kDevices);  // takes over its argument
    builder.argument(driver::DType::kI32, {64});
    builder.result(driver::DType::kI32, {64}, false, 0);
    for (size_t p = 0; p < programs_.size(); ++p) {
      auto made = std::make_shared<client::CompiledProgram>();
      made->executable = std::make_shared<exe::ExecutableT>(exe::read_executable(builder.bytes()));
      made->fingerprint = std::to_string(p);
      programs_[p] = made;
    }
  }

  std::shared_ptr<const DeviceProgram> load(size_t which = 0) const {
    return runtime_->load(programs_[which], {0, 1, 2, 3, 4, 5, 6, 7});
  }

  DeviceArrayPtr state(int device) const {
    const std::vector<std::byte> bytes(256, static_cast<std::byte>(device + 1));
    return runtime_->put(device, driver::HostView{driver::DType::kI32, {64}, bytes});
  }

  static void in_threads(int count, const std::function<void(int)>& work) {
    std::vector<std::thread> threads;
    for (int t = 0; t < count; ++t) {
      threads.emplace_back(work, t);
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  driver::NullTransport* null_ = nullptr;
  driver::Board board_;
  std::array<std::shared_ptr<const client::CompiledProgram>, 2> programs_;
  std::atomic<int> joins_{0};
  std::unique_ptr<LocalRuntime> runtime_;
};

TEST_F(ReplicaThreads, EveryLaunchMeetsItsNumber) {
  open(600);
  constexpr int kSteps = 30;
  std::atomic<int> wrong{0};
  in_threads(kDevices, [&](int device) {
    const auto program = load();
    DeviceArrayPtr w = state(device);
    std::vector<std::vector<std::byte>> read(kSteps, std::vector<std::byte>(256));
    std::vector<driver::Event> reads;
    for (int s = 0; s < kSteps; ++s) {
      const LaunchResult result = program->launch({{{device, {w}}}, {}, {}, 0});
      w = result.outputs[0][0];
      reads.push_back(w->read(0, read[static_cast<size_t>(s)]));
      if (s % 7 == 3) {
        const DeviceArrayPtr copy = runtime_->copy(*w, (device + 1) % kDevices);
        copy->ready().wait();
        copy->discard();
      }
    }
    for (size_t s = 0; s < kSteps; ++s) {
      reads[s].wait();
      wrong += read[s] != std::vector<std::byte>(256, static_cast<std::byte>(device + 1)) ? 1 : 0;
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_F(ReplicaThreads, ProgramsThatDifferAreMadeOneOnce) {
  open(600);
  std::atomic<int> wrong{0};
  in_threads(kDevices, [&](int device) {
    const auto program = load(device == 3 ? 1 : 0);
    DeviceArrayPtr w = state(device);
    for (int s = 0; s < 10; ++s) {
      w = program->launch({{{device, {w}}}, {}, {}, 0}).outputs[0][0];
      if (s % 4 == 3) {
        w->ready().wait();
      }
    }
    std::vector<std::byte> read(256);
    w->read(0, read).wait();
    wrong += read != std::vector<std::byte>(256, static_cast<std::byte>(device + 1)) ? 1 : 0;
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(joins_, 1);
}

TEST_F(ReplicaThreads, AMissingDeviceEndsTheLaunchOfAll) {
  open(0.05);
  constexpr int kRounds = 10;
  std::atomic<int> late{0};
  std::array<std::atomic<bool>, kRounds> over{};
  in_threads(kDevices, [&](int device) {
    const auto program = load();
    for (size_t round = 0; round < kRounds; ++round) {
      while (static_cast<int>(round) % kDevices == device && !over[round]) {
        std::this_thread::sleep_for(
            std::chrono::milliseconds(5));  // until the others have given up
      }
      const LaunchResult result = program->launch({{{device, {state(device)}}}, {}, {}, 0});
      if (const auto error = result.done[0].wait_for_error()) {
        late += error->code() == driver::ErrorCode::kTimeout ? 1 : 100;
      }
      over[round] = true;
    }
  });
  EXPECT_EQ(late, kRounds * kDevices);
}

// The board may run callbacks in any call, also in the first of a launch; they may launch too.
TEST_F(ReplicaThreads, ACallbackLaunchesWhileALaunchBegins) {
  open(600, false);
  const auto program = load();
  LaunchRequest all;
  for (int device = 0; device < kDevices; ++device) {
    all.shares.push_back({device, {state(device)}});
  }
  std::vector<driver::Event> launched;
  bool called = false;
  program->launch(all).done[0].on_ready([&](const auto& /*error*/) {
    called = true;
    launched.push_back(program->launch({{{0, {state(0)}}}, {}, {}, 0}).done[0]);
  });
  for (int device = 1; device < kDevices; ++device) {
    launched.push_back(program->launch({{{device, {state(device)}}}, {}, {}, 0}).done[0]);
  }
  if (!called) {
    board_.synchronize();
  }
  EXPECT_TRUE(called);
  for (const driver::Event& event : launched) {
    EXPECT_EQ(event.wait_for_error(), nullptr);
  }
}

TEST_F(ReplicaThreads, WhoLeavesEndsWhatWaits) {
  open(600);
  std::atomic<bool> over{false};
  std::thread leaver([&] {
    while (!over) {
      runtime_->leave({3}, {driver::ErrorCode::kCancelled, "gone"});
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  in_threads(kDevices - 1, [&](int device) {  // the last device never asks
    const auto program = load();
    for (int round = 0; round < 20; ++round) {
      const LaunchResult result = program->launch({{{device, {state(device)}}}, {}, {}, 0});
      EXPECT_NE(result.done[0].wait_for_error(), nullptr);
      result.outputs[0][0]->discard();
    }
  });
  over = true;
  leaver.join();
}

// Each device launches the steps of a round in an order of its own.
TEST_F(ReplicaThreads, SharesMeetByTheirNameInAnyOrder) {
  open(600);
  constexpr int kSteps = 4;
  std::atomic<int> good{0}, refused{0};
  const auto bring = [&](const DeviceProgram& program, int device, int step, int round) {
    const std::string meets = std::to_string(round) + "." + std::to_string(step);
    if (step == round % kSteps && device == round % kDevices) {
      runtime_->refuse("step", {0, 1, 2, 3, 4, 5, 6, 7}, {device}, meets,
                       {driver::ErrorCode::kInvalidArgument, "step " + meets});
      return driver::Event{};
    }
    LaunchRequest request{{{device, {state(device)}}}, {}, {}, 0};
    request.meets = meets;
    return program.launch(request).done[0];
  };
  in_threads(kDevices, [&](int device) {
    const auto program = load();
    for (int round = 0; round < 10; ++round) {
      std::array<driver::Event, kSteps> done;
      for (int i = 0; i < kSteps; ++i) {
        const int step = device % 2 == 0 ? (i + device / 2) % kSteps : kSteps - 1 - i;
        done[static_cast<size_t>(step)] = bring(*program, device, step, round);
      }
      for (int step = 0; step < kSteps; ++step) {
        const auto error = done[static_cast<size_t>(step)].wait_for_error();
        ++(error ? refused : good);
        EXPECT_EQ(error != nullptr, step == round % kSteps && device != round % kDevices);
      }
    }
  });
  EXPECT_EQ(refused, 10 * (kDevices - 1));
}

// Two steps that update the same array, on the devices in different orders, cannot both be right.
TEST_F(ReplicaThreads, StepsThatUpdateTheSameInDifferentOrdersFail) {
  open(600);
  const auto program = load();
  std::vector<DeviceArrayPtr> weights;
  for (int device = 0; device < kDevices; ++device) {
    weights.push_back(state(device));
  }
  std::map<std::string, std::vector<driver::Event>> done;
  const auto update = [&](int device, const std::string& meets) {
    DeviceArrayPtr& own = weights[static_cast<size_t>(device)];
    LaunchRequest request{{{device, {own}}}, {}, {}, 0};
    request.meets = meets;
    const LaunchResult result = program->launch(request);
    own = result.outputs[0][0];
    done[meets].push_back(result.done[0]);
  };
  for (int device = 0; device < kDevices; ++device) {
    update(device, device < 5 ? "first" : "second");
    update(device, device < 5 ? "second" : "first");
  }
  for (const auto& [meets, events] : done) {
    for (const driver::Event& event : events) {
      const auto error = event.wait_for_error();
      ASSERT_NE(error, nullptr) << meets;
      EXPECT_NE(error->message().find("they use the same arrays"), std::string::npos)
          << error->message();
    }
  }
}

TEST_F(ReplicaThreads, ADeviceBringsOneShareOfALaunch) {
  open(600);
  const auto program = load();
  LaunchRequest request{{{3, {state(3)}}}, {}, {}, 0};
  request.meets = "step";
  program->launch(request);
  EXPECT_THROW(program->launch(request), driver::Error);
  runtime_->leave({3}, {driver::ErrorCode::kCancelled, "gone"});
}

}  // namespace
}  // namespace tpu::pjrt
