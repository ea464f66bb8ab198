// A replica that has no memory for its part of a launch: the others do not wait for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

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

struct Replica {
  std::string error;          // of the call
  PJRT_Event* end = nullptr;  // of its launch
};

// A launch, in which replica 5 has `allocations` before one fails; below 0: all that it needs.
std::vector<Replica> launch_all(PJRT_Client* client, PJRT_LoadedExecutable* step, int allocations) {
  std::vector<Replica> all(kReplicas);
  for (int r = 0; r < kReplicas; ++r) {
    std::vector<PJRT_Buffer*> arguments;
    for (int i = 0; i < 2; ++i) {
      const auto [buffer, outcome] =
          upload(client, device_of(client, r), std::vector<float>(256, 1), {256});
      EXPECT_EQ(outcome.text, "");
      arguments.push_back(buffer);
    }
    std::vector<PJRT_Buffer*> results(2);
    PJRT_Buffer* const* argument_list = arguments.data();
    PJRT_Buffer** result_list = results.data();
    PJRT_Event* end = nullptr;
    auto options = args_of<PJRT_ExecuteOptions>();
    auto args = launch_of(step, device_of(client, r), &argument_list, &result_list, &end, &options);
    const auto& execute = *api().PJRT_LoadedExecutable_Execute;
    fail_allocation(r == 5 ? allocations : -1);
    PJRT_Error* const error = execute(&args);
    fail_allocation(-1);
    all[static_cast<size_t>(r)] = {outcome_of(error).text, end};
  }
  return all;
}

// Wherever it is in the call: each end comes, and the next launch is that of all replicas.
TEST(PjrtReplicaMemory, ThatOneLacksAnywhereIsThatOfOneLaunch) {
  ASSERT_EQ(::setenv("TPUBOARD_REPLICA_LIMIT", "60", 1), 0);  // not 600, when one is forgotten
  PJRT_Client* const client = make_client();
  const auto [step, compiled] =
      compile(client, graph("data/replica_step.mlirbc"), "mlir", replicas(kReplicas));
  ASSERT_EQ(compiled.text, "");
  const auto check_good = [&, step = step] {
    for (const Replica& replica : launch_all(client, step, -1)) {
      EXPECT_EQ(replica.error, "");
      EXPECT_EQ(await(replica.end).text, "");
    }
  };
  check_good();
  int failed_calls = 0, failed_launches = 0;
  for (int allocations = 0; allocations < 80; ++allocations) {
    const std::vector<Replica> all = launch_all(client, step, allocations);
    int good = 0, bad = 0;
    for (const Replica& replica : all) {
      if (replica.error.empty()) {
        const std::string text = await(replica.end).text;
        ++(text.empty() ? good : bad);
        EXPECT_THAT(text, testing::AnyOf("", HasSubstr("out of host memory"))) << allocations;
      } else {
        EXPECT_EQ(replica.error, "out of host memory");
        ++failed_calls;
      }
    }
    EXPECT_TRUE(good == 0 || bad == 0) << allocations;  // a launch ends for all at once
    failed_launches += bad > 0 ? 1 : 0;
  }
  EXPECT_GT(failed_calls, 5);
  EXPECT_GT(failed_launches, failed_calls);  // some fail behind the place where a call can
  check_good();
  destroy(client);
}

// The list of the call's devices is the first allocation of a launch.
TEST(PjrtReplicaMemory, ThatOneLacksEndsTheLaunchOfAll) {
  PJRT_Client* const client = make_client();
  const auto [step, compiled] =
      compile(client, graph("data/replica_step.mlirbc"), "mlir", replicas(kReplicas));
  ASSERT_EQ(compiled.text, "");
  const std::vector<Replica> all = launch_all(client, step, 1);
  for (size_t r = 0; r < all.size(); ++r) {
    if (r == 5) {
      EXPECT_EQ(all[r].error, "out of host memory");
      continue;
    }
    EXPECT_EQ(all[r].error, "");
    EXPECT_THAT(await(all[r].end).text, HasSubstr("TPU:5 could not launch it: out of host memory"));
  }
  destroy(client);
}

}  // namespace
}  // namespace tpu::test
