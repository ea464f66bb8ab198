// Streams of TensorFlow: their order, what a wait covers, and which call gets an error.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <thread>

#include "loaded_library.hpp"

namespace tpu::test {
namespace {

TEST(TfStream, AStreamWaitsForAnother) {
  const Core core(0);
  SE_Stream* const other = TPU_TF(TpuStream_New)(core.executor);
  static std::atomic<int> done = 0;
  done = 0;
  const auto slow = [](void*) -> TF_Status* {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    done = 1;
    return nullptr;
  };
  const auto behind = [](void* seen) -> TF_Status* {
    *static_cast<int*>(seen) = done;
    return nullptr;
  };
  int seen = -1;
  TPU_TF(TpuExecutor_HostCallback)(core.executor, core.stream, slow, nullptr);
  EXPECT_TRUE(TPU_TF(TpuExecutor_CreateStreamDependency)(core.executor, other, core.stream));
  TPU_TF(TpuExecutor_HostCallback)(core.executor, other, behind, &seen);
  const Status status;
  TPU_TF(TpuExecutor_BlockHostUntilDone)(core.executor, other, status);
  EXPECT_EQ(seen, 1);
  TPU_TF(TpuStream_Free)(other);
}

TEST(TfStream, AFailedCallbackIsTheStreamsUntilItIsTold) {
  const Core core(0);
  TPU_TF(TpuExecutor_HostCallback)
  (
      core.executor, core.stream,
      [](void*) { return TPU_TF(TpuStatus_Create)(kInvalidArgument, "the callback says no"); },
      nullptr);
  const Status status;
  TPU_TF(TpuExecutor_BlockHostUntilDone)(core.executor, core.stream, status);
  EXPECT_EQ(status.code(), kInvalidArgument);
  EXPECT_EQ(status.text(), "the callback says no");
  core.wait();  // the next call is good
}

// A stream that is never empty, as that of a program that reads ahead.
TEST(TfStream, AWaitEndsWithWhatWasThere) {
  const Core core(0);
  std::atomic<bool> over = false;
  std::atomic<int> calls = 0;
  struct Again {
    const Core& core;
    std::atomic<bool>& over;
    std::atomic<int>& calls;
    static TF_Status* call(void* context) {
      auto& own = *static_cast<Again*>(context);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++own.calls;
      if (!own.over) {
        TPU_TF(TpuExecutor_HostCallback)(own.core.executor, own.core.stream, call, context);
      }
      return nullptr;
    }
  } again{core, over, calls};
  TPU_TF(TpuExecutor_HostCallback)(core.executor, core.stream, Again::call, &again);
  core.wait();
  EXPECT_LT(calls, 100);
  over = true;
  while (calls == 0) {
    std::this_thread::yield();
  }
  core.wait();
  core.wait();
}

TF_Status* fails_late(void* /*context*/) {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return TPU_TF(TpuStatus_Create)(kInvalidArgument, "the callback says no");
}

TEST(TfStream, AllWhoWaitAreToldOfAnError) {
  const Core core(0);
  TPU_TF(TpuExecutor_HostCallback)(core.executor, core.stream, fails_late, nullptr);
  std::array<std::string, 3> texts;
  std::vector<std::thread> threads;
  for (std::string& text : texts) {
    threads.emplace_back([&] {
      const Status status;
      TPU_TF(TpuExecutor_BlockHostUntilDone)(core.executor, core.stream, status);
      text = status.text();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(texts, testing::Each("the callback says no"));
  core.wait();
}

}  // namespace
}  // namespace tpu::test
