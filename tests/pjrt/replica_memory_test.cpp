// A replica that has no memory for its part of a launch: the others do not wait for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "failing_allocation.hpp"
#include "plugin_calls.hpp"

namespace tpu::test {
namespace {

using testing::HasSubstr;

constexpr int kReplicas = 8;

PJRT_LoadedExecutable_Execute_Args launch_of(PJRT_LoadedExecutable* step, PJRT_Device* device,
                                             PJRT_Buffer* const* const* arguments,
                                             PJRT_Buffer** const* results, PJRT_Event** end,
                                             PJRT_ExecuteOptions* options) {
  auto args = args_of<PJRT_LoadedExecutable_Execute_Args>();
  args.executable = step;
  args.options = options;
  args.argument_lists = arguments;
  args.num_devices = 1;
  args.num_args = 2;
  args.execute_device = device;
  args.output_lists = results;
  args.device_complete_events = end;
  return args;
}

// The list of the call's devices is the first allocation of a launch.
TEST(PjrtReplicaMemory, ThatOneLacksEndsTheLaunchOfAll) {
  PJRT_Client* const client = make_client();
  const auto [step, compiled] =
      compile(client, graph("data/replica_step.mlirbc"), "mlir", replicas(kReplicas));
  ASSERT_EQ(compiled.text, "");
  std::vector<PJRT_Event*> ends;
  for (int r = 0; r < kReplicas; ++r) {
    std::vector<PJRT_Buffer*> arguments;
    for (int i = 0; i < 2; ++i) {
      const auto [buffer, outcome] =
          upload(client, device_of(client, r), std::vector<float>(256, 1), {256});
      ASSERT_EQ(outcome.text, "");
      arguments.push_back(buffer);
    }
    std::vector<PJRT_Buffer*> results(2);
    PJRT_Buffer* const* argument_list = arguments.data();
    PJRT_Buffer** result_list = results.data();
    PJRT_Event* end = nullptr;
    auto options = args_of<PJRT_ExecuteOptions>();
    auto args = launch_of(step, device_of(client, r), &argument_list, &result_list, &end, &options);
    const auto& execute = *api().PJRT_LoadedExecutable_Execute;
    if (r == 5) {
      fail_allocation(1);
    }
    PJRT_Error* const error = execute(&args);
    const Outcome outcome = outcome_of(error);
    if (r == 5) {
      EXPECT_EQ(outcome.text, "out of host memory");
    } else {
      ASSERT_EQ(outcome.text, "");
      ends.push_back(end);
    }
  }
  for (PJRT_Event* const end : ends) {
    const Outcome outcome = await(end);
    EXPECT_THAT(outcome.text, HasSubstr("TPU:5 could not launch it: out of host memory"));
  }
  destroy(client);
}

}  // namespace
}  // namespace tpu::test
