// What comes later: buffers that are filled piece by piece, events of the caller, errors as
// buffers; and topologies as bytes.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "plugin_calls.hpp"

namespace tpu::test {
namespace {

class PjrtLater : public testing::Test {
 protected:
  PJRT_AsyncHostToDeviceTransferManager* make_manager(
      const std::vector<std::vector<int64_t>>& shapes, int device) {
    std::vector<PJRT_ShapeSpec> specs;
    for (const auto& dims : shapes) {
      auto spec = args_of<PJRT_ShapeSpec>();
      spec.dims = dims.data();
      spec.num_dims = dims.size();
      spec.element_type = PJRT_Buffer_Type_F32;
      specs.push_back(spec);
    }
    auto args = args_of<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
    args.client = client_;
    args.shape_specs = specs.data();
    args.num_shape_specs = specs.size();
    args.memory = memory_of(device);
    EXPECT_EQ(outcome_of(api().PJRT_Client_CreateBuffersForAsyncHostToDevice(&args)).text, "");
    return args.transfer_manager;
  }

  PJRT_Memory* memory_of(int device) {
    auto args = args_of<PJRT_Device_DefaultMemory_Args>();
    args.device = device_of(client_, device);
    EXPECT_EQ(api().PJRT_Device_DefaultMemory(&args), nullptr);
    return args.memory;
  }

  static PJRT_Buffer* retrieve(PJRT_AsyncHostToDeviceTransferManager* manager, int index,
                               Outcome* outcome = nullptr) {
    auto args = args_of<PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args>();
    args.transfer_manager = manager;
    args.buffer_index = index;
    const Outcome got =
        outcome_of(api().PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer(&args));
    if (outcome != nullptr) {
      *outcome = got;
    } else {
      EXPECT_EQ(got.text, "");
    }
    return args.buffer_out;
  }

  static Outcome transfer(PJRT_AsyncHostToDeviceTransferManager* manager, int index,
                          const std::vector<float>& values, int64_t offset, bool last) {
    auto args = args_of<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args>();
    args.transfer_manager = manager;
    args.buffer_index = index;
    args.data = values.data();
    args.offset = offset;
    args.transfer_size = static_cast<int64_t>(values.size() * sizeof(float));
    args.is_last_transfer = last;
    const Outcome outcome =
        outcome_of(api().PJRT_AsyncHostToDeviceTransferManager_TransferData(&args));
    if (args.done_with_h2d_transfer != nullptr) {
      EXPECT_EQ(await(args.done_with_h2d_transfer).text, "");
    }
    return outcome;
  }

  static void destroy(PJRT_AsyncHostToDeviceTransferManager* manager) {
    auto args = args_of<PJRT_AsyncHostToDeviceTransferManager_Destroy_Args>();
    args.transfer_manager = manager;
    EXPECT_EQ(api().PJRT_AsyncHostToDeviceTransferManager_Destroy(&args), nullptr);
  }

  static PJRT_Event* ready_event(PJRT_Buffer* buffer) {
    auto args = args_of<PJRT_Buffer_ReadyEvent_Args>();
    args.buffer = buffer;
    EXPECT_EQ(outcome_of(api().PJRT_Buffer_ReadyEvent(&args)).text, "");
    return args.event;
  }

  PJRT_Client* client_ = make_client();
};

TEST_F(PjrtLater, BuffersAreThereWithTheirLastPieceAndProgramsWaitForThem) {
  const auto [program, compiled] = compile(client_, graph("data/one_op/add.mlirbc"));
  ASSERT_EQ(compiled.text, "");
  const std::vector<float> half(64 * 128, 3.0F);
  auto* manager = make_manager({{64, 256}, {64, 256}}, 0);
  PJRT_Buffer* x = retrieve(manager, 0);
  PJRT_Buffer* y = retrieve(manager, 1);
  Outcome twice;
  retrieve(manager, 1, &twice);
  EXPECT_NE(twice.text.find("retrieved already"), std::string::npos) << twice.text;
  auto size = args_of<PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args>();
  size.transfer_manager = manager;
  size.buffer_index = 1;
  TPU_PJRT_OK(PJRT_AsyncHostToDeviceTransferManager_BufferSize, size);
  EXPECT_EQ(size.buffer_size, 64U * 256 * 4);
  const auto half_bytes = static_cast<int64_t>(half.size() * sizeof(float));
  EXPECT_EQ(transfer(manager, 0, half, half_bytes, false).text, "");
  EXPECT_NE(transfer(manager, 0, half, half_bytes + 4, false).text.find("exceed the array"),
            std::string::npos);
  auto ready = args_of<PJRT_Event_IsReady_Args>();
  ready.event = ready_event(x);
  TPU_PJRT_OK(PJRT_Event_IsReady, ready);
  EXPECT_FALSE(ready.is_ready);
  EXPECT_EQ(transfer(manager, 0, half, 0, true).text, "");
  EXPECT_EQ(await(ready.event).text, "");
  EXPECT_NE(transfer(manager, 0, half, 0, true).text.find("had its last transfer"),
            std::string::npos);
  EXPECT_EQ(transfer(manager, 1, std::vector<float>(64 * 256, 4.0F), 0, true).text, "");
  destroy(manager);
  EXPECT_EQ(download(execute(program, {{x, y}}, 1)[0][0]), std::vector<float>(64 * 256, 7.0F));
}

PJRT_Event* copy_raw(PJRT_Buffer* buffer, std::vector<float>& to, int64_t first,
                     Outcome* outcome = nullptr) {
  auto args = args_of<PJRT_Buffer_CopyRawToHost_Args>();
  args.buffer = buffer;
  args.dst = to.data();
  args.offset = first * static_cast<int64_t>(sizeof(float));
  args.transfer_size = static_cast<int64_t>(to.size() * sizeof(float));
  const Outcome got = outcome_of(api().PJRT_Buffer_CopyRawToHost(&args));
  if (outcome != nullptr) {
    *outcome = got;
  } else {
    EXPECT_EQ(got.text, "");
  }
  return args.event;
}

TEST_F(PjrtLater, PartsOfABufferAreReadIntoTheirPlace) {
  std::vector<float> values(100'000);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i);
  }
  const auto [buffer, uploaded] = upload(client_, device_of(client_, 0), values, {100'000});
  ASSERT_EQ(uploaded.text, "");
  for (const auto& [first, count] :
       {std::pair<int64_t, size_t>{0, 100'000}, {0, 1}, {99'999, 1}, {33'333, 50'001}, {7, 0}}) {
    std::vector<float> to(count);
    EXPECT_EQ(await(copy_raw(buffer, to, first)).text, "");
    const auto begin = values.begin() + first;
    EXPECT_EQ(to, std::vector<float>(begin, begin + static_cast<ptrdiff_t>(count))) << first;
  }
  std::vector<float> beyond(2);
  Outcome outcome;
  copy_raw(buffer, beyond, 99'999, &outcome);
  EXPECT_EQ(outcome.code, PJRT_Error_Code_INVALID_ARGUMENT) << outcome.text;
}

// What is in flight ends with the process, whatever it is.
TEST(PjrtExit, AReadInFlightDoesNotKeepTheProcessFromEnding) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        PJRT_Client* client = make_client();
        auto& to = *new std::vector<float>(1 << 20);  // reads write there until the board is closed
        const auto uploaded =
            upload(client, device_of(client, 0), std::vector<float>(to.size(), 1.0F), {1 << 20});
        for (int i = 0; i < 20; ++i) {
          copy_raw(uploaded.first, to, 0);
        }
        std::exit(7);
      },
      testing::ExitedWithCode(7), "");
}

// The first execution loads the program, which waits for room while the ring is full of reads, and
// then runs the callbacks of those that are over.
TEST_F(PjrtLater, ACallbackExecutesTheProgramThatIsBeingLoaded) {
  constexpr size_t kReads = 300;
  static PJRT_LoadedExecutable* program = nullptr;
  static PJRT_Buffer* x = nullptr;
  static std::atomic<int> executed = 0;
  static std::atomic<bool> armed = false;
  program = compile(client_, graph("data/one_op/add.mlirbc")).first;
  x = upload(client_, device_of(client_, 0), std::vector<float>(64 * 256, 2.0F), {64, 256}).first;
  static const auto launch = [] {
    EXPECT_EQ(submit(program, {{x, x}}, 1).outcome.text, "");
    ++executed;
  };
  std::vector<std::vector<float>> to(kReads, std::vector<float>(64 * 256));
  for (auto& values : to) {
    auto read = args_of<PJRT_Buffer_ToHostBuffer_Args>();
    read.src = x;
    read.dst = values.data();
    read.dst_size = values.size() * sizeof(float);
    TPU_PJRT_OK(PJRT_Buffer_ToHostBuffer, read);
    auto ready = args_of<PJRT_Event_OnReady_Args>();
    ready.event = read.event;
    ready.callback = [](PJRT_Error*, void*) {
      if (armed.exchange(false)) {
        launch();
      }
    };
    TPU_PJRT_OK(PJRT_Event_OnReady, ready);
  }
  armed = true;
  launch();
  EXPECT_EQ(download(x), std::vector<float>(64 * 256, 2.0F));
  for (int waits = 0; executed < 2 && waits < 30'000; ++waits) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(executed, 2);
}

TEST_F(PjrtLater, WhatIsNeverFilledFails) {
  auto* manager = make_manager({{2}, {2}}, 3);
  PJRT_Buffer* broken = retrieve(manager, 0);
  PJRT_Buffer* left = retrieve(manager, 1);
  auto fail = args_of<PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args>();
  fail.transfer_manager = manager;
  fail.error_code = PJRT_Error_Code_UNAVAILABLE;
  fail.error_message = "no file";
  fail.error_message_size = 7;
  TPU_PJRT_OK(PJRT_AsyncHostToDeviceTransferManager_SetBufferError, fail);
  destroy(manager);
  const Outcome outcome = await(ready_event(broken));
  EXPECT_EQ(outcome.code, PJRT_Error_Code_UNAVAILABLE);
  EXPECT_NE(outcome.text.find("no file"), std::string::npos) << outcome.text;
  EXPECT_EQ(await(ready_event(left)).code, PJRT_Error_Code_CANCELLED);
}

TEST_F(PjrtLater, AnErrorIsABufferToo) {
  const std::vector<int64_t> dims = {4};
  auto args = args_of<PJRT_Client_CreateErrorBuffer_Args>();
  args.client = client_;
  args.memory = memory_of(2);
  args.shape_dims = dims.data();
  args.shape_num_dims = dims.size();
  args.shape_element_type = PJRT_Buffer_Type_F32;
  args.error_code = PJRT_Error_Code_DATA_LOSS;
  args.error_message = "lost on the way";
  args.error_message_size = std::strlen(args.error_message);
  TPU_PJRT_OK(PJRT_Client_CreateErrorBuffer, args);
  const Outcome outcome = await(ready_event(args.buffer));
  EXPECT_NE(outcome.text.find("lost on the way"), std::string::npos) << outcome.text;
  test::destroy(args.buffer);
}

TEST_F(PjrtLater, EventsOfTheCaller) {
  for (const PJRT_Error_Code code : {PJRT_Error_Code_OK, PJRT_Error_Code_CANCELLED}) {
    auto create = args_of<PJRT_Event_Create_Args>();
    TPU_PJRT_OK(PJRT_Event_Create, create);
    auto ready = args_of<PJRT_Event_IsReady_Args>();
    ready.event = create.event;
    TPU_PJRT_OK(PJRT_Event_IsReady, ready);
    EXPECT_FALSE(ready.is_ready);
    auto set = args_of<PJRT_Event_Set_Args>();
    set.event = create.event;
    set.error_code = code;
    TPU_PJRT_OK(PJRT_Event_Set, set);
    EXPECT_EQ(outcome_of(api().PJRT_Event_Set(&set)).code, PJRT_Error_Code_FAILED_PRECONDITION);
    EXPECT_EQ(await(create.event).code, code);
  }
}

TEST_F(PjrtLater, ATopologyIsReadBackWhereTheBoardIsTheSame) {
  auto topology = args_of<PJRT_Client_TopologyDescription_Args>();
  topology.client = client_;
  TPU_PJRT_OK(PJRT_Client_TopologyDescription, topology);
  auto serialize = args_of<PJRT_TopologyDescription_Serialize_Args>();
  serialize.topology = topology.topology;
  TPU_PJRT_OK(PJRT_TopologyDescription_Serialize, serialize);
  std::string bytes(serialize.serialized_bytes, serialize.serialized_bytes_size);
  serialize.serialized_topology_deleter(serialize.serialized_topology);
  auto read = args_of<PJRT_TopologyDescription_Deserialize_Args>();
  read.serialized_topology = bytes.data();
  read.serialized_topology_size = bytes.size();
  TPU_PJRT_OK(PJRT_TopologyDescription_Deserialize, read);
  auto devices = args_of<PJRT_TopologyDescription_GetDeviceDescriptions_Args>();
  devices.topology = read.topology;
  TPU_PJRT_OK(PJRT_TopologyDescription_GetDeviceDescriptions, devices);
  EXPECT_EQ(devices.num_descriptions, 8U);
  auto destroy = args_of<PJRT_TopologyDescription_Destroy_Args>();
  destroy.topology = read.topology;
  TPU_PJRT_OK(PJRT_TopologyDescription_Destroy, destroy);
  bytes.replace(bytes.find("core.clock_mhz="), 16, "core.clock_mhz=1");
  const Outcome other = outcome_of(api().PJRT_TopologyDescription_Deserialize(&read));
  EXPECT_NE(other.text.find("TPUBOARD_BOARD"), std::string::npos) << other.text;
}

}  // namespace
}  // namespace tpu::test
