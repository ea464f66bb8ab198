// The table of the plugin through dlopen(): every slot, bad arguments, and the life of a program.
#include <atomic>
#include <future>
#include <numeric>
#include <thread>

#include "plugin_calls.hpp"

namespace tpu::test {
namespace {

TEST(PjrtTable, HasItsVersionAndAllSlots) {
  EXPECT_EQ(api().struct_size, sizeof(PJRT_Api));
  EXPECT_EQ(api().pjrt_api_version.major_version, 0);
  EXPECT_EQ(api().pjrt_api_version.minor_version, 93);
  ASSERT_NE(api().extension_start, nullptr);
  EXPECT_EQ(api().extension_start->type, PJRT_Extension_Type_Shardings);
#define TPU_SLOT(name) EXPECT_NE(api().name, nullptr) << #name;
  TPU_PJRT_SLOTS(TPU_SLOT, TPU_SLOT, TPU_SLOT)
#undef TPU_SLOT
}

TEST(PjrtTable, UnsupportedSlotsSayTheirName){
#define TPU_NONE(name)
#define TPU_SLOT(name)                                       \
  {                                                          \
    const Outcome outcome = outcome_of(api().name(nullptr)); \
    EXPECT_EQ(outcome.code, PJRT_Error_Code_UNIMPLEMENTED);  \
    EXPECT_NE(outcome.text.find(#name), std::string::npos);  \
  }
    TPU_PJRT_SLOTS(TPU_NONE, TPU_NONE, TPU_SLOT)
#undef TPU_SLOT
#undef TPU_NONE
}

// No argument struct, one of no size, and one that is all null: errors, never a crash.
TEST(PjrtTable, BadArgumentsAreErrors){
#define TPU_NONE(name)
#define TPU_SLOT(name)                                                                         \
  {                                                                                            \
    const Outcome none = outcome_of(api().name(nullptr));                                      \
    EXPECT_EQ(none.code, PJRT_Error_Code_INVALID_ARGUMENT) << #name;                           \
    EXPECT_NE(none.text.find(#name), std::string::npos);                                       \
    name##_Args small{};                                                                       \
    small.struct_size = sizeof(size_t);                                                        \
    EXPECT_EQ(outcome_of(api().name(&small)).code, PJRT_Error_Code_INVALID_ARGUMENT) << #name; \
    auto empty = args_of<name##_Args>();                                                       \
    outcome_of(api().name(&empty));                                                            \
  }
    TPU_PJRT_SLOTS(TPU_NONE, TPU_SLOT, TPU_NONE)
#undef TPU_SLOT
#undef TPU_NONE
}

TEST(PjrtTable, BadArgumentsOfLayoutsAreErrors){
#define TPU_FUNCTION(name)                                                                    \
  {                                                                                           \
    const auto function = layouts().name;                                                     \
    EXPECT_EQ(outcome_of(function(nullptr)).code, PJRT_Error_Code_INVALID_ARGUMENT) << #name; \
    auto empty = args_of<name##_Args>();                                                      \
    outcome_of(function(&empty));                                                             \
  }
    TPU_PJRT_LAYOUTS(TPU_FUNCTION)
#undef TPU_FUNCTION
}

// A caller of an older version has a shorter struct: nothing behind it is written.
TEST(PjrtTable, WritesOnlyInsideTheCallersStruct) {
  auto args = args_of<PJRT_Device_MemoryStats_Args>();
  args.device = device_of(make_client(), 0);
  args.struct_size = offsetof(PJRT_Device_MemoryStats_Args, peak_allocated_bytes);
  args.peak_allocated_bytes = 1234567;
  args.num_allocs_is_set = true;
  TPU_PJRT_OK(PJRT_Device_MemoryStats, args);
  EXPECT_EQ(args.bytes_limit, int64_t{16} << 30);
  EXPECT_TRUE(args.bytes_limit_is_set);
  EXPECT_FALSE(args.num_allocs_is_set);
  EXPECT_EQ(args.peak_allocated_bytes, 1234567);
}

TEST(PjrtClient, TwoClientsShareTheBoard) {
  PJRT_Client* first = make_client();
  PJRT_Client* second = make_client();
  ASSERT_NE(first, second);
  const auto a = upload(first, device_of(first, 1), {1, 2}, {2}).first;
  auto destroy_args = args_of<PJRT_Client_Destroy_Args>();
  destroy_args.client = second;
  TPU_PJRT_OK(PJRT_Client_Destroy, destroy_args);
  EXPECT_EQ(download(a), (std::vector<float>{1, 2}));
  destroy(a);
}

TEST(PjrtClient, IsOutlivedByItsBuffers) {
  PJRT_Client* client = make_client();
  PJRT_Device* target = device_of(client, 5);
  PJRT_Buffer* buffer = upload(client, device_of(client, 1), {1, 2, 3}, {3}).first;
  auto end = args_of<PJRT_Client_Destroy_Args>();
  end.client = client;
  TPU_PJRT_OK(PJRT_Client_Destroy, end);
  auto copy = args_of<PJRT_Buffer_CopyToDevice_Args>();
  copy.buffer = buffer;
  copy.dst_device = target;
  TPU_PJRT_OK(PJRT_Buffer_CopyToDevice, copy);
  destroy(buffer);
  EXPECT_EQ(download(copy.dst_buffer), (std::vector<float>{1, 2, 3}));
  destroy(copy.dst_buffer);
}

TEST(PjrtClient, AnUnknownVariableIsNamedWithAllThatThereAre) {
  ::setenv("TPUBOARD_BORD", "v2_8", 1);
  auto args = args_of<PJRT_Client_Create_Args>();
  const Outcome outcome = outcome_of(api().PJRT_Client_Create(&args));
  EXPECT_EQ(outcome.code, PJRT_Error_Code_INVALID_ARGUMENT);
  EXPECT_NE(outcome.text.find("unknown environment variable TPUBOARD_BORD"), std::string::npos)
      << outcome.text;
  EXPECT_NE(outcome.text.find("TPUBOARD_BOARD"), std::string::npos) << outcome.text;
}

TEST(PjrtClient, ABadValueNamesItsVariable) {
  ::setenv("TPUBOARD_SIMD", "sse9", 1);
  auto args = args_of<PJRT_Client_Create_Args>();
  const Outcome outcome = outcome_of(api().PJRT_Client_Create(&args));
  EXPECT_EQ(outcome.code, PJRT_Error_Code_INVALID_ARGUMENT);
  EXPECT_NE(outcome.text.find("TPUBOARD_SIMD: invalid value 'sse9': expected one of auto, scalar"),
            std::string::npos)
      << outcome.text;
}

TEST(PjrtClient, TheBoardIsTheOneOfTheEnvironment) {
  ::setenv("TPUBOARD_BOARD", "v2_8", 1);
  ::setenv("TPUBOARD_PLATFORM", "tpuboard", 1);
  PJRT_Client* client = make_client();
  auto name = args_of<PJRT_Client_PlatformName_Args>();
  name.client = client;
  TPU_PJRT_OK(PJRT_Client_PlatformName, name);
  EXPECT_EQ(std::string(name.platform_name, name.platform_name_size), "tpuboard");
  auto description = args_of<PJRT_Device_GetDescription_Args>();
  description.device = device_of(client, 0);
  TPU_PJRT_OK(PJRT_Device_GetDescription, description);
  auto kind = args_of<PJRT_DeviceDescription_Kind_Args>();
  kind.device_description = description.device_description;
  TPU_PJRT_OK(PJRT_DeviceDescription_Kind, kind);
  EXPECT_EQ(std::string(kind.device_kind, kind.device_kind_size), "TPU v2");
}

TEST(PjrtBuffer, StridesAreFollowedAndCopiesGoBetweenCores) {
  PJRT_Client* client = make_client();
  std::vector<float> values(12);
  std::iota(values.begin(), values.end(), 0.0F);
  // A 3x4 array, transposed; then its rows backwards.
  PJRT_Buffer* turned = upload(client, device_of(client, 2), values, {4, 3}, {4, 16}).first;
  EXPECT_EQ(download(turned), (std::vector<float>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
  auto copy = args_of<PJRT_Buffer_CopyToDevice_Args>();
  copy.buffer = turned;
  copy.dst_device = device_of(client, 7);
  TPU_PJRT_OK(PJRT_Buffer_CopyToDevice, copy);
  EXPECT_EQ(download(copy.dst_buffer), download(turned));
  destroy(turned);
  destroy(copy.dst_buffer);
  EXPECT_EQ(upload(client, device_of(client, 0), values, {4, 3}, {4}).second.code,
            PJRT_Error_Code_INVALID_ARGUMENT);
}

TEST(PjrtBuffer, ADeletedOneIsAnError) {
  PJRT_Client* client = make_client();
  PJRT_Buffer* buffer = upload(client, device_of(client, 0), {1, 2, 3}, {3}).first;
  auto remove = args_of<PJRT_Buffer_Delete_Args>();
  remove.buffer = buffer;
  TPU_PJRT_OK(PJRT_Buffer_Delete, remove);
  auto deleted = args_of<PJRT_Buffer_IsDeleted_Args>();
  deleted.buffer = buffer;
  TPU_PJRT_OK(PJRT_Buffer_IsDeleted, deleted);
  EXPECT_TRUE(deleted.is_deleted);
  auto args = args_of<PJRT_Buffer_ToHostBuffer_Args>();
  args.src = buffer;
  EXPECT_EQ(outcome_of(api().PJRT_Buffer_ToHostBuffer(&args)).code,
            PJRT_Error_Code_FAILED_PRECONDITION);
  destroy(buffer);
}

TEST(PjrtBuffer, MoreThanACoreHasIsAnErrorUntilSomeIsFree) {
  PJRT_Client* client = make_client();
  const auto make = [&](int64_t bytes) {
    auto args = args_of<PJRT_Client_CreateUninitializedBuffer_Args>();
    args.client = client;
    args.device = device_of(client, 2);
    args.shape_dims = &bytes;
    args.shape_num_dims = 1;
    args.shape_element_type = PJRT_Buffer_Type_U8;
    const Outcome outcome = outcome_of(api().PJRT_Client_CreateUninitializedBuffer(&args));
    return std::pair(args.buffer, outcome);
  };
  constexpr int64_t kGiB = int64_t{1} << 30;
  const auto [large, made] = make(15 * kGiB);
  ASSERT_EQ(made.text, "");
  const auto expect_full = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.code, PJRT_Error_Code_RESOURCE_EXHAUSTED);
    for (const char* part : {"TPU:2", "16106127360"}) {  // the largest array
      EXPECT_NE(outcome.text.find(part), std::string::npos) << outcome.text;
    }
  };
  expect_full(make(2 * kGiB).second);
  expect_full(upload(client, device_of(client, 2), {1}, {kGiB}, {0}).second);  // one value
  auto remove = args_of<PJRT_Buffer_Delete_Args>();
  remove.buffer = large;
  TPU_PJRT_OK(PJRT_Buffer_Delete, remove);
  const auto [after, again] = make(2 * kGiB);
  EXPECT_EQ(again.text, "");
  destroy(after);
  destroy(large);
}

TEST(PjrtBuffer, WhatIsNoElementTypeIsAnError) {
  PJRT_Client* client = make_client();
  auto args = args_of<PJRT_Client_BufferFromHostBuffer_Args>();
  args.client = client;
  args.device = device_of(client, 0);
  const double data = 1;
  args.data = &data;
  args.type = PJRT_Buffer_Type_TOKEN;
  const Outcome outcome = outcome_of(api().PJRT_Client_BufferFromHostBuffer(&args));
  EXPECT_EQ(outcome.code, PJRT_Error_Code_INVALID_ARGUMENT);
  EXPECT_NE(outcome.text.find("element type 23"), std::string::npos) << outcome.text;
}

TEST(PjrtCompile, BadProgramsAreErrors) {
  PJRT_Client* client = make_client();
  EXPECT_EQ(compile(client, "module {}").second.code, PJRT_Error_Code_UNIMPLEMENTED);
  EXPECT_EQ(compile(client, "ML\xefR and then rubbish").second.code,
            PJRT_Error_Code_INVALID_ARGUMENT);
  const Outcome text = compile(client, "x", "hlo").second;
  EXPECT_EQ(text.code, PJRT_Error_Code_INVALID_ARGUMENT);
  EXPECT_NE(text.text.find("expected a serialized HloModuleProto"), std::string::npos) << text.text;
  const Outcome other = compile(client, "x", "jaxpr").second;
  EXPECT_EQ(other.code, PJRT_Error_Code_UNIMPLEMENTED);
  EXPECT_NE(other.text.find("\"mlir\", \"hlo\" and \"hlo_with_config\""), std::string::npos)
      << other.text;
  const std::string add = graph("data/one_op/add.mlirbc");
  EXPECT_EQ(compile(client, add, "mlir", "\xff\xff").second.code, PJRT_Error_Code_INVALID_ARGUMENT);
  EXPECT_EQ(compile(client, add, "mlir", partitions(16)).second.code,
            PJRT_Error_Code_INVALID_ARGUMENT);
  const std::string f16 = graph("data/bad_dynamic.mlirbc");
  EXPECT_EQ(compile(client, f16).second.code, PJRT_Error_Code_UNIMPLEMENTED);
}

TEST(PjrtExecute, OneCoreComputesAndRefusesWhatDoesNotFit) {
  PJRT_Client* client = make_client();
  const auto [program, compiled] = compile(client, graph("data/one_op/add.mlirbc"));
  ASSERT_EQ(compiled.text, "");
  const std::vector<float> ones(64 * 256, 1.0F);
  PJRT_Buffer* x = upload(client, device_of(client, 0), ones, {64, 256}).first;
  const auto outputs = execute(program, {{x, x}}, 1);
  EXPECT_EQ(download(outputs[0][0]), std::vector<float>(64 * 256, 2.0F));
  Outcome outcome;
  execute(program, {{x}}, 1, &outcome);
  EXPECT_EQ(outcome.code, PJRT_Error_Code_INVALID_ARGUMENT);
  PJRT_Buffer* elsewhere = upload(client, device_of(client, 3), ones, {64, 256}).first;
  execute(program, {{x, elsewhere}}, 1, &outcome);
  EXPECT_EQ(outcome.code, PJRT_Error_Code_INVALID_ARGUMENT);
  PJRT_Buffer* other = upload(client, device_of(client, 0), ones, {256, 64}).first;
  execute(program, {{x, other}}, 1, &outcome);
  EXPECT_NE(outcome.text.find("must be f32[64,256]"), std::string::npos) << outcome.text;
}

TEST(PjrtExecute, EightCoresSumAndSayHowTheirArraysLie) {
  PJRT_Client* client = make_client();
  const auto [program, compiled] =
      compile(client, graph("golden/graphs/sum_small.mlirbc"), "mlir", partitions(8));
  ASSERT_EQ(compiled.text, "");
  std::vector<std::vector<PJRT_Buffer*>> arguments;
  for (int d = 0; d < 8; ++d) {
    arguments.push_back({upload(client, device_of(client, d),
                                std::vector<float>(1021, static_cast<float>(d)), {1, 1021})
                             .first});
  }
  const auto outputs = execute(program, arguments, 1);
  for (const auto& list : outputs) {
    EXPECT_EQ(download(list[0]).front(), 28.0F);
  }
  PJRT_Executable* const executable = executable_of(program);
  const auto& extension = *reinterpret_cast<const PJRT_Shardings_Extension*>(api().extension_start);
  auto shardings = args_of<PJRT_Shardings_PJRT_Executable_ParameterShardings_Args>();
  shardings.executable = executable;
  ASSERT_EQ(extension.PJRT_Shardings_PJRT_Executable_ParameterShardings(&shardings), nullptr);
  ASSERT_EQ(shardings.num_parameters, 1U);
  // OpSharding {type OTHER, tiles [8,1], devices 0..7}
  EXPECT_EQ(std::string(shardings.shardings[0], shardings.sharding_sizes[0]),
            std::string("\x08\x03\x1a\x02\x08\x01\x22\x08\0\1\2\3\4\5\6\7", 16));
}

// Of an executable's argument, of its result, of a buffer and by default: "{1,0}".
TEST(PjrtLayouts, AreRowMajor) {
  PJRT_Client* client = make_client();
  const auto [program, compiled] = compile(client, graph("data/one_op/multiply.mlirbc"));
  ASSERT_EQ(compiled.text, "");
  PJRT_Executable* const executable = executable_of(program);
  auto arguments = args_of<PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args>();
  arguments.executable = executable;
  ASSERT_EQ(layouts().PJRT_Layouts_PJRT_Executable_GetParameterLayouts(&arguments), nullptr);
  ASSERT_EQ(arguments.num_parameters, 2U);
  auto results = args_of<PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args>();
  results.executable = executable;
  ASSERT_EQ(layouts().PJRT_Layouts_PJRT_Executable_GetOutputLayouts(&results), nullptr);
  ASSERT_EQ(results.num_outputs, 1U);
  const std::vector<int64_t> dims = {3, 4};
  auto of_client = args_of<PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args>();
  of_client.client = client;
  of_client.type = PJRT_Buffer_Type_F32;
  of_client.dims = dims.data();
  of_client.num_dims = dims.size();
  ASSERT_EQ(layouts().PJRT_Layouts_PJRT_Client_GetDefaultLayout(&of_client), nullptr);
  auto of_buffer = args_of<PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args>();
  of_buffer.buffer = upload(client, device_of(client, 0), std::vector<float>(12), dims).first;
  ASSERT_EQ(layouts().PJRT_Layouts_PJRT_Buffer_MemoryLayout(&of_buffer), nullptr);
  for (PJRT_Layouts_MemoryLayout* layout :
       {arguments.layouts[0], arguments.layouts[1], results.layouts[0], of_client.layout,
        of_buffer.layout}) {
    auto bytes = args_of<PJRT_Layouts_MemoryLayout_Serialize_Args>();
    bytes.layout = layout;
    ASSERT_EQ(layouts().PJRT_Layouts_MemoryLayout_Serialize(&bytes), nullptr);
    EXPECT_EQ(std::string(bytes.serialized_bytes, bytes.serialized_bytes_size), "{1,0}");
    bytes.serialized_layout_deleter(bytes.serialized_layout);
  }
  for (PJRT_Layouts_MemoryLayout* layout : {of_client.layout, of_buffer.layout}) {
    auto destroy = args_of<PJRT_Layouts_MemoryLayout_Destroy_Args>();
    destroy.layout = layout;
    EXPECT_EQ(layouts().PJRT_Layouts_MemoryLayout_Destroy(&destroy), nullptr);
  }
}

TEST(PjrtExecute, AStoredExecutableRunsAgain) {
  PJRT_Client* client = make_client();
  const auto [program, compiled] = compile(client, graph("data/one_op/multiply.mlirbc"));
  ASSERT_EQ(compiled.text, "");
  PJRT_Executable* const executable = executable_of(program);
  auto store = args_of<PJRT_Executable_Serialize_Args>();
  store.executable = executable;
  TPU_PJRT_OK(PJRT_Executable_Serialize, store);
  std::string bytes(store.serialized_bytes, store.serialized_bytes_size);
  store.serialized_executable_deleter(store.serialized_executable);
  auto load = args_of<PJRT_Executable_DeserializeAndLoad_Args>();
  load.client = client;
  load.serialized_executable = bytes.data();
  load.serialized_executable_size = bytes.size();
  TPU_PJRT_OK(PJRT_Executable_DeserializeAndLoad, load);
  PJRT_Buffer* x =
      upload(client, device_of(client, 0), std::vector<float>(64 * 256, 3.0F), {64, 256}).first;
  EXPECT_EQ(download(execute(load.loaded_executable, {{x, x}}, 1)[0][0]).back(), 9.0F);
  // Cut short at every place, and with a byte changed: refused.
  for (size_t size = 0; size < bytes.size(); size += 97) {
    load.serialized_executable_size = size;
    EXPECT_EQ(outcome_of(api().PJRT_Executable_DeserializeAndLoad(&load)).code,
              PJRT_Error_Code_INVALID_ARGUMENT)
        << size;
  }
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  load.serialized_executable = bytes.data();
  load.serialized_executable_size = bytes.size();
  EXPECT_EQ(outcome_of(api().PJRT_Executable_DeserializeAndLoad(&load)).code,
            PJRT_Error_Code_INVALID_ARGUMENT);
}

// The callback may destroy the event that it is called by.
TEST(PjrtEvent, CallbacksComeOnceWithoutAnybodyWaiting) {
  PJRT_Client* client = make_client();
  const auto [program, compiled] = compile(client, graph("data/one_op/add.mlirbc"));
  ASSERT_EQ(compiled.text, "");
  struct State {
    PJRT_Event* event = nullptr;
    std::atomic<int> calls{0};
  } state;
  PJRT_Buffer* x =
      upload(client, device_of(client, 0), std::vector<float>(64 * 256, 1.0F), {64, 256}).first;
  auto read = args_of<PJRT_Buffer_ReadyEvent_Args>();
  read.buffer = x;
  TPU_PJRT_OK(PJRT_Buffer_ReadyEvent, read);
  state.event = read.event;
  auto ready = args_of<PJRT_Event_OnReady_Args>();
  ready.event = read.event;
  ready.user_arg = &state;
  ready.callback = [](PJRT_Error* error, void* user) {
    EXPECT_EQ(error, nullptr);
    auto& of = *static_cast<State*>(user);
    auto destroy_args = args_of<PJRT_Event_Destroy_Args>();
    destroy_args.event = of.event;
    EXPECT_EQ(api().PJRT_Event_Destroy(&destroy_args), nullptr);
    ++of.calls;
  };
  TPU_PJRT_OK(PJRT_Event_OnReady, ready);
  for (int i = 0; i < 2000 && state.calls == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(state.calls, 1);
}

// Who asks for an array's event is going to wait: what is over soon is told on his own thread.
TEST(PjrtEvent, WhatIsOverSoonCostsNoChangeOfThreads) {
  PJRT_Client* client = make_client();
  int at_once = 0;
  for (int i = 0; i < 500 && at_once == 0; ++i) {  // the host may be busy
    PJRT_Buffer* x = upload(client, device_of(client, 0), {1.0F, 2.0F}, {2}).first;
    auto read = args_of<PJRT_Buffer_ReadyEvent_Args>();
    read.buffer = x;
    TPU_PJRT_OK(PJRT_Buffer_ReadyEvent, read);
    auto before = args_of<PJRT_Event_IsReady_Args>();
    before.event = read.event;
    TPU_PJRT_OK(PJRT_Event_IsReady, before);
    std::promise<std::thread::id> told;
    auto ready = args_of<PJRT_Event_OnReady_Args>();
    ready.event = read.event;
    ready.user_arg = &told;
    ready.callback = [](PJRT_Error* error, void* user) {
      EXPECT_EQ(error, nullptr);
      static_cast<std::promise<std::thread::id>*>(user)->set_value(std::this_thread::get_id());
    };
    TPU_PJRT_OK(PJRT_Event_OnReady, ready);
    const bool by_caller = told.get_future().get() == std::this_thread::get_id();
    at_once += !before.is_ready && by_caller ? 1 : 0;
    EXPECT_EQ(await(read.event).text, "");
    destroy(x);
  }
  EXPECT_GT(at_once, 0);
}

}  // namespace
}  // namespace tpu::test
