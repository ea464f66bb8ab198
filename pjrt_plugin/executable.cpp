// What executables say about themselves.
#include <algorithm>
#include <cstring>

#include "buffers.hpp"
#include "calls.hpp"
#include "errors.hpp"

namespace tpu::pjrt {
namespace {

using Tensors = std::vector<std::unique_ptr<exe::TensorT>>;

// Dimensions of the array in front of the framework's own: the replicas, where a program has
// several, unless all of them have the same (compiler/import/replicas.hpp).
size_t dims_in_front(const exe::TensorT& tensor, int64_t replicas) {
  return replicas > 1 && !tensor.replicated ? 1 : 0;
}

// What the framework counts in the dimensions of its own array. Ours has them in the order in which
// they lie in memory.
driver::Shape of_framework(const driver::Shape& counts, const exe::TensorT& tensor,
                           int64_t replicas) {
  driver::Shape out = counts;
  for (size_t k = 0; k < tensor.layout.size(); ++k) {
    out[tensor.layout[k]] = counts[k];
  }
  out.erase(out.begin(), out.begin() + static_cast<ptrdiff_t>(dims_in_front(tensor, replicas)));
  return out;
}

// Null: the array is as the framework's, row-major.
std::shared_ptr<const ArrayForm> form_of(const exe::TensorT& tensor, int64_t replicas) {
  if (tensor.layout.empty() && replicas == 1) {
    return nullptr;
  }
  ArrayForm form{of_framework(tensor.local_dims, tensor, replicas), {}};
  const size_t first = dims_in_front(tensor, replicas);
  for (size_t k = tensor.local_dims.size(); k-- > first;) {
    const size_t dim = tensor.layout.empty() ? k : tensor.layout[k];
    form.minor_to_major.push_back(static_cast<int64_t>(dim - first));
  }
  return std::make_shared<const ArrayForm>(std::move(form));
}

// How devices hold the framework's array. Replicas count as copies: shardings say no more.
driver::Layout layout_of(const exe::TensorT& tensor, const BuildOptions& build) {
  driver::Layout layout;
  layout.local = of_framework(tensor.local_dims, tensor, build.replicas);
  const size_t rank = tensor.local_dims.size();
  const auto devices = static_cast<size_t>(build.replicas * build.partitions);
  for (size_t d = 0; d < devices; ++d) {
    const auto first = tensor.offsets.begin() + static_cast<ptrdiff_t>(d * rank);
    layout.offsets.push_back(of_framework(
        driver::Shape(first, first + static_cast<ptrdiff_t>(rank)), tensor, build.replicas));
  }
  const std::vector<uint16_t> terms = exe::terms_of(tensor);
  layout.terms.assign(terms.begin(), terms.end());
  layout.replicated =
      build.replicas == 1
          ? tensor.replicated
          : layout.terms.empty() &&
                layout.local == of_framework(tensor.global_dims, tensor, build.replicas);
  return layout;
}

std::vector<std::string> shardings_of(const Tensors& tensors, const BuildOptions& build) {
  std::vector<std::string> shardings;
  for (const auto& tensor : tensors) {
    shardings.push_back(op_sharding(layout_of(*tensor, build),
                                    of_framework(tensor->global_dims, *tensor, build.replicas)));
  }
  return shardings;
}

bool is_empty(const std::unique_ptr<exe::TensorT>& tensor) {
  return std::find(tensor->global_dims.begin(), tensor->global_dims.end(), 0) !=
         tensor->global_dims.end();
}

// Parts without elements cannot be told by where they lie in the array: the program says it.
void add_empty_shardings(const client::CompiledProgram& program, const BuildOptions& build,
                         std::vector<std::string>& shardings) {
  const exe::ExecutableT& exe = *program.executable;
  if (build.partitions == 1 || std::none_of(exe.args.begin(), exe.args.end(), is_empty)) {
    return;
  }
  const auto parts = client::argument_parts(program);
  for (size_t i = 0; i < exe.args.size(); ++i) {
    if (!is_empty(exe.args[i]) || parts.at(i).empty()) {
      continue;
    }
    driver::Layout layout = layout_of(*exe.args[i], build);
    layout.local.assign(layout.local.size(), 1);
    for (size_t p = 0; p < layout.offsets.size(); ++p) {
      layout.offsets[p] = of_framework(parts[i].at(p), *exe.args[i], build.replicas);
    }
    driver::Shape counts = layout.local;
    for (const driver::Shape& part : layout.offsets) {
      for (size_t d = 0; d < part.size(); ++d) {
        counts[d] = std::max(counts[d], part[d] + 1);
      }
    }
    layout.replicated = counts == layout.local && layout.terms.empty();
    shardings[i] = op_sharding(layout, counts);
  }
}

void add_pointers(const std::vector<std::string>& shardings, std::vector<const char*>& data,
                  std::vector<size_t>& sizes) {
  for (const std::string& sharding : shardings) {
    data.push_back(sharding.data());
    sizes.push_back(sharding.size());
  }
}

void add_layouts(ExecutableInfo& info, const exe::ExecutableT& exe) {
  info.owned_layouts.reserve(exe.results.size() + exe.args.size());  // pointers stay
  const auto add = [&info](const Tensors& tensors, auto& forms,
                           std::vector<PJRT_Layouts_MemoryLayout*>& to) {
    for (const auto& tensor : tensors) {
      forms.push_back(form_of(*tensor, info.array_build().replicas));
      info.owned_layouts.push_back(layout_of(forms.back().get(), tensor->local_dims.size()));
      to.push_back(&info.owned_layouts.back());
    }
  };
  add(exe.results, info.output_forms, info.output_layouts);
  add(exe.args, info.parameter_forms, info.parameter_layouts);
}

// Every array has an entry for each replica, or is the same on all.
void check_replicas(const Tensors& tensors, int64_t replicas) {
  const auto counts = [&](const auto& tensor) {
    return dims_in_front(*tensor, replicas) == 0 ||
           (!tensor->global_dims.empty() && tensor->global_dims[0] == replicas &&
            tensor->local_dims[0] == 1 && (tensor->layout.empty() || tensor->layout[0] == 0));
  };
  if (replicas > 1 && !std::all_of(tensors.begin(), tensors.end(), counts)) {
    throw_invalid("compile options: num_replicas is " + std::to_string(replicas) +
                  ", the program was compiled for another number of replicas");
  }
}

void check_options(const BuildOptions& build, bool alone, const exe::ExecutableT& program) {
  const int64_t devices = build.replicas * build.partitions;
  if (build.replicas < 1 || build.partitions < 1) {
    throw_invalid("compile options: num_replicas and num_partitions must be 1 or more");
  }
  if (devices != program.partitions && !alone) {
    throw_invalid("compile options: " + std::to_string(devices) +
                  " devices (num_replicas * num_partitions), the program is for " +
                  std::to_string(program.partitions));
  }
  if (!alone) {
    check_replicas(program.args, build.replicas);
    check_replicas(program.results, build.replicas);
  }
  if (!build.devices.empty() && static_cast<int64_t>(build.devices.size()) != devices) {
    throw_invalid("compile options: the device assignment has " +
                  std::to_string(build.devices.size()) + " devices, the program " +
                  std::to_string(devices));
  }
}

const ExecutableInfo& info_of(const PJRT_Executable* executable) {
  return *need(executable, "executable").info;
}

uint64_t bytes_of(const std::vector<std::unique_ptr<exe::SlotT>>& slots, exe::SlotKind kind) {
  uint64_t bytes = 0;
  for (const auto& slot : slots) {
    bytes += slot->kind == kind ? slot->bytes : 0;
  }
  return bytes;
}

// Of arrays in the host's memory. They are in HBM too while the program runs.
int64_t host_bytes(const exe::ExecutableT& exe, const Tensors& tensors) {
  uint64_t bytes = 0;
  for (const auto& tensor : tensors) {
    bytes += tensor->memory == exe::MemoryKind::device ? 0 : exe.slots[tensor->slot]->bytes;
  }
  return static_cast<int64_t>(bytes);
}

// Of arrays that the program puts into the host's memory while it runs; an array that a loop puts
// there entry by entry counts with one entry.
int64_t host_temporary_bytes(const exe::ExecutableT& exe) {
  uint64_t bytes = 0;
  for (const auto& call : exe.host_calls) {
    if (call->memory && call->to_host && !call->index) {
      bytes += driver::byte_count(static_cast<driver::DType>(call->elem), call->dims);
    }
  }
  return static_cast<int64_t>(bytes);
}

struct ResultBytes {
  uint64_t all = 0;
  uint64_t donated = 0;  // of them in the memory of arguments
};

ResultBytes result_bytes(const exe::ExecutableT& program) {
  ResultBytes bytes;
  for (const auto& result : program.results) {
    const exe::SlotT& slot = *program.slots[result->slot];
    bytes.all += slot.bytes;
    bytes.donated += slot.kind == exe::SlotKind::argument ? slot.bytes : 0;
  }
  return bytes;
}

}  // namespace

BuildOptions ExecutableInfo::array_build() const {
  BuildOptions of_arrays = build;
  of_arrays.replicas = alone ? 1 : build.replicas;
  return of_arrays;
}

std::shared_ptr<const ExecutableInfo> executable_info(
    std::shared_ptr<const client::CompiledProgram> program, std::string build_bytes) {
  auto info = std::make_shared<ExecutableInfo>();
  info->build = read_build_options(build_bytes);
  info->build_bytes = std::move(build_bytes);
  info->program = std::move(program);
  const exe::ExecutableT& exe = *info->program->executable;
  info->alone = info->build.replicas > 1 && info->build.partitions == 1 && exe.partitions == 1;
  check_options(info->build, info->alone, exe);
  const BuildOptions build = info->array_build();
  for (const auto& result : exe.results) {
    const driver::Shape dims = of_framework(result->local_dims, *result, build.replicas);
    info->output_types.push_back(buffer_type(result->elem));
    info->output_dims.insert(info->output_dims.end(), dims.begin(), dims.end());
    info->output_ranks.push_back(dims.size());
    info->memory_kinds.push_back(memory_kind_name(result->memory));
    info->memory_kind_sizes.push_back(std::strlen(info->memory_kinds.back()));
  }
  info->output_shardings = shardings_of(exe.results, build);
  add_pointers(info->output_shardings, info->output_sharding_data, info->output_sharding_sizes);
  info->parameter_shardings = shardings_of(exe.args, build);
  add_empty_shardings(*info->program, build, info->parameter_shardings);
  add_pointers(info->parameter_shardings, info->parameter_sharding_data,
               info->parameter_sharding_sizes);
  add_layouts(*info, exe);
  info->costs = {
      named_float("flops", static_cast<float>(exe.matmul_flops)),
      named_float("bytes accessed", static_cast<float>(exe.hbm_read_bytes + exe.hbm_written_bytes)),
      named_float("estimated cycles", static_cast<float>(exe.estimated_cycles))};
  return info;
}

void call(PJRT_Executable_Destroy_Args& args) { delete args.executable; }

void call(PJRT_Executable_Name_Args& args) {
  const std::string& name = info_of(args.executable).program->executable->name;
  args.executable_name = name.data();
  args.executable_name_size = name.size();
}

void call(PJRT_Executable_NumReplicas_Args& args) {
  args.num_replicas = static_cast<size_t>(info_of(args.executable).build.replicas);
}

void call(PJRT_Executable_NumPartitions_Args& args) {
  args.num_partitions = static_cast<size_t>(info_of(args.executable).build.partitions);
}

void call(PJRT_Executable_NumOutputs_Args& args) {
  args.num_outputs = info_of(args.executable).output_types.size();
}

void call(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args& args) {
  args.size_in_bytes =
      static_cast<int64_t>(info_of(args.executable).program->executable->image.size());
}

void call(PJRT_Executable_GetCostAnalysis_Args& args) {
  const auto& costs = info_of(args.executable).costs;
  args.properties = costs.data();
  args.num_properties = costs.size();
}

void call(PJRT_Executable_OutputMemoryKinds_Args& args) {
  const ExecutableInfo& info = info_of(args.executable);
  args.num_outputs = info.memory_kinds.size();
  args.memory_kinds = info.memory_kinds.data();
  args.memory_kind_sizes = info.memory_kind_sizes.data();
}

void call(PJRT_Executable_OutputElementTypes_Args& args) {
  const ExecutableInfo& info = info_of(args.executable);
  args.output_types = const_cast<PJRT_Buffer_Type*>(info.output_types.data());
  args.num_output_types = info.output_types.size();
}

void call(PJRT_Executable_OutputDimensions_Args& args) {
  const ExecutableInfo& info = info_of(args.executable);
  args.num_outputs = info.output_ranks.size();
  args.dims = info.output_dims.data();
  args.dim_sizes = info.output_ranks.data();
}

void call(PJRT_Executable_Fingerprint_Args& args) {
  const std::string& print = info_of(args.executable).program->fingerprint;
  args.executable_fingerprint = print.data();
  args.executable_fingerprint_size = print.size();
}

void call(PJRT_LoadedExecutable_Fingerprint_Args& args) {
  const std::string& print = need(args.executable, "executable").info->program->fingerprint;
  args.executable_fingerprint = print.data();
  args.executable_fingerprint_size = print.size();
}

void call(PJRT_Executable_GetCompiledMemoryStats_Args& args) {
  const exe::ExecutableT& exe = *info_of(args.executable).program->executable;
  PJRT_Executable_GetCompiledMemoryStats_Args answer{};
  answer.struct_size = args.struct_size;
  answer.extension_start = args.extension_start;
  answer.executable = args.executable;
  answer.generated_code_size_in_bytes = static_cast<int64_t>(exe.image.size());
  answer.argument_size_in_bytes =
      static_cast<int64_t>(bytes_of(exe.slots, exe::SlotKind::argument));
  const ResultBytes results = result_bytes(exe);
  answer.output_size_in_bytes = static_cast<int64_t>(results.all);
  answer.alias_size_in_bytes = static_cast<int64_t>(results.donated);
  answer.temp_size_in_bytes = static_cast<int64_t>(bytes_of(exe.slots, exe::SlotKind::scratch) +
                                                   bytes_of(exe.slots, exe::SlotKind::constant));
  answer.host_argument_size_in_bytes = host_bytes(exe, exe.args);
  answer.host_output_size_in_bytes = host_bytes(exe, exe.results);
  answer.host_temp_size_in_bytes = host_temporary_bytes(exe);
  answer.peak_memory_in_bytes = static_cast<int64_t>(exe.hbm_bytes);
  answer.total_size_in_bytes = static_cast<int64_t>(exe.hbm_bytes);
  args = answer;
}

// The board's own code is no program of a framework: this is what its kernels were made of.
void call(PJRT_Executable_OptimizedProgram_Args& args) {
  PJRT_Program& program = need(args.program, "program");
  const ExecutableInfo& info = info_of(args.executable);
  static constexpr char kFormat[] = "mlir";
  asks_for_texts = true;
  const std::string text = client::program_text(*info.program);
  if (program.code != nullptr) {
    if (program.code_size < text.size()) {
      throw_invalid("code_size is " + std::to_string(program.code_size) + ", the program has " +
                    std::to_string(text.size()) + " bytes");
    }
    std::memcpy(program.code, text.data(), text.size());
  }
  program.code_size = text.size();
  program.format = kFormat;
  program.format_size = sizeof kFormat - 1;
}

void call(PJRT_Shardings_PJRT_Executable_ParameterShardings_Args& args) {
  const ExecutableInfo& info = info_of(args.executable);
  args.num_parameters = info.parameter_shardings.size();
  args.shardings = info.parameter_sharding_data.data();
  args.sharding_sizes = info.parameter_sharding_sizes.data();
}

void call(PJRT_Shardings_PJRT_Executable_OutputShardings_Args& args) {
  const ExecutableInfo& info = info_of(args.executable);
  args.num_outputs = info.output_shardings.size();
  args.shardings = info.output_sharding_data.data();
  args.sharding_sizes = info.output_sharding_sizes.data();
}

void call(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args& args) {
  const ExecutableInfo& info = info_of(args.executable);
  args.num_parameters = info.parameter_layouts.size();
  args.layouts = info.parameter_layouts.data();
}

void call(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args& args) {
  const ExecutableInfo& info = info_of(args.executable);
  args.num_outputs = info.output_layouts.size();
  args.layouts = info.output_layouts.data();
}

}  // namespace tpu::pjrt
