// Infeed and outfeed without TensorFlow: what ends the waits for them. The library that lowers
// graphs is a fake, whose graphs are HLO modules.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "fake_embeddings.hpp"
#include "hlo_bytes.hpp"
#include "loaded_library.hpp"

namespace tpu::test {
namespace {

constexpr int64_t kElements = 4;
constexpr int kOutOfRange = 11;  // of absl::StatusCode
using Numbers = std::vector<float>;

// HloModuleProto: the sum of the argument and of what the infeed gives.
std::string infeed_module() {
  using namespace compiler::hlo_bytes;  // NOLINT: the words of the program
  const std::string all = shape(kF32, {kElements}), token = shape(kToken, {});
  const std::string host = number(26, kInfeedChannel) + number(47, 1);
  return module({computation("main", 1,
                             {parameter(0, all),
                              {"after-all", token},
                              {"recv", tuple_shape({all, shape(kU32, {}), token}), {2}, host},
                              {"recv-done", tuple_shape({all, token}), {3}, host},
                              {"get-tuple-element", all, {4}, number(13, 0)},
                              {"add", all, {1, 5}}})});
}

class TfFeed : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::dlopen(TPU_TF_FAKE, RTLD_NOW | RTLD_GLOBAL), nullptr) << ::dlerror();
    core_ = std::make_unique<Core>(3);
    const Status status;
    program_ = compile(std::string{1, 0, 0, kInfeedChannel} + infeed_module(), status);
    ASSERT_EQ(status.code(), kOk) << status.text();
  }

  static XLA_TpuProgram* compile(const std::string& request, TF_Status* status) {
    XLA_TpuProgram** programs = nullptr;
    size_t count = 0;
    TPU_TF(TpuCompile_CompileAndBuild)
    ({request.data(), request.size()}, nullptr, &programs, &count, status);
    XLA_TpuProgram* const program = programs[0];
    TPU_TF(TpuProgram_FreeArray)(programs);
    return program;
  }

  SE_DeviceMemoryBase memory() const { return core_->allocate(kElements * sizeof(float)); }
  SE_DeviceMemoryBase written(float number) const {
    const SE_DeviceMemoryBase there = memory();
    to_device(*core_, Numbers(kElements, number), there);
    return there;
  }

  SE_DeviceMemoryBase launch(SE_DeviceMemoryBase argument, TF_Status* status) const {
    SE_DeviceMemoryBase result = memory();
    TpuExecutable_LoadProgramAndEnqueueToStream_Params params{};
    params.program = program_;
    params.arguments = &argument;
    params.arguments_len = 1;
    params.result = &result;
    params.stream = core_->stream;
    params.status = status;
    TPU_TF(TpuExecutable_LoadProgramAndEnqueueToStream)(&params);
    return result;
  }

  void enqueue(Numbers numbers) const {
    Transfer transfer(numbers, {});
    const Status status;
    TPU_TF(TpuTransferManager_TransferLiteralToInfeed)
    (nullptr, core_->executor, &transfer.literal, status);
    EXPECT_EQ(status.code(), kOk) << status.text();
  }
  void dequeue(TF_Status* status) const {
    Numbers numbers(kElements);
    Transfer transfer(numbers, {});
    XLA_Shape shape = f32_shape(kElements);
    TPU_TF(TpuTransferManager_TransferLiteralFromOutfeed)
    (nullptr, core_->executor, &shape, &transfer.literal, status);
  }
  void check_dequeue(int code, const std::string& part) const {
    const Status status;
    dequeue(status);
    EXPECT_EQ(status.code(), code);
    EXPECT_NE(status.text().find(part), std::string::npos) << status.text();
  }

  std::unique_ptr<Core> core_;
  XLA_TpuProgram* program_ = nullptr;
};

// The host asks for the outfeed behind that, as a program of one thread does.
TEST_F(TfFeed, AStepThatIsNotLaunchedEndsTheWaitForItsOutfeed) {
  const Status without, unwritten;
  launch({}, without);
  EXPECT_EQ(without.code(), kInvalidArgument) << without.text();
  check_dequeue(kInvalidArgument, "device address 0x0");
  check_dequeue(kInvalidArgument, "device address 0x0");  // it has not become another step's
  launch(memory(), unwritten);
  EXPECT_EQ(unwritten.code(), kFailedPrecondition) << unwritten.text();
  check_dequeue(kFailedPrecondition, "nothing has been written there");
}

TEST_F(TfFeed, AStepThatIsNotCompiledEndsTheWaitForItsOutfeed) {
  const Status status;
  const std::string text = "no kernel for OutfeedEnqueueTuple";
  TPU_TF(TpuProgram_UnloadAndDestroy)(compile(std::string(1, '\0') + text, status), Status());
  EXPECT_EQ(status.code(), kOutOfRange);
  const Status dequeued;
  dequeue(dequeued);
  EXPECT_NE(dequeued.text().find("the step was not compiled: " + text), std::string::npos)
      << dequeued.text();
}

TEST_F(TfFeed, TheNextStepEndsAFailure) {
  const Status refused, good, again;
  launch({}, refused);
  check_dequeue(kInvalidArgument, "device address 0x0");
  enqueue({1, 2, 3, 4});
  const SE_DeviceMemoryBase result = launch(written(10), good);
  EXPECT_EQ(good.code(), kOk) << good.text();
  const Numbers expected{11, 12, 13, 14};
  EXPECT_EQ(from_device(*core_, kElements, result), std::pair(expected, std::string()));
  std::atomic<bool> ended = false;
  std::thread waits([&] {
    check_dequeue(kInvalidArgument, "device address 0x0");
    ended = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(ended);
  launch({}, again);
  waits.join();
}

// The host has ended before it has enqueued anything.
using TfFeedDeathTest = TfFeed;
TEST_F(TfFeedDeathTest, AStepThatWaitsForItsInfeedDoesNotKeepTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [this] {
    ::alarm(120);  // ends a process that hangs
    const Status status;
    launch(written(10), status);
    std::this_thread::sleep_for(std::chrono::seconds(1));  // the step begins
    std::exit(status.code());
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(kOk), "");
}

}  // namespace
}  // namespace tpu::test
