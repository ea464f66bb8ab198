// The C interface of TensorFlow's TPU library without TensorFlow: memory, copies, streams and one
// operation on cores of the board, and what the calls answer to faults.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <thread>

#include "loaded_library.hpp"

namespace tpu::test {
namespace {

std::vector<float> counted(size_t elements, float first) {
  std::vector<float> values(elements);
  for (size_t i = 0; i < elements; ++i) {
    values[i] = first + static_cast<float>(i);
  }
  return values;
}

TEST(TfInterface, HasEveryName) {
  std::ifstream names(TPU_TF_NAMES);
  int count = 0;
  for (std::string name; std::getline(names, name); ++count) {
    EXPECT_NE(::dlsym(library(), name.c_str()), nullptr) << name;
  }
  EXPECT_EQ(count, 213);  // 212 names of 2.20, and TfTpu_Initialize
}

TEST(TfInterface, ShowsTheCoresOfTheBoard) {
  EXPECT_EQ(TPU_TF(TpuPlatform_VisibleDeviceCount)(nullptr), 8);
  EXPECT_EQ(TPU_TF(TpuTopology_NumCores)(nullptr, kTensorCore), 8);
  EXPECT_EQ(TPU_TF(TpuTopology_NumCores)(nullptr, kEmbeddingV2), 0);
  EXPECT_EQ(TPU_TF(TpuTopology_ChipsPerHost)(nullptr), 4);
  SE_TpuTopology_Core* const core = TPU_TF(TpuTopology_Core)(nullptr, kTensorCore, 1, 1, 0, 0);
  EXPECT_EQ(TPU_TF(TpuCoreLocation_Id)(core), 6);
  int x = 0, y = 0, z = 9;
  TPU_TF(TpuCoreLocation_ChipCoordinates)(core, &x, &y, &z);
  EXPECT_EQ(x + 10 * y + 100 * z, 11);
  EXPECT_EQ(TPU_TF(TpuTopology_CoreForId)(nullptr, kTensorCore, 8), nullptr);
  std::vector<int> assignment(9);
  const Status status;
  TPU_TF(TpuComputationPlacer_AssignDevices)(nullptr, 9, 1, assignment.data(), status);
  EXPECT_EQ(status.code(), kInvalidArgument);
}

TEST(TfInterface, CopiesBetweenHostAndCores) {
  const Core first(1), second(6);
  const std::vector<float> values = counted(300, 1);
  const SE_DeviceMemoryBase source = first.allocate(1200), target = second.allocate(1200);
  to_device(first, values, source);
  EXPECT_EQ(from_device(first, 300, source).first, values);
  const Status status;
  TPU_TF(TpuStream_TpuEnqueueOnDeviceSendRecvLocal)(second.stream, source, target, status);
  EXPECT_EQ(status.code(), kOk) << status.text();
  EXPECT_EQ(from_device(second, 300, target).first, values);
  // The copy is an array of its own.
  to_device(first, counted(300, 7), source);
  EXPECT_EQ(from_device(second, 300, target).first, values);
}

TEST(TfInterface, CopiesBytesInTheOrderOfTheStream) {
  const Core core(2);
  const SE_DeviceMemoryBase memory = core.allocate(16);
  static std::vector<float> values(4, 0.0F);
  const Status status;
  // The callback fills what the copy behind it takes.
  EXPECT_TRUE(TPU_TF(TpuExecutor_HostCallback)(
      core.executor, core.stream,
      [](void*) -> TF_Status* {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        std::ranges::copy(counted(4, 3), values.begin());
        return nullptr;
      },
      nullptr));
  SE_DeviceMemoryBase to = memory;
  TPU_TF(TpuExecutor_MemcpyFromHost)(core.executor, core.stream, &to, values.data(), 16, status);
  EXPECT_EQ(status.code(), kOk) << status.text();
  std::vector<float> read(4);
  TPU_TF(TpuExecutor_MemcpyToHost)(core.executor, core.stream, read.data(), &memory, 16, status);
  core.wait();
  EXPECT_EQ(read, counted(4, 3));
  EXPECT_EQ(from_device(core, 4, memory).first, counted(4, 3));  // as an array of the core
}

SE_Executable* compile(const Core& core, const std::string& module, const XLA_Shape& result,
                       TF_Status* status) {
  XLA_HloModule from{}, passed{};
  from.proto = {module.data(), module.size()};
  from.module_config.has_entry_computation_layout = true;
  from.module_config.entry_computation_layout.result_layout = result;
  TPU_TF(TpuCompiler_RunHloPasses)(nullptr, &from, core.executor, nullptr, &passed, status);
  EXPECT_EQ(TPU_TF(TpuStatus_Code)(status), kOk);
  passed.module_config = from.module_config;
  SE_Executable* executable = nullptr;
  TPU_TF(TpuCompiler_RunBackend)(nullptr, &passed, core.executor, nullptr, &executable, status);
  delete[] passed.proto.bytes;
  return executable;
}

// Runs a program of two arrays. `owned`: the first of them is given away; `unowned`: the caller
// keeps it all the same.
SE_ExecutionOutput run(const Core& core, SE_Executable* executable, const XLA_Shape& shape,
                       std::vector<SE_DeviceMemoryBase> arrays, bool owned, TF_Status* status,
                       XLA_ShapeIndex* unowned = nullptr) {
  std::vector<SE_MaybeOwningDeviceMemory> buffers;
  std::vector<SE_ExecutionInput> inputs(arrays.size());
  std::vector<SE_ExecutionInput*> pointers;
  for (const SE_DeviceMemoryBase& array : arrays) {
    buffers.push_back({array, owned && buffers.empty(), 0, {}});
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    inputs[i].shape_tree = {shape, &buffers[i]};
    if (i == 0 && unowned != nullptr) {
      inputs[i].unowned_indices = unowned;
      inputs[i].unowned_indices_size = 1;
    }
    pointers.push_back(&inputs[i]);
  }
  SE_ExecutableRunOptions options{};
  options.stream = core.stream;
  SE_ExecutionOutput output{};
  TPU_TF(TpuExecutable_ExecuteAsyncOnStream)
  (executable, &options, pointers.data(), static_cast<int>(pointers.size()), &output, status);
  return output;
}

TEST(TfInterface, RunsAnOperationOnAnyCore) {
  const XLA_Shape shape = f32_shape(100);
  SE_Executable* executable = nullptr;
  for (const int ordinal : {0, 5}) {
    const Core core(ordinal);
    const Status status;
    if (executable == nullptr) {
      executable = compile(core, sum_module(100), shape, status);
      ASSERT_EQ(status.code(), kOk) << status.text();
    }
    const SE_DeviceMemoryBase x = core.allocate(400), y = core.allocate(400);
    to_device(core, counted(100, 1), x);
    to_device(core, counted(100, 1000), y);
    const SE_ExecutionOutput output = run(core, executable, shape, {x, y}, true, status);
    ASSERT_EQ(status.code(), kOk) << status.text();
    ASSERT_EQ(output.result.count, 1U);
    ASSERT_EQ(output.to_be_released_size, 1);  // the caller frees what it has given away
    EXPECT_EQ(output.to_be_released[0].memory.opaque, x.opaque);
    const auto sum = from_device(core, 100, output.result.bases[0]).first;
    for (size_t i = 0; i < sum.size(); ++i) {
      ASSERT_EQ(sum[i], static_cast<float>(1001 + 2 * i));
    }
  }
  TPU_TF(TpuExecutable_Free)(executable);
}

int64_t blocks_of(const Core& core) {
  SE_AllocatorStats stats{};
  TPU_TF(TpuExecutor_GetAllocatorStats)(core.executor, &stats);
  return stats.num_allocs;
}

// TensorFlow keeps a variable that it also gives away, and expects the result in its memory.
TEST(TfInterface, AnOperationUpdatesAVariableInItsMemory) {
  const XLA_Shape shape = f32_shape(100);
  const Core core(1);
  const Status status;
  SE_Executable* const executable = compile(core, sum_module(100, true), shape, status);
  ASSERT_EQ(status.code(), kOk) << status.text();
  const SE_DeviceMemoryBase x = core.allocate(400), y = core.allocate(400);
  to_device(core, counted(100, 1), x);
  to_device(core, counted(100, 1000), y);
  const int64_t blocks = blocks_of(core);
  XLA_ShapeIndex root{};
  const SE_ExecutionOutput kept = run(core, executable, shape, {x, y}, true, status, &root);
  ASSERT_EQ(status.code(), kOk) << status.text();
  EXPECT_EQ(kept.result.bases[0].opaque, x.opaque);
  EXPECT_EQ(kept.to_be_released_size, 0);  // it would be freed twice
  ASSERT_EQ(kept.aliased_indices_size, 1);
  EXPECT_EQ(kept.aliased_indices[0].count, 0);
  EXPECT_EQ(from_device(core, 100, x).first[2], 1005.0F);
  // Given away for good: the result has the memory.
  const SE_ExecutionOutput given = run(core, executable, shape, {x, y}, true, status);
  EXPECT_EQ(given.result.bases[0].opaque, x.opaque);
  EXPECT_EQ(given.to_be_released_size, 0);
  EXPECT_EQ(from_device(core, 100, x).first[2], 2007.0F);
  // Not given away: it stays as it was.
  const SE_ExecutionOutput copied = run(core, executable, shape, {x, y}, false, status);
  EXPECT_NE(copied.result.bases[0].opaque, x.opaque);
  EXPECT_EQ(from_device(core, 100, x).first[2], 2007.0F);
  EXPECT_EQ(blocks_of(core), blocks + 1);
  TPU_TF(TpuExecutable_Free)(executable);
}

TEST(TfInterface, AnOperationThatFailsKeepsNoMemory) {
  const XLA_Shape shape = f32_shape(100);
  const Core core(1);
  const Status status, failed;
  SE_Executable* const executable = compile(core, sum_module(100), shape, status);
  const SE_DeviceMemoryBase x = core.allocate(400), unwritten = core.allocate(400);
  to_device(core, counted(100, 1), x);
  const int64_t blocks = blocks_of(core);
  run(core, executable, shape, {x, unwritten}, true, failed);
  EXPECT_EQ(failed.code(), kFailedPrecondition) << failed.text();
  EXPECT_EQ(blocks_of(core), blocks - 1);  // x was given away, and the result is not there
  TPU_TF(TpuExecutable_Free)(executable);
}

TEST(TfInterface, AReadAndACopyTakeWhatWasWritten) {
  const Core core(2), other(3);
  const SE_DeviceMemoryBase memory = core.allocate(400), target = other.allocate(400);
  const Status copied;
  TPU_TF(TpuStream_TpuEnqueueOnDeviceSendRecvLocal)(other.stream, memory, target, copied);
  EXPECT_NE(copied.text().find("nothing has been written there"), std::string::npos);
  to_device(core, counted(100, 1), memory);
  std::vector<float> read(101, -1.0F);
  const Status more, part;
  TPU_TF(TpuExecutor_MemcpyToHost)(core.executor, core.stream, read.data(), &memory, 404, more);
  EXPECT_NE(more.text().find("404 bytes are read, expected at most 400"), std::string::npos)
      << more.text();
  TPU_TF(TpuExecutor_MemcpyToHost)(core.executor, core.stream, read.data(), &memory, 8, part);
  core.wait();
  EXPECT_EQ(read[1], 2.0F);
  EXPECT_EQ(read[2], -1.0F);
}

TEST(TfInterface, TakesMemoryOfTheCoreForWhatIsWritten) {
  const Core core(3);
  SE_AllocatorStats before{}, after{};
  TPU_TF(TpuExecutor_GetAllocatorStats)(core.executor, &before);
  constexpr size_t kElements = 1 << 18;
  SE_DeviceMemoryBase memory = core.allocate(4 * kElements);
  to_device(core, std::vector<float>(kElements, 2.0F), memory);
  core.wait();
  TPU_TF(TpuExecutor_GetAllocatorStats)(core.executor, &after);
  EXPECT_EQ(after.num_allocs, before.num_allocs + 1);
  EXPECT_EQ(after.bytes_in_use, before.bytes_in_use + int64_t{4 * kElements});
  TPU_TF(TpuExecutor_Deallocate)(core.executor, &memory);
  TPU_TF(TpuExecutor_GetAllocatorStats)(core.executor, &after);
  EXPECT_EQ(after.bytes_in_use, before.bytes_in_use);
}

TEST(TfInterface, SaysWhatIsWrong) {
  const Core core(0);
  const SE_DeviceMemoryBase memory = core.allocate(400);
  EXPECT_NE(from_device(core, 100, memory).second.find("nothing has been written there"),
            std::string::npos);
  to_device(core, counted(100, 1), memory);
  EXPECT_NE(from_device(core, 99, memory).second.find("396 bytes"), std::string::npos);
  const SE_DeviceMemoryBase unknown{reinterpret_cast<void*>(0x1234), 400, 0};
  EXPECT_NE(from_device(core, 100, unknown).second.find("0x1234"), std::string::npos);

  const XLA_Shape shape = f32_shape(100);
  const Status status;
  std::string damaged = sum_module(100);
  damaged.resize(damaged.size() - 9);
  EXPECT_EQ(compile(core, damaged, shape, status), nullptr);
  EXPECT_EQ(status.code(), kInvalidArgument) << status.text();
  const Status few;
  SE_Executable* const executable = compile(core, sum_module(100), shape, few);
  ASSERT_EQ(few.code(), kOk) << few.text();
  run(core, executable, shape, {memory}, false, few);
  EXPECT_EQ(few.code(), kInvalidArgument);
  EXPECT_NE(few.text().find("found 1 arguments, expected 2"), std::string::npos) << few.text();
  EXPECT_EQ(from_device(core, 100, memory).first, counted(100, 1));  // and goes on
}

// TensorFlow ends the process when a compilation fails without a program. Its status gets the error
// when the program has been taken; with a version that does not look there, the launch has it.
TEST(TfInterface, AFailedCompilationFailsItsLaunches) {
  const Core core(0);
  const Status status;
  XLA_TpuProgram** programs = nullptr;
  size_t count = 0;
  TPU_TF(TpuCompile_CompileAndBuild)({"", 0}, nullptr, &programs, &count, status);
  ASSERT_EQ(status.code(), kOk) << status.text();
  ASSERT_EQ(count, 1U);
  TpuSerializedProto info{};
  TPU_TF(TpuProgram_GetExecutableInfo)(programs[0], &info, status);
  EXPECT_EQ(std::string(info.bytes, info.size), "\x12\x02\x10\x0d\x1a\x02\x10\x0d");  // two tuples
  delete[] info.bytes;
  XLA_TpuProgram* const program = programs[0];
  TPU_TF(TpuProgram_FreeArray)(programs);
  EXPECT_EQ(status.code(), kFailedPrecondition);
  EXPECT_NE(status.text().find(kNoLowering), std::string::npos) << status.text();
  TpuExecutable_LoadProgramAndEnqueueToStream_Params params{};
  params.program = program;
  params.stream = core.stream;
  const Status launched;
  params.status = launched;
  TPU_TF(TpuExecutable_LoadProgramAndEnqueueToStream)(&params);
  EXPECT_EQ(launched.text(), status.text());
  const Status destroyed;
  TPU_TF(TpuProgram_UnloadAndDestroy)(program, destroyed);
  EXPECT_EQ(destroyed.code(), kOk);
}

// Its numbers are functions of a seed, which the lowering library makes them.
TEST(TfInterface, RandomNumbersNeedTheLoweringLibrary) {
  const Status status;
  spec::ProtoWriter random;
  random.message(3, [&] { random.message(2, [&] { random.text(2, "rng"); }); });
  EXPECT_EQ(compile(Core(0), random.take(), f32_shape(100), status), nullptr);
  EXPECT_EQ(status.code(), kFailedPrecondition);
  EXPECT_NE(status.text().find(kNoLowering), std::string::npos) << status.text();
}

TEST(TfInterface, ProfilesWhatTheBoardDoes) {
  const Core core(4);
  const XLA_Shape shape = f32_shape(100);
  const Status status;
  SE_Executable* const executable = compile(core, sum_module(100), shape, status);
  const SE_DeviceMemoryBase x = core.allocate(400);
  to_device(core, counted(100, 1), x);
  TpuProfiler* profiler = nullptr;
  TPU_TF(TpuProfiler_Create)(&profiler, status);
  TPU_TF(TpuProfiler_Start)(profiler, status);
  run(core, executable, shape, {x, x}, false, status);
  core.wait();
  TPU_TF(TpuProfiler_Stop)(profiler, status);
  ASSERT_EQ(status.code(), kOk) << status.text();
  size_t size = 0;
  TPU_TF(TpuProfiler_CollectData)(profiler, status, nullptr, &size);
  std::vector<uint8_t> space(size);
  TPU_TF(TpuProfiler_CollectData)(profiler, status, space.data(), &size);
  ASSERT_EQ(status.code(), kOk) << status.text();
  const std::string text(space.begin(), space.end());
  EXPECT_NE(text.find("/device:TPU:4"), std::string::npos);
  EXPECT_NE(text.find("sum"), std::string::npos);
  TPU_TF(TpuProfiler_CollectData)(profiler, status, nullptr, &size);
  EXPECT_EQ(size, 0U);  // it was taken
  TPU_TF(TpuProfiler_Stop)(profiler, status);
  EXPECT_EQ(status.code(), kFailedPrecondition);
  TPU_TF(TpuProfiler_Start)(profiler, status);
  TPU_TF(TpuProfiler_Destroy)(profiler);  // ends it
  TPU_TF(TpuProfiler_Create)(&profiler, status);
  const Status again;
  TPU_TF(TpuProfiler_Start)(profiler, again);
  EXPECT_EQ(again.code(), kOk) << again.text();
  TPU_TF(TpuProfiler_Destroy)(profiler);
}

TEST(TfInterface, GivesOutCoresInTurn) {
  for (const int cores : {1, 4, 16}) {
    TfTpu_OrdinalSelector* selector = nullptr;
    TPU_TF(TfTpuOrdinalSelector_Create)(&selector, cores);
    int64_t request = -1, ordinal = -1;
    TPU_TF(TfTpuOrdinalSelector_GetOrdinal)(selector, std::nullopt, &request, &ordinal);
    EXPECT_EQ(ordinal, 0);
    TPU_TF(TfTpuOrdinalSelector_GetOrdinal)(selector, 7, &request, &ordinal);
    EXPECT_EQ(ordinal, cores == 1 ? 7 : cores == 4 ? 4 : 0);
    TPU_TF(TfTpuOrdinalSelector_Destroy)(selector);
  }
}

TEST(TfInterface, AnAllocationThatCannotBeLeavesTheCoreUsable) {
  const Core core(2);
  for (const uint64_t bytes : {uint64_t{1} << 60, ~uint64_t{0}}) {
    EXPECT_EQ(core.allocate(bytes).opaque, nullptr) << bytes;
  }
  const SE_DeviceMemoryBase memory = core.allocate(400);
  to_device(core, counted(100, 1), memory);
  EXPECT_EQ(from_device(core, 100, memory).first, counted(100, 1));
}

TEST(TfInterface, ALiteralThatIsTooSmallIsNotWritten) {
  const Core core(0);
  const SE_DeviceMemoryBase memory = core.allocate(400);
  to_device(core, counted(100, 1), memory);
  std::vector<float> values(100, -1.0F);
  Transfer transfer(values, memory);
  transfer.size = 396;
  const Status status;
  TPU_TF(TpuTransferManager_TransferLiteralToDeviceAsync)
  (nullptr, core.stream, &transfer.literal, &transfer.buffer, status);
  EXPECT_EQ(status.text(), "a literal has 396 bytes: expected 400");
  std::string error;
  TPU_TF(TpuTransferManager_TransferLiteralFromDevice)
  (
      nullptr, core.stream, &transfer.buffer, &transfer.literal,
      [](void* context, TF_Status* given) {
        *static_cast<std::string*>(context) = TPU_TF(TpuStatus_Message)(given);
        TPU_TF(TpuStatus_Free)(given);
      },
      &error);
  core.wait();
  EXPECT_EQ(error, "a literal has 396 bytes: expected 400");
  EXPECT_EQ(values, std::vector<float>(100, -1.0F));
}

// TensorFlow takes the bytes as words.
TEST(TfInterface, MakesWordsOfAnInfeed) {
  constexpr int kU8 = 6;
  std::vector<uint8_t> bytes{1, 2, 3, 4, 5};
  auto* data = reinterpret_cast<char*>(bytes.data());
  size_t have = bytes.size();
  XLA_Literal literal{};
  literal.shape = f32_shape(5);
  literal.shape.element_type = kU8;
  literal.buffers = &data;
  literal.sizes = &have;
  literal.count = 1;
  XLA_Shape infeed{};
  TPU_TF(TpuTransferManager_GetInfeedLayout)(&literal.shape, &infeed);
  EXPECT_EQ(infeed.element_type, kU8);
  EXPECT_EQ(infeed.dimensions.inlined[0], 5);
  char** buffers = nullptr;
  int64_t* sizes = nullptr;
  int64_t count = 0;
  const Status status;
  TPU_TF(TpuTransferManager_LinearizeToBuffers)
  (nullptr, &literal, &infeed, &buffers, &sizes, &count, status);
  ASSERT_EQ(status.code(), kOk) << status.text();
  ASSERT_EQ(count, 1);
  EXPECT_EQ(sizes[0], 8);
  EXPECT_EQ(std::string(buffers[0], 8), std::string("\1\2\3\4\5\0\0\0", 8));
  TPU_TF(TpuTransferManager_FreeBuffers)(buffers, sizes, count);
  // With an error they are empty: TensorFlow reads them before it looks at the status.
  have = 4;
  const Status failed;
  TPU_TF(TpuTransferManager_LinearizeToBuffers)
  (nullptr, &literal, &infeed, &buffers, &sizes, &count, failed);
  EXPECT_EQ(failed.text(), "a literal has 4 bytes: expected 5");
  EXPECT_EQ(buffers, nullptr);
  EXPECT_EQ(sizes, nullptr);
  EXPECT_EQ(count, 0);
}

TEST(TfInterface, AnInitializationEndsTheWaitForAnOutfeed) {
  const Core core(5);
  std::vector<float> values(4);
  Transfer transfer(values, {});
  XLA_Shape shape = f32_shape(4);
  const Status waited;
  std::atomic<bool> ended = false;
  std::thread waits([&] {
    TPU_TF(TpuTransferManager_TransferLiteralFromOutfeed)
    (nullptr, core.executor, &shape, &transfer.literal, waited);
    ended = true;
  });
  char* output = nullptr;
  size_t size = 0;
  const Status status;
  ConfigureDistributedTpuOp_DoWork_Params params{};
  params.num_cores_per_host_size = 1;
  params.host_config_output = &output;
  params.host_config_output_size = &size;
  params.status = status;
  while (!ended) {  // the first one may come before the wait
    TPU_TF(ConfigureDistributedTpuOp_DoWork)(&params);
    TPU_TF(TpuConfigurationApi_FreeCharArray)(output);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  waits.join();
  EXPECT_EQ(waited.text(), "the TPU system was initialized again");
}

// Members of tuples lie behind each other, with all that a layout has in this version.
TEST(TfInterface, CopiesShapes) {
  constexpr int kTuple = 13;
  std::vector<XLA_Shape> inner(3);
  for (int64_t i = 0; i < 3; ++i) {
    inner[static_cast<size_t>(i)] = f32_shape(5 + i);
  }
  std::vector<int64_t> dims{2, 3, 4, 5, 6, 7, 8}, order{6, 5, 4, 3, 2, 1, 0};
  bool dynamic[7] = {false, true};
  inner[1].dimensions = {{dims.data()}, 7};
  inner[1].dynamic_dimensions.size = 7;
  inner[1].dynamic_dimensions.heap = dynamic;
  inner[1].has_layout = true;
  inner[1].layout = {};
  inner[1].layout.minor_to_major = {{order.data()}, 7};
  inner[1].layout.tiles.size = 1;
  inner[1].layout.element_size_in_bits = 32;
  inner[1].layout.memory_space = 5;
  inner[1].layout.tail_padding_alignment_in_elements = 16;
  std::vector<XLA_Shape> outer(2);
  outer[0] = outer[1] = {};
  outer[0].element_type = kTuple;
  outer[0].tuple_shapes = inner.data();
  outer[0].ntuple_shapes = 3;
  outer[1] = f32_shape(9);
  XLA_Shape shape{};
  shape.element_type = kTuple;
  shape.tuple_shapes = outer.data();
  shape.ntuple_shapes = 2;
  XLA_Shape copy;
  std::memset(static_cast<void*>(&copy), 0x55, sizeof copy);
  const Status status;
  TPU_TF(XlaShapeToTpuPaddedShape)(&shape, &copy, status);
  ASSERT_EQ(status.code(), kOk) << status.text();
  ASSERT_EQ(copy.ntuple_shapes, 2);
  EXPECT_EQ(copy.tuple_shapes[1].dimensions.inlined[0], 9);
  EXPECT_EQ(copy.tuple_shapes[1].layout.tail_padding_alignment_in_elements, 1);
  const XLA_Shape& members = copy.tuple_shapes[0];
  ASSERT_EQ(members.ntuple_shapes, 3);
  EXPECT_EQ(members.tuple_shapes[0].dimensions.inlined[0], 5);
  EXPECT_EQ(members.tuple_shapes[2].dimensions.inlined[0], 7);
  const XLA_Shape& given = members.tuple_shapes[1];
  ASSERT_EQ(given.dimensions.size, 7);
  EXPECT_NE(given.dimensions.heap, dims.data());
  EXPECT_EQ(std::vector<int64_t>(given.dimensions.heap, given.dimensions.heap + 7), dims);
  EXPECT_TRUE(given.dynamic_dimensions.heap[1]);
  EXPECT_EQ(given.layout.minor_to_major.heap[0], 6);
  EXPECT_EQ(given.layout.tiles.size, 0);
#ifdef TPU_TF_INTERFACE_2_19
  EXPECT_EQ(given.layout.dim_level_types.size, 0);
  EXPECT_EQ(given.layout.dim_ordered.size, 0);
#endif
  EXPECT_EQ(given.layout.element_size_in_bits, 32);
  EXPECT_EQ(given.layout.memory_space, 5);
  EXPECT_EQ(given.layout.tail_padding_alignment_in_elements, 16);
  for (const int64_t* list : {given.dimensions.heap, given.layout.minor_to_major.heap}) {
    delete[] list;
  }
  delete[] given.dynamic_dimensions.heap;
  delete[] members.tuple_shapes;
  delete[] copy.tuple_shapes;
  EXPECT_EQ(TPU_TF(TpuCompiler_ShapeSize)(nullptr, &outer[0]), 24);
}

// In a process of its own, since the board file is read once.
TEST(TfInterfaceDeathTest, ABoardFileThatCannotBeReadIsNoTpuAndALine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto look = [] {
    ::setenv("TPUBOARD_BOARD", "/no/such/board.toml", 1);
    const int found = static_cast<int>(TPU_TF(TpuPlatform_VisibleDeviceCount)(nullptr)) +
                      TPU_TF(TpuTopology_NumCores)(nullptr, kTensorCore) +
                      TPU_TF(TpuTopology_ChipsPerHost)(nullptr);
    std::exit(found);
  };
  EXPECT_EXIT(look(), testing::ExitedWithCode(0), "finds no TPU: .*/no/such/board.toml");
}

TEST(TfInterface, RefusesByName) {
  using ByStatus = void(SE_StreamExecutor*, int32_t, const uint8_t*, int64_t, TF_Status*);
  const Status infeed;
  function<ByStatus>("TpuExecutor_EnqueueInfeed")(nullptr, 0, nullptr, 0, infeed);
  EXPECT_EQ(infeed.code(), kUnimplemented);
  EXPECT_EQ(infeed.text(), "TpuExecutor_EnqueueInfeed is not supported");

  struct {
    uint64_t before[11];
    TF_Status* status;
  } params{};
  const Status size;
  params.status = size;
  function<void(void*)>("TpuEmbeddingEngine_DedupDataSizeComputation")(&params);
  EXPECT_EQ(size.code(), kUnimplemented);
  EXPECT_EQ(size.text(), "TpuEmbeddingEngine_DedupDataSizeComputation is not supported");
}

// TensorFlow does not look at the status of the first one, and reads its results.
TEST(TfInterface, GivesTheErrorOfEmbeddingsWhereItIsTaken) {
  size_t size = 0;
  char* config = nullptr;
  const Status partitioned, configured;
  TpuEmbeddingEngine_ExecutePartitioner_Params first{};
  first.common_config_size = &size;
  first.common_config = &config;
  first.status = partitioned;
  TPU_TF(TpuEmbeddingEngine_ExecutePartitioner)(&first);
  EXPECT_EQ(partitioned.code(), 0);
  EXPECT_EQ(std::string(config, size), "tpuboard");
  TPU_TF(TpuConfigurationApi_FreeCharArray)(config);
  TpuEmbeddingEngine_ConfigureHost_Params second{};
  second.network_config_size = &size;
  second.network_config = &config;
  second.status = configured;
  TPU_TF(TpuEmbeddingEngine_ConfigureHost)(&second);
  EXPECT_NE(configured.code(), 0);
  EXPECT_NE(configured.text().find(kNoLowering), std::string::npos);
  TPU_TF(TpuConfigurationApi_FreeCharArray)(config);

  bool initialized = true;
  TpuEmbeddingEngine_IsInitialized_Params third{};
  third.is_tpu_embedding_initialized = &initialized;
  TPU_TF(TpuEmbeddingEngine_IsInitialized)(&third);
  EXPECT_FALSE(initialized);
  const Status read;
  TpuEmbeddingEngineParameters parameters{};
  TPU_TF(TpuEmbeddingEngine_ReadParameters)(&parameters, read);
  EXPECT_NE(read.text().find("TPUEmbedding was not configured"), std::string::npos);
}

}  // namespace
}  // namespace tpu::test
