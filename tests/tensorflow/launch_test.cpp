// Replicated functions without TensorFlow: launches core by core, as its threads bring them. The
// library that lowers graphs is a fake, whose graphs are HLO modules.
#include <array>
#include <numeric>

#include "loaded_library.hpp"

namespace tpu::test {
namespace {

constexpr int kCores = 8;
constexpr int64_t kElements = 4;
constexpr int kOutOfRange = 11;  // of absl::StatusCode

// HloModuleProto: x + the sum of x over all cores. `in_place`: the result takes over x.
std::string update_module(bool in_place) {
  spec::ProtoWriter to;
  const auto instruction = [&](const char* name, const char* opcode, int id, bool scalar,
                               const auto& rest) {
    to.message(2, [&] {
      to.text(1, name);
      to.text(2, opcode);
      to.message(3, [&] {
        to.number(2, kF32);
        if (!scalar) {
          to.text(3, std::string(1, static_cast<char>(kElements)));
        }
      });
      rest();
      to.number(35, static_cast<uint64_t>(id));
    });
  };
  to.text(1, "update");
  to.text(2, "main");
  to.message(3, [&] {
    to.text(1, "sum");
    instruction("a", "parameter", 1, true, [&] { to.number(9, 0); });
    instruction("b", "parameter", 2, true, [&] { to.number(9, 1); });
    instruction("added", "add", 3, true, [&] { to.text(36, "\x01\x02"); });
    to.number(5, 1);
    to.number(6, 3);
  });
  to.message(3, [&] {
    to.text(1, "main");
    instruction("x", "parameter", 4, false, [&] { to.number(9, 0); });
    instruction("all", "all-reduce", 5, false, [&] {
      to.text(36, "\x04");
      to.text(38, "\x01");
      to.message(49, [&] { to.text(1, std::string("\0\1\2\3\4\5\6\7", kCores)); });
    });
    instruction("root", "add", 6, false, [&] { to.text(36, "\x04\x05"); });
    to.number(5, 2);
    to.number(6, 6);
  });
  to.number(6, 2);
  if (in_place) {
    to.message(8, [&] {
      to.message(1, [&] {
        to.number(2, 0);
        to.number(4, 1);
      });
    });
  }
  return to.take();
}

XLA_TpuProgram* compile(const std::string& request, TF_Status* status) {
  XLA_TpuProgram** programs = nullptr;
  size_t count = 0;
  TPU_TF(TpuCompile_CompileAndBuild)
  ({request.data(), request.size()}, nullptr, &programs, &count, status);
  EXPECT_EQ(TPU_TF(TpuStatus_Code)(status), kOk);  // TensorFlow would end the process
  EXPECT_EQ(count, 1U);
  XLA_TpuProgram* const program = programs[0];
  TPU_TF(TpuProgram_FreeArray)(programs);
  return program;
}

class TfLaunch : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::dlopen(TPU_TF_FAKE, RTLD_NOW | RTLD_GLOBAL), nullptr) << ::dlerror();
    for (int core = 0; core < kCores; ++core) {
      cores_[at(core)] = std::make_unique<Core>(core);
    }
    update_ = program(false);
  }

  static XLA_TpuProgram* program(bool in_place) {
    const Status status;
    XLA_TpuProgram* const made =
        compile(std::string{static_cast<char>(kCores), 0, 0, 0} + update_module(in_place), status);
    EXPECT_EQ(status.code(), kOk) << status.text();
    return made;
  }

  static size_t at(int core) { return static_cast<size_t>(core); }
  const Core& core(int number) const { return *cores_[at(number)]; }

  /// Memory of a core with the values 100 * core + `first` + 0, 1, ...
  SE_DeviceMemoryBase values(int number, float first) const {
    const SE_DeviceMemoryBase memory = core(number).allocate(kElements * sizeof(float));
    std::vector<float> written(kElements);
    std::iota(written.begin(), written.end(), 100.0F * static_cast<float>(number) + first);
    to_device(core(number), written, memory);
    return memory;
  }
  static std::vector<float> updated(int number, float first) {
    std::vector<float> expected;
    for (int i = 0; i < kElements; ++i) {
      const float own = first + static_cast<float>(i);
      expected.push_back(100.0F * static_cast<float>(number) + own + 2800.0F + 8.0F * own);
    }
    return expected;
  }

  /// A step of TensorFlow's.
  struct Step {
    std::string key = "host_compute_rendezvous:step:0:0:";
    TF_RendezvousThunk thunk{};
    SE_OutsideCompilationParams params{};
    /// `name`: of a core, for a rendezvous that the plugin can keep.
    explicit Step(void* rendezvous, char* name = nullptr) {
      thunk.rendezvous = rendezvous;
      params.device_name = name;
      params.rendezvous_key = key.data();
      params.rendezvous = &thunk;
    }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
  };

  void launch(int number, Step& step, XLA_TpuProgram* program, SE_DeviceMemoryBase argument,
              SE_DeviceMemoryBase result, TF_Status* status,
              XLA_DeviceAssignment* assignment = nullptr) const {
    TpuExecutable_LoadProgramAndEnqueueToStream_Params params{};
    params.program = program;
    params.arguments = &argument;
    params.arguments_len = 1;
    params.result = &result;
    params.stream = core(number).stream;
    params.device_assignment = assignment;
    params.outside_compilation_params = &step.params;
    params.status = status;
    TPU_TF(TpuExecutable_LoadProgramAndEnqueueToStream)(&params);
  }
  SE_DeviceMemoryBase launch(int number, Step& step, float first) const {
    const Status status;
    const SE_DeviceMemoryBase result = core(number).allocate(kElements * sizeof(float));
    launch(number, step, update_, values(number, first), result, status);
    EXPECT_EQ(status.code(), kOk) << status.text();
    return result;
  }
  std::string error_of(int number, SE_DeviceMemoryBase result) const {
    return from_device(core(number), kElements, result).second;
  }

  void check_good_step(float first, const std::vector<int>& order) {
    Step step(&rendezvous_);
    check_good_step(step, first, order);
  }
  void check_good_step(Step& step, float first, const std::vector<int>& order) {
    begin_step();
    std::array<SE_DeviceMemoryBase, kCores> results{};
    for (const int number : order) {
      results[at(number)] = launch(number, step, first);
    }
    for (int number = 0; number < kCores; ++number) {
      const auto [found, error] = from_device(core(number), kElements, results[at(number)]);
      EXPECT_EQ(error, "") << number;
      EXPECT_EQ(found, updated(number, first)) << number;
    }
  }
  // TensorFlow asks for the key of the program in each step.
  static void begin_step() {
    TPU_TF(TpuCompile_DestroyCompilationCacheKey)
    (TPU_TF(TpuCompile_CreateCompilationCacheKey)({}));
  }

  std::array<std::unique_ptr<Core>, kCores> cores_;
  XLA_TpuProgram* update_ = nullptr;
  int rendezvous_ = 0, other_rendezvous_ = 0;
  char name_[48] = "/job:worker/replica:0/task:0/device:TPU:0";
};

TEST_F(TfLaunch, SharesOfEightCoresAreOneLaunch) {
  check_good_step(1, {3, 1, 0, 2, 7, 6, 5, 4});
  check_good_step(5, {0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_F(TfLaunch, StepsOfTwoThreadsDoNotMix) {
  Step one(&rendezvous_), two(&other_rendezvous_);
  std::array<std::array<SE_DeviceMemoryBase, kCores>, 2> results{};
  for (int number = 0; number < kCores; ++number) {
    for (const int which : number % 3 == 0 ? std::array{1, 0} : std::array{0, 1}) {
      results[at(which)][at(number)] =
          launch(number, which == 0 ? one : two, static_cast<float>(10 * which));
    }
  }
  for (int number = 0; number < kCores; ++number) {
    for (const int which : {0, 1}) {
      EXPECT_EQ(from_device(core(number), kElements, results[at(which)][at(number)]),
                std::pair(updated(number, static_cast<float>(10 * which)), std::string()));
    }
  }
}

// The next steps have the same rendezvous: its memory was given again.
TEST_F(TfLaunch, ARefusedShareIsTheErrorOfItsStepAlone) {
  Step step(&rendezvous_);
  begin_step();
  const Status refused;
  const SE_DeviceMemoryBase nothing{};
  launch(0, step, update_, nothing, core(0).allocate(16), refused);
  EXPECT_EQ(refused.code(), kInvalidArgument) << refused.text();
  launch(4, step, 1);
  core(4).wait();                               // the error is that of core 0's operation
  for (int number = 1; number < 4; ++number) {  // the others never come: the step was cancelled
    EXPECT_NE(error_of(number, launch(number, step, 1)).find("TPU:0 could not launch it"),
              std::string::npos);
  }
  check_good_step(2, {5, 6, 7, 0, 1, 2, 3, 4});
  check_good_step(3, {0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_F(TfLaunch, TheNextInitializationEndsWhatWaitsAndFreesTheMemory) {
  Step step(&rendezvous_);
  SE_AllocatorStats before{}, after{};
  TPU_TF(TpuExecutor_GetAllocatorStats)(core(7).executor, &before);
  const SE_DeviceMemoryBase old = values(7, 0);
  const SE_DeviceMemoryBase result = launch(2, step, 1);
  ConfigureDistributedTpuOp_DoWork_Params params{};
  size_t size = 0;
  char* config = nullptr;
  const Status status;
  const int32_t cores = kCores;
  params.num_cores_per_host_size = 1;
  params.num_cores_per_host = &cores;
  params.host_config_output_size = &size;
  params.host_config_output = &config;
  params.status = status;
  TPU_TF(ConfigureDistributedTpuOp_DoWork)(&params);
  ASSERT_EQ(status.code(), kOk) << status.text();
  TPU_TF(TpuConfigurationApi_FreeCharArray)(config);
  const std::string error = error_of(2, result);
  EXPECT_NE(error.find("initialized again"), std::string::npos) << error;
  EXPECT_NE(error_of(7, old).find("initialized again"), std::string::npos);
  TPU_TF(TpuExecutor_GetAllocatorStats)(core(7).executor, &after);
  EXPECT_LE(after.bytes_in_use, before.bytes_in_use);
  check_good_step(2, {2, 3, 0, 1, 5, 4, 6, 7});
}

// A core is on its way when TensorFlow cancels the step.
TEST_F(TfLaunch, AShareThatComesAfterTheEndOfItsStepGetsTheError) {
  Step step(&rendezvous_);
  begin_step();
  const SE_DeviceMemoryBase first = launch(0, step, 1);
  const Status status;
  TPU_TF(TpuNodeContext_CloseTpuHost)(status);
  EXPECT_EQ(status.code(), kOk) << status.text();
  const SE_DeviceMemoryBase late = launch(1, step, 1);
  core(1).wait();  // the error is that of what was cancelled
  for (const auto& [number, result] : {std::pair(0, first), std::pair(1, late)}) {
    EXPECT_NE(error_of(number, result).find("the step was cancelled"), std::string::npos);
  }
  check_good_step(2, {5, 6, 7, 0, 1, 2, 3, 4});
}

// It is not known which of the steps was cancelled.
TEST_F(TfLaunch, ACancelledStepIsNoSecretToTheStepsOfOtherThreads) {
  Step one(&rendezvous_, name_), two(&other_rendezvous_, name_);
  begin_step();
  launch(0, one, 1);
  const SE_DeviceMemoryBase result = launch(1, two, 1);
  const Status status, told;
  TPU_TF(TpuNodeContext_CloseTpuHost)(status);
  EXPECT_EQ(status.code(), kOk) << status.text();
  TPU_TF(TpuExecutor_BlockHostUntilDone)(core(1).executor, core(1).stream, told);
  EXPECT_NE(told.text().find("the step was cancelled"), std::string::npos) << told.text();
  EXPECT_NE(error_of(1, result).find("the step was cancelled"), std::string::npos);
}

// Between the check of TensorFlow and the launch of a core nothing is under way.
TEST_F(TfLaunch, ALateShareOfAFailedStepOpensNoLaunch) {
  Step step(&rendezvous_, name_);
  begin_step();
  launch(0, step, 1);
  const Status status;
  TPU_TF(TpuNodeContext_CloseTpuHost)(status);
  EXPECT_EQ(status.code(), kOk) << status.text();
  begin_step();  // of another thread
  EXPECT_NE(error_of(1, launch(1, step, 1)).find("the step was cancelled"), std::string::npos);
  Step next(&other_rendezvous_, name_);
  check_good_step(next, 2, {1, 0, 2, 3, 4, 5, 6, 7});
}

TEST_F(TfLaunch, DevicesThatCannotBeReadFailTheLaunchOfAll) {
  Step step(&rendezvous_);
  begin_step();
  char damaged[] = {0x1a, 0x7f};  // a message of 127 bytes that are missing
  XLA_DeviceAssignment assignment{damaged, sizeof damaged};
  const Status refused;
  const SE_DeviceMemoryBase result = core(0).allocate(kElements * sizeof(float));
  launch(0, step, update_, values(0, 1), result, refused, &assignment);
  EXPECT_NE(refused.code(), kOk);
  EXPECT_NE(error_of(1, launch(1, step, 1)).find("TPU:0 could not launch it"), std::string::npos);
}

TEST_F(TfLaunch, AVariableStaysInItsMemory) {
  XLA_TpuProgram* const in_place = program(true);
  Step step(&rendezvous_);
  std::array<SE_DeviceMemoryBase, kCores> variables{};
  for (int number = 0; number < kCores; ++number) {
    const Status status;
    variables[at(number)] = values(number, 1);
    launch(number, step, in_place, variables[at(number)], variables[at(number)], status);
    EXPECT_EQ(status.code(), kOk) << status.text();
  }
  for (int number = 0; number < kCores; ++number) {
    EXPECT_EQ(from_device(core(number), kElements, variables[at(number)]).first,
              updated(number, 1));
  }
}

// It reaches the status of the compilation when TensorFlow has the program.
TEST_F(TfLaunch, AnErrorOfTheCompilationIsThatOfItsStatus) {
  const Status status;
  XLA_TpuProgram* const failed = compile(std::string(1, '\0') + "no lowering of Op", status);
  EXPECT_EQ(status.code(), kOutOfRange);
  EXPECT_EQ(status.text(), "no lowering of Op");
  Step step(&rendezvous_);
  const Status launched;
  launch(0, step, failed, {}, {}, launched);
  EXPECT_EQ(launched.text(), "no lowering of Op");
  EXPECT_EQ(launched.code(), kOutOfRange);

  XLA_TpuProgram** programs = nullptr;
  size_t count = 0;
  {
    const Status gone;
    TPU_TF(TpuCompile_CompileAndBuild)({"", 0}, nullptr, &programs, &count, gone);
  }
  const Status other;  // perhaps in the memory of the one that is gone
  TPU_TF(TpuProgram_FreeArray)(programs);
  EXPECT_EQ(other.code(), kOk);
}

}  // namespace
}  // namespace tpu::test
