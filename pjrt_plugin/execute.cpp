// Loaded executables and their launches. An executable is brought onto its cores by its first run.
#include <algorithm>
#include <utility>

#include "abi/profiler.h"
#include "buffers.hpp"
#include "calls.hpp"
#include "errors.hpp"
#include "host_calls.hpp"
#include "runtime/host_array.hpp"

struct PJRT_ExecuteContext {};

namespace tpu::pjrt {
namespace {

void check_live(const PJRT_LoadedExecutable& executable) TPU_REQUIRES(executable.mutex) {
  if (executable.deleted) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition, "the executable was deleted");
  }
}

using Program = std::shared_ptr<const DeviceProgram>;

std::vector<int> ids_of(const std::vector<PJRT_Device*>& devices) {
  std::vector<int> ids;
  for (const PJRT_Device* device : devices) {
    ids.push_back(device->id);
  }
  return ids;
}

Program program_on(PJRT_LoadedExecutable& executable, const std::vector<PJRT_Device*>& devices) {
  const auto find = [&]() TPU_REQUIRES(executable.mutex) -> Program {
    check_live(executable);
    for (const auto& [device, there] : executable.loaded) {
      if (device == devices[0]->id) {
        return there;
      }
    }
    return nullptr;
  };
  {
    const base::MutexLock lock(executable.mutex);
    if (Program there = find()) {
      return there;
    }
  }
  // Without the lock: the call runs callbacks, which may execute the same program.
  const Program made = executable.client->runtime->load(executable.info->program, ids_of(devices));
  const base::MutexLock lock(executable.mutex);
  if (Program there = find()) {
    return there;  // another thread was faster
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

// Argument i of the program on device d.
const DeviceArrayPtr& argument(const PJRT_LoadedExecutable_Execute_Args& args, size_t i, size_t d) {
  const ExecutableInfo& info = *args.executable->info;
  const exe::TensorT& wanted = *info.program->executable->args[i];
  const auto dtype = static_cast<driver::DType>(wanted.elem);
  const ArrayForm* form = info.parameter_forms.at(i).get();
  const driver::Shape& dims = form == nullptr ? wanted.local_dims : form->dims;
  const PJRT_Buffer* given = args.argument_lists[d][i];
  const DeviceArrayPtr& part = live_array(given, "argument " + std::to_string(i));
  const auto what = [&] {
    return "argument " + std::to_string(i) + " on TPU:" + std::to_string(part->device());
  };
  if (part->dtype() != dtype || dims_of(*given) != dims) {
    throw_invalid(what() + " is " + driver::type_text(part->dtype(), dims_of(*given)) +
                  ", must be " + driver::type_text(dtype, dims));
  }
  check_layout(*given, form, what());
  return part;
}

bool is_kept(const PJRT_ExecuteOptions* options, size_t argument) {
  if (options == nullptr) {
    return false;
  }
  const int64_t* first = options->non_donatable_input_indices;
  const int64_t* last = first + options->num_non_donatable_input_indices;
  return std::find(first, last, static_cast<int64_t>(argument)) != last;
}

void check_counts(const PJRT_LoadedExecutable_Execute_Args& args) {
  const PJRT_LoadedExecutable& executable = *args.executable;
  const exe::ExecutableT& program = *executable.info->program->executable;
  const size_t devices = args.execute_device != nullptr ? 1 : executable.addressable.size();
  if (args.num_devices != devices) {
    throw_invalid("arguments for " + std::to_string(args.num_devices) +
                  " devices, the program runs on " + std::to_string(devices));
  }
  if (args.num_args != program.args.size()) {
    throw_invalid(std::to_string(args.num_args) + " arguments, the program takes " +
                  std::to_string(program.args.size()));
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

// Some of the lists by device that a call has.
struct Lists {
  size_t first = 0;
  std::vector<PJRT_Device*> devices;
};

void give_outputs(const PJRT_LoadedExecutable_Execute_Args& args, const Lists& lists,
                  LaunchResult result) {
  const auto& types = args.executable->info->output_types;
  const auto& forms = args.executable->info->output_forms;
  const auto& results = args.executable->info->program->executable->results;
  for (size_t k = 0; k < lists.devices.size(); ++k) {  // for take_back_outputs()
    const size_t d = lists.first + k;
    std::fill_n(args.output_lists[d], types.size(), nullptr);
    if (args.device_complete_events != nullptr) {
      args.device_complete_events[d] = nullptr;
    }
  }
  for (size_t k = 0; k < lists.devices.size(); ++k) {
    const size_t d = lists.first + k;
    std::vector<DeviceArrayPtr>& outputs = result.outputs.at(k);
    for (size_t i = 0; i < outputs.size(); ++i) {
      PJRT_Memory& memory = memory_of(*lists.devices[k], results[i]->memory);
      DeviceArrayPtr array = std::move(outputs[i]);
      if (is_host(memory)) {
        array = copy_to_memory(*array, memory);
      }
      args.output_lists[d][i] = new_buffer(memory, types[i], std::move(array), forms[i]);
    }
    if (args.device_complete_events != nullptr) {
      args.device_complete_events[d] = new PJRT_Event{result.done.at(k)};
    }
  }
}

LaunchRequest request_of(const PJRT_LoadedExecutable_Execute_Args& args, const Lists& lists) {
  LaunchRequest request;
  for (size_t k = 0; k < lists.devices.size(); ++k) {
    DeviceShare share{lists.devices[k]->id, {}};
    for (size_t i = 0; i < args.num_args; ++i) {
      share.arguments.push_back(on_device(argument(args, i, lists.first + k)));
    }
    request.shares.push_back(std::move(share));
  }
  request.on_host_call = host_call_handler(args.options, args.num_devices);
  if (request.on_host_call && lists.first > 0) {
    request.on_host_call = [first = lists.first, handler = std::move(request.on_host_call)](
                               const driver::HostCallInfo& call, size_t partition,
                               std::span<std::byte> bytes) {
      handler(call, first + partition, bytes);
    };
  }
  request.trace_context = trace_context(args.extension_start);
  return request;
}

// A launch that can be submitted.
struct Ready {
  Lists lists;
  Program program;
  LaunchRequest request;
  std::vector<size_t> taken;  // arguments, by the program
};

Ready ready(const PJRT_LoadedExecutable_Execute_Args& args, Lists lists,
            const std::vector<PJRT_Device*>& all) {
  const exe::ExecutableT& exe = *args.executable->info->program->executable;
  Ready made{std::move(lists), program_on(*args.executable, all), {}, {}};
  made.request = request_of(args, made.lists);
  for (size_t i = 0; i < args.num_args; ++i) {
    if (exe.args[i]->donated_to >= 0) {
      (is_kept(args.options, i) ? made.request.keep : made.taken).push_back(i);
    }
  }
  return made;
}

// `accepted`: what fails from there on is not that of the launch.
void launch(const PJRT_LoadedExecutable_Execute_Args& args, const Ready& ready, bool& accepted) {
  LaunchResult result = ready.program->launch(ready.request);
  accepted = true;
  for (const size_t i : ready.taken) {
    for (size_t k = 0; k < ready.lists.devices.size(); ++k) {
      PJRT_Buffer& given = *args.argument_lists[ready.lists.first + k][i];
      given.deleted = true;
      if (is_host(*given.memory)) {
        given.array->discard();  // the program has a copy; the handle may live on
      }
    }
  }
  give_outputs(args, ready.lists, std::move(result));
}

// A call that fails gives nothing: what the launches on the devices in front have given goes.
void take_back_outputs(const PJRT_LoadedExecutable_Execute_Args& args, size_t devices) {
  for (size_t d = 0; d < devices; ++d) {
    for (size_t i = 0; i < args.executable->info->output_types.size(); ++i) {
      delete std::exchange(args.output_lists[d][i], nullptr);
    }
    if (args.device_complete_events != nullptr) {
      delete std::exchange(args.device_complete_events[d], nullptr);
    }
  }
}

// The devices cannot bring their shares: the others wait for them.
void refuse(const PJRT_LoadedExecutable& executable, const std::vector<PJRT_Device*>& devices,
            const driver::Error& error) {
  try {
    executable.client->runtime->refuse(executable.info->program->executable->name,
                                       ids_of(executable.devices), ids_of(devices), "", error);
  } catch (const std::exception&) {
    // Without the board nobody waits. The caller has the first error.
  }
}

std::vector<PJRT_Device*> devices_of(const PJRT_LoadedExecutable_Execute_Args& args) {
  std::vector<PJRT_Device*> devices = args.executable->addressable;
  if (args.execute_device != nullptr) {
    devices = {args.execute_device};
  }
  if (devices.empty()) {
    throw_invalid("a portable executable needs execute_device");
  }
  return devices;
}

// Of a program that runs on several devices together. What fails in the call, in its first line,
// too, must reach the other devices.
void launch_together(const PJRT_LoadedExecutable_Execute_Args& args) {
  PJRT_LoadedExecutable& executable = *args.executable;
  const auto& all = executable.devices;
  const bool by_device = args.execute_device != nullptr;
  if (by_device && std::find(all.begin(), all.end(), args.execute_device) == all.end()) {
    throw_invalid("execute_device: expected a device of the program, found TPU:" +
                  std::to_string(args.execute_device->id));
  }
  if (by_device) {
    executable.client->launched_by_device = true;
  }
  bool accepted = false;
  try {
    const std::vector<PJRT_Device*> devices = devices_of(args);
    check_counts(args);
    for (const PJRT_Device* device : all) {
      executable.client->tasks.check(device->description->process);
    }
    launch(args, ready(args, {0, devices}, all), accepted);
  } catch (...) {
    if (accepted) {
      take_back_outputs(args, by_device ? 1 : executable.addressable.size());
    } else if (by_device) {
      refuse(executable, {args.execute_device}, error_of_exception());
    } else if (executable.addressable.size() < all.size()) {
      refuse(executable, executable.addressable, error_of_exception());
    }
    throw;
  }
}

}  // namespace

void call(PJRT_LoadedExecutable_Execute_Args& args) {
  if (need(args.executable, "executable").info->program->executable->partitions > 1) {
    return launch_together(args);
  }
  const std::vector<PJRT_Device*> devices = devices_of(args);
  check_counts(args);
  std::vector<Ready> replicas;  // that have nothing to do with each other
  for (size_t d = 0; d < devices.size(); ++d) {
    replicas.push_back(ready(args, {d, {devices[d]}}, {devices[d]}));
  }
  for (const Ready& each : replicas) {  // none, when one of them cannot be
    bool accepted = false;
    try {
      launch(args, each, accepted);
    } catch (...) {
      take_back_outputs(args, each.lists.first + (accepted ? 1 : 0));
      throw;
    }
  }
}

// A context holds what custom calls of other plugins look up; there are none here.
void call(PJRT_ExecuteContext_Create_Args& args) { args.context = new PJRT_ExecuteContext; }

void call(PJRT_ExecuteContext_Destroy_Args& args) { delete args.context; }

void call(PJRT_LoadedExecutable_Destroy_Args& args) { delete args.executable; }

void call(PJRT_LoadedExecutable_GetExecutable_Args& args) {
  args.executable = new PJRT_Executable{need(args.loaded_executable, "loaded_executable").info};
}

void call(PJRT_LoadedExecutable_AddressableDevices_Args& args) {
  const auto& devices = need(args.executable, "executable").addressable;
  args.addressable_devices = devices.data();
  args.num_addressable_devices = devices.size();
}

void call(PJRT_LoadedExecutable_Delete_Args& args) {
  PJRT_LoadedExecutable& executable = need(args.executable, "executable");
  const base::MutexLock lock(executable.mutex);
  executable.deleted = true;
  for (const auto& [device, program] : executable.loaded) {
    program->unload();
  }
  executable.loaded.clear();
}

void call(PJRT_LoadedExecutable_IsDeleted_Args& args) {
  PJRT_LoadedExecutable& executable = need(args.executable, "executable");
  const base::MutexLock lock(executable.mutex);
  args.is_deleted = executable.deleted;
}

}  // namespace tpu::pjrt
