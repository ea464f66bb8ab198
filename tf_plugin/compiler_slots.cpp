// The compiler of single operations (eager execution), and the launches of what it makes. The
// framework lowers an operation to an HLO module by itself.
#include "abi/executor.h"
#include "answer.hpp"
#include "errors.hpp"
#include "launch.hpp"
#include "lowering_library.hpp"
#include "messages.hpp"
#include "shapes.hpp"

// A program of one core, on any.
struct SE_Executable {
  SE_Executable(std::shared_ptr<const tpu::client::CompiledProgram> compiled, bool has_seed)
      : program(std::move(compiled)), seeded(has_seed) {}
  tpu::tensorflow::Program program;
  bool seeded;  ///< the last argument is the seed of the launch
  XLA_Shape result{};
};

namespace tpu::tensorflow {
namespace {

char compiler_tag;

// An instruction has the opcode `rng`: field 2, three bytes. Other bytes that are the same cost a
// look at the module.
bool draws_random_numbers(std::string_view module) {
  return module.find("\x12\x03rng") != std::string_view::npos;
}

SE_Executable* compile(const XLA_HloModule& module) {
  const XLA_HloModuleConfig& config = module.module_config;
  if (config.replica_count > 1 || config.num_partitions > 1) {
    pjrt::throw_unimplemented(
        "an operation on several cores at a time: expected one replica and "
        "one partition; use tf.distribute.TPUStrategy");
  }
  if (!config.has_entry_computation_layout) {
    pjrt::throw_invalid("the HLO module comes without the shapes of its results");
  }
  const auto working = System::get().runtime().host_work();
  std::string_view code = view_of(module.proto);
  Lowered seeded;
  if (draws_random_numbers(code)) {
    seeded = seed(code);
    code = seeded.hlo;
  }
  auto executable = std::make_unique<SE_Executable>(
      client::compile_program(std::as_bytes(std::span(code)),
                              {.import = {.replicas = 1, .partitions = 1}}),
      seeded.seeded);
  copy_shape(config.entry_computation_layout.result_layout, executable->result);
  return executable.release();
}

SE_DeviceMemoryBase allocate(const SE_ExecutableRunOptions& options, int device, uint64_t bytes) {
  if (options.allocator.allocate == nullptr) {
    return System::get().memory().allocate(device, bytes);
  }
  SE_ScopedDeviceMemory memory{};
  TF_Status status;
  options.allocator.allocate(options.allocator.ctx, device, bytes, true, 0, &memory, &status);
  if (status.code != 0) {
    throw pjrt::error_of(static_cast<PJRT_Error_Code>(status.code), status.message.data(),
                         status.message.size());
  }
  return memory.wrapped;
}

// The memory of the results, tables of tuples too.
void allocate_results(const SE_ExecutableRunOptions& options, int device, const XLA_Shape& shape,
                      std::vector<SE_DeviceMemoryBase>& nodes, std::vector<uint64_t>& arrays) {
  const size_t own = nodes.size();
  nodes.push_back(allocate(options, device, device_bytes(shape)));
  if (!is_tuple(shape)) {
    arrays.push_back(address_of(nodes[own]));
    return;
  }
  TupleTable table;
  for (int i = 0; i < shape.ntuple_shapes; ++i) {
    const size_t member = nodes.size();
    allocate_results(options, device, shape.tuple_shapes[i], nodes, arrays);
    table.members.push_back(address_of(nodes[member]));
  }
  System::get().memory().set(address_of(nodes[own]), std::move(table));
}

// Memory that the caller has given away goes back to it, to be freed.
void give_output(int device, const XLA_Shape& shape, const std::vector<SE_DeviceMemoryBase>& nodes,
                 const std::vector<SE_MaybeOwningDeviceMemory>& released,
                 SE_ExecutionOutput& output) {
  output = {};
  copy_shape(shape, output.result.on_device_shape);
  output.result.device_ordinal = device;
  output.result.count = nodes.size();
  output.result.bases = new SE_DeviceMemoryBase[nodes.size()];
  std::ranges::copy(nodes, output.result.bases);
  output.to_be_released_size = static_cast<int>(released.size());
  output.to_be_released = new SE_MaybeOwningDeviceMemory[released.size()];
  std::ranges::copy(released, output.to_be_released);
}

void execute(const SE_Executable& executable, const SE_ExecutableRunOptions& options,
             std::span<SE_ExecutionInput* const> inputs, SE_ExecutionOutput& output) {
  Stream& stream = options.stream->stream;
  const int device = stream.device();
  Program::Launch launch{{device}, {}, {}};
  std::vector<SE_MaybeOwningDeviceMemory> released;
  for (const SE_ExecutionInput* input : inputs) {
    for (const Leaf& leaf : leaves_of(input->shape_tree.shape)) {
      const SE_MaybeOwningDeviceMemory& memory = input->shape_tree.buffers[leaf.node];
      launch.arguments.push_back(address_of(memory.memory));
      launch.given_away.push_back(memory.owned);
      if (memory.owned) {
        released.push_back(memory);
      }
    }
  }
  std::vector<SE_DeviceMemoryBase> nodes;
  allocate_results(options, device, executable.result, nodes, launch.results);
  if (executable.seeded) {
    launch.seed = static_cast<uint32_t>(options.rng_seed);
  }
  executable.program.launch(stream, launch);
  give_output(device, executable.result, nodes, released, output);
}

}  // namespace
}  // namespace tpu::tensorflow

using namespace tpu::tensorflow;  // NOLINT: the slots below are all of this file

extern "C" {

Tpu_Compiler* TpuCompiler_New() { return reinterpret_cast<Tpu_Compiler*>(&compiler_tag); }

void TpuCompiler_Free(Tpu_Compiler* /*compiler*/) {}

// All passes are those of our compiler, in RunBackend.
void TpuCompiler_RunHloPasses(Tpu_Compiler* /*compiler*/, XLA_HloModule* module,
                              SE_StreamExecutor* /*executor*/,
                              SE_DeviceMemoryAllocator* /*allocator*/, XLA_HloModule* result,
                              TF_Status* status) {
  answer(__func__, status, [&] {
    *result = {};
    result->proto = new_message(view_of(module->proto));
  });
}

void TpuCompiler_RunBackend(Tpu_Compiler* /*compiler*/, XLA_HloModule* module,
                            SE_StreamExecutor* /*executor*/,
                            SE_DeviceMemoryAllocator* /*allocator*/, SE_Executable** result,
                            TF_Status* status) {
  *result = nullptr;
  answer(__func__, status, [&] { *result = compile(*module); });
}

void TpuExecutable_ExecuteAsyncOnStream(SE_Executable* executable, SE_ExecutableRunOptions* options,
                                        SE_ExecutionInput** arguments, int count,
                                        SE_ExecutionOutput* output, TF_Status* status) {
  answer(__func__, status, [&] {
    execute(*executable, *options, std::span(arguments, static_cast<size_t>(count)), *output);
  });
}

void TpuExecutable_FreeXlaShapeIndexArray(XLA_ShapeIndex* array) { delete[] array; }

void TpuExecutable_FreeMaybeOwningDeviceMemoryArray(SE_MaybeOwningDeviceMemory* array) {
  delete[] array;
}

void TpuExecutable_Fingerprint(SE_Executable* executable, const char** fingerprint, size_t* size) {
  const std::string& text = executable->program.compiled().fingerprint;
  *fingerprint = text.data();
  *size = text.size();
}

void TpuExecutable_Free(SE_Executable* executable) { delete executable; }

}  // extern "C"
