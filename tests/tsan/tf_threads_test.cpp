// TensorFlow's threads: streams that several wait for, memory that they use at the same time, and
// steps whose launches cross.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "memory.hpp"
#include "runtime/local_runtime.hpp"
#include "steps.hpp"
#include "stream.hpp"
#include "tests/driver/null_board.hpp"
#include "transport/null/null_transport.hpp"

namespace tpu::tensorflow {
namespace {

class TfThreads : public testing::Test {
 protected:
  void SetUp() override {
    driver::OpenOptions options;
    options.completion_thread = true;
    board_ = driver::test::open_null(null_, options);
    runtime_ =
        std::make_unique<pjrt::LocalRuntime>(board_, std::chrono::duration<double>(600), nullptr);
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
  pjrt::DeviceArrayPtr array(int value = 7) const {
    const std::vector<std::byte> bytes(256, static_cast<std::byte>(value));
    return runtime_->put(0, driver::HostView{driver::DType::kI32, {64}, bytes});
  }

  driver::NullTransport* null_ = nullptr;
  driver::Board board_;
  std::unique_ptr<pjrt::LocalRuntime> runtime_;
};

TEST_F(TfThreads, AStreamHasManyUsers) {
  std::atomic<int> done{0}, told{0};
  {
    Stream stream(*runtime_, 0);
    in_threads(6, [&](int thread) {
      for (int i = 0; i < 40; ++i) {
        stream.call([&done] { ++done; });
        const driver::HostEvent event = runtime_->make_event();
        stream.follow(event.event());
        if (i % 8 == 3) {
          stream.call([] { throw driver::Error(driver::ErrorCode::kInvalidArgument, "no"); });
        }
        set_event(event);
        if (i % 4 == thread % 4) {
          try {
            stream.wait();
          } catch (const driver::Error& error) {
            ++told;
            Stream::told(error, 0);
          }
        }
        static_cast<void>(stream.error());
      }
    });
    try {
      stream.wait();
    } catch (const driver::Error&) {
      ++told;
    }
    EXPECT_EQ(done, 6 * 40);
    EXPECT_GT(told, 0);
    EXPECT_FALSE(stream.error());
  }
}

TEST_F(TfThreads, AReaderIsToldOfTheFailureOfItsCore) {
  const driver::Error no(driver::ErrorCode::kInvalidArgument, "no");
  const driver::HostEvent event = runtime_->make_event();
  Stream first(*runtime_, 0), second(*runtime_, 1);
  const auto fail_both = [&] {
    for (Stream* const stream : {&first, &second}) {
      stream->call([&] { throw driver::Error(no); });
      while (!stream->error()) {
        std::this_thread::yield();
      }
    }
  };
  fail_both();
  Stream::told(no, 0);
  EXPECT_FALSE(first.error());
  EXPECT_TRUE(second.error());  // another failure with the same text
  Stream::told(no, 1);
  EXPECT_FALSE(second.error());

  for (Stream* const stream : {&first, &second}) {
    stream->follow(event.event(), Stream::Of::kSeveralCores);
  }
  event.fail(no);
  while (!first.error() || !second.error()) {
    std::this_thread::yield();
  }
  Stream::told(no, 0);
  EXPECT_FALSE(first.error());
  EXPECT_FALSE(second.error());  // of the same launch
}

TEST_F(TfThreads, MemoryIsReadWrittenAndForgotten) {
  Memory memory(*runtime_);
  constexpr size_t kBlocks = 4;
  std::array<uint64_t, kBlocks> blocks{};
  for (uint64_t& block : blocks) {
    block = address_of(memory.allocate(0, 256));
    memory.set(block, array());
  }
  in_threads(6, [&](int thread) {
    for (size_t i = 0; i < 60; ++i) {
      const uint64_t block = blocks[i % kBlocks];
      if (thread == 0) {
        memory.set(block, array());
      } else if (thread == 1 && i % 20 == 7) {
        memory.forget();
      } else if (thread == 2) {
        memory.free(address_of(memory.allocate(0, 64)));
        static_cast<void>(memory.use(0));
      } else {
        try {
          // Of both types, so that the contents change theirs.
          const auto dtype = thread % 2 == 0 ? driver::DType::kI32 : driver::DType::kF32;
          EXPECT_EQ(memory.array(block, dtype, {64})->bytes(), 256U);
        } catch (const driver::Error& error) {
          EXPECT_EQ(error.code(), driver::ErrorCode::kFailedPrecondition) << error.what();
        }
      }
    }
  });
}

// What a launch has written stays, though an older array is being read as another type.
TEST_F(TfThreads, AConversionDoesNotComeBehindNewContents) {
  Memory memory(*runtime_);
  const uint64_t block = address_of(memory.allocate(0, 256));
  for (int i = 0; i < 50; ++i) {
    memory.set(block, array(i));
    in_threads(2, [&](int thread) {
      if (thread == 0) {
        memory.array(block, driver::DType::kF32, {64});
      } else {
        memory.set(block, array(i + 1));
      }
    });
    std::vector<std::byte> read(256);
    memory.read(block, driver::DType::kI32, {64}, read).wait();
    EXPECT_EQ(read, std::vector<std::byte>(256, static_cast<std::byte>(i + 1)));
  }
}

TEST_F(TfThreads, SharesOfAStepHaveOneName) {
  constexpr int kCores = 8, kSteps = 4, kRounds = 20;
  Steps steps;
  base::Mutex mutex;
  std::map<std::string, std::set<std::pair<int, int>>> came;  // round and step by name
  std::array<int, kSteps> rendezvous{};
  for (int round = 0; round < kRounds; ++round) {
    in_threads(kCores, [&](int core) {
      const Steps::Operation operation(steps);
      steps.begin();
      for (int i = 0; i < kSteps; ++i) {
        const int step = (i + core) % kSteps;
        const std::string name =
            steps.share({&rendezvous[static_cast<size_t>(step)], "step"}, core, kCores);
        const base::MutexLock lock(mutex);
        came[name].emplace(round, step);
      }
    });
  }
  EXPECT_EQ(came.size(), size_t{kSteps * kRounds});
  for (const auto& [name, which] : came) {
    EXPECT_EQ(which.size(), 1U) << name;
  }
}

// Its other cores may come under the same name, until the step is over.
TEST_F(TfThreads, AStepThatHasFailedIsOverWhenTheNextOneBegins) {
  Steps steps;
  const Steps::Key key{&steps, "step"};
  const std::string failed = steps.share(key, 0, 3);
  steps.failed(failed);
  {
    const Steps::Operation operation(steps);
    steps.begin();
    EXPECT_EQ(steps.share(key, 1, 3), failed);
  }
  steps.begin();
  const std::string next = steps.share(key, 2, 3);
  EXPECT_NE(next, failed);
  EXPECT_EQ(steps.share(key, 0, 3), next);
  EXPECT_NE(steps.share(key, 0, 3), next);  // it comes again: a step that nobody has ended
}

// Its rendezvous is held: no other step has the key.
TEST_F(TfThreads, AStepThatIsHeldIsOverWhenManyOthersHaveFailed) {
  constexpr int kMany = 70;
  Steps steps;
  std::array<int, kMany> rendezvous{};
  auto held = std::make_shared<int>();
  const Steps::Hold hold = [&] { return held; };
  const Steps::Key key{&steps, "step"};
  const std::string failed = steps.share(key, 0, 3, hold);
  EXPECT_EQ(held.use_count(), 2);
  steps.failed(failed);
  steps.begin();
  EXPECT_EQ(steps.share(key, 1, 3, hold), failed);
  for (int& each : rendezvous) {
    steps.failed(steps.share({&each, "step"}, 0, 3, hold));
  }
  EXPECT_LT(held.use_count(), kMany);
  EXPECT_NE(steps.share(key, 2, 3, hold), failed);
}

TEST_F(TfThreads, AFinishedStepHoldsNothing) {
  Steps steps;
  auto held = std::make_shared<int>();
  for (const int core : {0, 1}) {
    steps.share({&steps, "step"}, core, 2, [&] { return held; });
  }
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace tpu::tensorflow
