// The compiler of single operations (eager execution), and the launches of what it makes. The
// framework lowers an operation to an HLO module by itself.
#include <algorithm>
#include <map>

#include "abi/executor.h"
#include "answer.hpp"
#include "errors.hpp"
#include "launch.hpp"
#include "lowering_library.hpp"
#include "messages.hpp"
#include "shapes.hpp"

// A program of one core, on any.
struct SE_Executable {
  SE_Executable(std::shared_ptr<const tpu::client::CompiledProgram> compiled, bool has_seed,
                const XLA_Shape& result_shape)
      : program(std::move(compiled)), seeded(has_seed), result(result_shape) {}
  tpu::tensorflow::Program program;
  bool seeded;  ///< the last argument is the seed of the launch
  tpu::tensorflow::OwnedShape result;
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
  return std::make_unique<SE_Executable>(
             client::compile_program(std::as_bytes(std::span(code)),
                                     {.import = {.replicas = 1, .partitions = 1}}),
             seeded.seeded, config.entry_computation_layout.result_layout)
      .release();
}

void deallocate(const SE_DeviceMemoryAllocator& allocator, int device, SE_DeviceMemoryBase memory) {
  if (allocator.deallocate == nullptr) {
    answer("deallocate", nullptr, [&] { System::get().memory().free(address_of(memory)); });
    return;
  }
  TF_Status status;
  allocator.deallocate(allocator.ctx, &memory, device, &status);
  if (status.code != 0) {
    pjrt::CallLog::note("memory is not freed: " + status.message);
  }
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

// One execution: memory of its arguments and results.
class Execution {
 public:
  Execution(const SE_Executable& executable, const SE_ExecutableRunOptions& options)
      : executable_(executable),
        options_(options),
        stream_(options.stream->stream),
        device_(stream_.device()),
        launch_{{device_}, {}, {}} {}

  void run(std::span<SE_ExecutionInput* const> inputs, SE_ExecutionOutput& output);

 private:
  void add_arguments(const SE_ExecutionInput& input);
  void add_results(const XLA_Shape& shape, std::vector<int64_t>& index);
  void give(SE_ExecutionOutput& output) const;
  void free_all();

  const SE_Executable& executable_;
  const SE_ExecutableRunOptions& options_;
  Stream& stream_;
  const int device_;
  Program::Launch launch_;
  // Of arguments that the caller has given away and that nobody else owns; in the end without those
  // that are results.
  std::vector<SE_MaybeOwningDeviceMemory> given_;
  std::map<size_t, SE_DeviceMemoryBase> in_place_;  // by result, the argument that it takes over
  std::vector<SE_DeviceMemoryBase> nodes_;          // of the results, tables of tuples too
  std::vector<SE_DeviceMemoryBase> allocated_;      // those of them that are not in place
  std::vector<XLA_ShapeIndex> aliased_;
};

bool is_unowned(const SE_ExecutionInput& input, const std::vector<int64_t>& index) {
  const XLA_ShapeIndex* const first = behind_layout(input.unowned_indices);
  return std::any_of(first, first + behind_layout(input.unowned_indices_size),
                     [&](const XLA_ShapeIndex& unowned) {
                       return std::equal(unowned.indices, unowned.indices + unowned.count,
                                         index.begin(), index.end());
                     });
}

// What the caller calls owned may be written; where the index is an unowned one, it keeps the
// memory, and expects the result that updates it there.
void Execution::add_arguments(const SE_ExecutionInput& input) {
  const auto& arguments = executable_.program.executable().args;
  for (const Leaf& leaf : leaves_of(input.shape_tree.shape)) {
    const SE_MaybeOwningDeviceMemory& memory = behind_layout(input.shape_tree.buffers)[leaf.node];
    const size_t number = launch_.arguments.size();
    launch_.arguments.push_back(address_of(memory.memory));
    launch_.given_away.push_back(memory.owned);
    const int result = number < arguments.size() ? arguments[number]->donated_to : -1;
    if (memory.owned && !is_unowned(input, leaf.index)) {
      given_.push_back(memory);
    }
    if (memory.owned && result >= 0) {
      in_place_[static_cast<size_t>(result)] = memory.memory;
    }
  }
}

void Execution::add_results(const XLA_Shape& shape, std::vector<int64_t>& index) {
  const size_t own = nodes_.size();
  const auto place = in_place_.find(launch_.results.size());
  if (!is_tuple(shape) && place != in_place_.end()) {
    nodes_.push_back(place->second);
    XLA_ShapeIndex& aliased = aliased_.emplace_back();
    aliased.count = static_cast<int64_t>(index.size());
    std::ranges::copy(index, aliased.indices);
  } else {
    nodes_.push_back(allocate(options_, device_, device_bytes(shape)));
    allocated_.push_back(nodes_.back());
  }
  if (!is_tuple(shape)) {
    launch_.results.push_back(address_of(nodes_[own]));
    return;
  }
  TupleTable table;
  for (int i = 0; i < shape.ntuple_shapes; ++i) {
    const size_t node = nodes_.size();
    index.push_back(i);
    add_results(member(shape, i), index);
    index.pop_back();
    table.members.push_back(address_of(nodes_[node]));
  }
  System::get().memory().set(address_of(nodes_[own]), std::move(table));
}

// Null for none.
template <typename T>
T* new_array(const std::vector<T>& values) {
  if (values.empty()) {
    return nullptr;
  }
  T* const made = new T[values.size()];
  std::ranges::copy(values, made);
  return made;
}

// Memory that the caller has given away goes back to it, to be freed.
void Execution::give(SE_ExecutionOutput& output) const {
  clear_with_layout(output);
  copy_shape(*executable_.result, output.result.on_device_shape);
  behind_layout(output.result.device_ordinal) = device_;
  behind_layout(output.result.count) = nodes_.size();
  behind_layout(output.result.bases) = new_array(nodes_);
  behind_layout(output.to_be_released_size) = static_cast<int>(given_.size());
  behind_layout(output.to_be_released) = new_array(given_);
  behind_layout(output.aliased_indices_size) = static_cast<int>(aliased_.size());
  behind_layout(output.aliased_indices) = new_array(aliased_);
}

void Execution::free_all() {
  for (const SE_DeviceMemoryBase& memory : allocated_) {
    deallocate(options_.allocator, device_, memory);
  }
  for (const SE_MaybeOwningDeviceMemory& memory : given_) {
    deallocate(memory.allocator, device_, memory.memory);
  }
}

void Execution::run(std::span<SE_ExecutionInput* const> inputs, SE_ExecutionOutput& output) {
  try {
    for (const SE_ExecutionInput* input : inputs) {
      add_arguments(*input);
    }
    std::vector<int64_t> index;
    add_results(*executable_.result, index);
    if (executable_.seeded) {
      launch_.seed = static_cast<uint32_t>(options_.rng_seed);
    }
    executable_.program.launch(stream_, launch_);
  } catch (...) {
    free_all();  // nobody else would
    throw;
  }
  std::erase_if(given_, [this](const SE_MaybeOwningDeviceMemory& memory) {
    return std::ranges::any_of(
        in_place_, [&](const auto& place) { return place.second.opaque == memory.memory.opaque; });
  });
  give(output);
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
    clear_with_layout(*result);
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
    Execution(*executable, *options).run(std::span(arguments, static_cast<size_t>(count)), *output);
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
