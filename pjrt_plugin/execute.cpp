// Loaded executables and their launches. An executable is brought onto its cores by its first run.
#include <algorithm>

#include "abi/profiler.h"
#include "buffers.hpp"
#include "calls.hpp"
#include "errors.hpp"
#include "host_calls.hpp"

struct PJRT_ExecuteContext {};

namespace tpu::pjrt {
namespace {

using Arguments = std::vector<driver::Array>;

void check_live(const PJRT_LoadedExecutable& executable) TPU_REQUIRES(executable.mutex) {
  if (executable.deleted) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition, "the executable was deleted");
  }
}

driver::Executable executable_on(PJRT_LoadedExecutable& executable,
                                 const std::vector<PJRT_Device*>& devices) {
  const auto find = [&]() TPU_REQUIRES(executable.mutex) -> const driver::Executable* {
    check_live(executable);
    for (const auto& [device, there] : executable.loaded) {
      if (device == devices[0]->id) {
        return &there;
      }
    }
    return nullptr;
  };
  {
    const base::MutexLock lock(executable.mutex);
    if (const auto* there = find()) {
      return *there;
    }
  }
  std::vector<int> ids;
  for (const PJRT_Device* device : devices) {
    ids.push_back(device->id);
  }
  // Without the lock: the call runs callbacks, which may execute the same program.
  const driver::Executable made =
      executable.client->process->board().load(executable.info->program->executable, ids);
  const base::MutexLock lock(executable.mutex);
  if (const auto* there = find()) {
    return *there;  // another thread was faster
  }
  executable.loaded.emplace_back(devices[0]->id, made);
  return made;
}

void check_layout(const PJRT_Buffer& part, const ArrayForm* form, const std::string& what) {
  if (part.form == nullptr && form == nullptr) {
    return;
  }
  const size_t rank = dims_of(part).size();
  const std::string lies = layout_of(part.form.get(), rank).text;
  const std::string wanted = layout_of(form, rank).text;
  if (lies != wanted) {
    throw_invalid(what + " has the layout " + lies + ", the program expects " + wanted +
                  " (minor to major)");
  }
}

// Argument i of the program, from the lists by device.
driver::Array argument(const PJRT_LoadedExecutable_Execute_Args& args, size_t i,
                       const driver::ParameterInfo& info) {
  const ArrayForm* form = args.executable->info->parameter_forms.at(i).get();
  const driver::Shape& dims = form == nullptr ? info.layout.local : form->dims;
  std::vector<driver::Buffer> parts;
  for (size_t d = 0; d < args.num_devices; ++d) {
    const PJRT_Buffer* given = args.argument_lists[d][i];
    const driver::Buffer& part = live_buffer(given, "argument " + std::to_string(i));
    const auto what = [&] {
      return "argument " + std::to_string(i) + " on TPU:" + std::to_string(part.device());
    };
    if (part.dtype() != info.dtype || dims_of(*given) != dims) {
      throw_invalid(what() + " is " + driver::type_text(part.dtype(), dims_of(*given)) +
                    ", must be " + driver::type_text(info.dtype, dims));
    }
    check_layout(*given, form, what());
    parts.push_back(part);
  }
  return {info.dtype, info.shape, info.layout, std::move(parts)};
}

bool is_kept(const PJRT_ExecuteOptions* options, size_t argument) {
  if (options == nullptr) {
    return false;
  }
  const int64_t* first = options->non_donatable_input_indices;
  const int64_t* last = first + options->num_non_donatable_input_indices;
  return std::find(first, last, static_cast<int64_t>(argument)) != last;
}

void check_counts(const PJRT_LoadedExecutable_Execute_Args& args,
                  const driver::Executable& executable) {
  if (args.num_devices != executable.partitions()) {
    throw_invalid("arguments for " + std::to_string(args.num_devices) +
                  " devices, the program runs on " + std::to_string(executable.partitions()));
  }
  if (args.num_args != executable.arguments().size()) {
    throw_invalid(std::to_string(args.num_args) + " arguments, the program takes " +
                  std::to_string(executable.arguments().size()));
  }
}

// The caller's event in jax.profiler's profile of the host; 0: it has none.
uint64_t trace_context(const PJRT_Extension_Base* extension) {
  for (; extension != nullptr; extension = extension->next) {
    if (extension->type == PJRT_Extension_Type_Profiler &&
        extension->struct_size >= sizeof(PJRT_Profiler_Extension)) {
      const int64_t id =
          reinterpret_cast<const PJRT_Profiler_Extension*>(extension)->traceme_context_id;
      return static_cast<uint64_t>(std::max<int64_t>(id, 0));
    }
  }
  return 0;
}

void give_outputs(const PJRT_LoadedExecutable_Execute_Args& args,
                  const std::vector<PJRT_Device*>& devices, const driver::RunResult& result) {
  const auto& types = args.executable->info->output_types;
  const auto& forms = args.executable->info->output_forms;
  for (size_t d = 0; d < args.num_devices; ++d) {
    for (size_t i = 0; i < result.outputs.size(); ++i) {
      args.output_lists[d][i] =
          new_buffer(*devices[d], types[i], result.outputs[i].parts()[d], forms[i]);
    }
    if (args.device_complete_events != nullptr) {
      args.device_complete_events[d] = new PJRT_Event{result.done};
    }
  }
}

}  // namespace

void call(PJRT_LoadedExecutable_Execute_Args& args) {
  PJRT_LoadedExecutable& executable = need(args.executable, "executable");
  std::vector<PJRT_Device*> devices = executable.devices;
  if (args.execute_device != nullptr) {
    devices = {args.execute_device};
  }
  if (devices.empty()) {
    throw_invalid("a portable executable needs execute_device");
  }
  const driver::Executable program = executable_on(executable, devices);
  check_counts(args, program);
  Arguments arguments;
  driver::RunOptions run;
  run.on_host_call = host_call_handler(args.options, args.num_devices);
  run.trace_context = trace_context(args.extension_start);
  for (size_t i = 0; i < args.num_args; ++i) {
    const driver::ParameterInfo& info = program.arguments()[i];
    arguments.push_back(argument(args, i, info));
    if (info.donated_to >= 0 && is_kept(args.options, i)) {
      run.keep.push_back(i);
    }
  }
  const driver::RunResult result = program.run(arguments, run);
  for (size_t i = 0; i < args.num_args; ++i) {
    if (program.arguments()[i].donated_to >= 0 && !is_kept(args.options, i)) {
      for (size_t d = 0; d < args.num_devices; ++d) {
        args.argument_lists[d][i]->deleted = true;
      }
    }
  }
  give_outputs(args, devices, result);
}

// A context holds what custom calls of other plugins look up; there are none here.
void call(PJRT_ExecuteContext_Create_Args& args) { args.context = new PJRT_ExecuteContext; }

void call(PJRT_ExecuteContext_Destroy_Args& args) { delete args.context; }

void call(PJRT_LoadedExecutable_Destroy_Args& args) { delete args.executable; }

void call(PJRT_LoadedExecutable_GetExecutable_Args& args) {
  args.executable = new PJRT_Executable{need(args.loaded_executable, "loaded_executable").info};
}

void call(PJRT_LoadedExecutable_AddressableDevices_Args& args) {
  const auto& devices = need(args.executable, "executable").devices;
  args.addressable_devices = devices.data();
  args.num_addressable_devices = devices.size();
}

void call(PJRT_LoadedExecutable_Delete_Args& args) {
  PJRT_LoadedExecutable& executable = need(args.executable, "executable");
  const base::MutexLock lock(executable.mutex);
  executable.deleted = true;
  for (const auto& [device, program] : executable.loaded) {
    program.unload();
  }
  executable.loaded.clear();
}

void call(PJRT_LoadedExecutable_IsDeleted_Args& args) {
  PJRT_LoadedExecutable& executable = need(args.executable, "executable");
  const base::MutexLock lock(executable.mutex);
  args.is_deleted = executable.deleted;
}

}  // namespace tpu::pjrt
