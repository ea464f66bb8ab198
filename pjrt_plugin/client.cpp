// Plugin, client, devices, memories. All clients of a process share its board. A client is freed
// with the last of its handle, its buffers and its executables, which point to its devices.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>

#include "buffers.hpp"
#include "call_log.hpp"
#include "calls.hpp"
#include "client_options.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "process_board.hpp"
#include "processes/job_store.hpp"
#include "processes/place.hpp"
#include "python_callbacks.hpp"
#include "runtime/process_runtime.hpp"

namespace tpu::pjrt {
namespace {

// Newest and oldest StableHLO that the compiler's import reads: frameworks send the newest that
// they and we know.
constexpr int64_t kNewestStableHlo[] = {1, 15, 0};
constexpr int64_t kOldestStableHlo[] = {0, 9, 0};

// Of each device, by kind; the first is the default.
constexpr std::array kMemoryKinds = {exe::MemoryKind::device, exe::MemoryKind::pinned_host,
                                     exe::MemoryKind::unpinned_host};

std::atomic<int> clients_of_callers{0};

// Memories of all devices have different numbers: those of a kind follow each other.
void add_memories(PJRT_Client& client, PJRT_Device& device, size_t devices) {
  const PJRT_DeviceDescription& description = *device.description;
  for (const exe::MemoryKind kind : kMemoryKinds) {
    auto memory = std::make_unique<PJRT_Memory>();
    memory->id = description.id + static_cast<int>(static_cast<size_t>(kind) * devices);
    memory->kind = kind;
    memory->text = kind == exe::MemoryKind::device
                       ? "HBM of " + description.text
                       : std::string(memory_kind_name(kind)) + " of " + description.text;
    memory->device = &device;
    device.memories.push_back(memory.get());
    client.owned_memories.push_back(std::move(memory));
  }
}

std::optional<int> integer_option(const PJRT_Client_Create_Args& args, const char* name) {
  for (size_t i = 0; i < args.num_options; ++i) {
    const PJRT_NamedValue& option = args.create_options[i];
    if (std::string_view(option.name, option.name_size) != name) {
      continue;
    }
    constexpr int64_t kMost = 1 << 20;
    if (option.type != PJRT_NamedValue_kInt64 || option.int64_value < 0 ||
        option.int64_value > kMost) {
      throw_invalid(std::string("the option ") + name +
                    " of the client: expected an integer of 0 to " + std::to_string(kMost));
    }
    return static_cast<int>(option.int64_value);
  }
  return std::nullopt;
}

// JAX says so to plugins of other names than `tpu`.
std::optional<ToldProcess> process_in_options(const PJRT_Client_Create_Args& args) {
  const std::optional<int> node = integer_option(args, "node_id");
  const std::optional<int> nodes = integer_option(args, "num_nodes");
  if (node.has_value() != nodes.has_value()) {
    throw_invalid("the options node_id and num_nodes of the client go together: one is missing");
  }
  return node ? std::optional<ToldProcess>({*node, *nodes}) : std::nullopt;
}

std::shared_ptr<PJRT_Client> make_client(const PJRT_Client_Create_Args& args) {
  auto client = std::make_shared<PJRT_Client>();
  const ProcessPlace& place = process_place(process_in_options(args));
  const std::optional<JobStore> store = JobStore::of(args, place);
  client->runtime = &process_runtime(store ? &*store : nullptr);
  client->process = place.process;
  client->processes = place.processes;
  client->topology.topology = make_topology(client::ProcessBoard::options().platform,
                                            client::ProcessBoard::params(), place.owners);
  for (PJRT_DeviceDescription* description : client->topology.topology->devices) {
    auto device = std::make_unique<PJRT_Device>();
    *device = {description->id, client.get(), description, {}};
    add_memories(*client, *device, client->topology.topology->devices.size());
    client->devices.push_back(device.get());
    if (description->process == place.process) {
      device->local_id = static_cast<int>(client->addressable.size());
      client->addressable.push_back(device.get());
    }
    client->owned_devices.push_back(std::move(device));
  }
  for (const exe::MemoryKind kind : kMemoryKinds) {
    for (const PJRT_Device* device : client->addressable) {
      client->memories.push_back(&memory_of(*device, kind));
    }
  }
  return client;
}

PJRT_Device* device_of(const std::vector<PJRT_Device*>& devices, int id, const char* what) {
  if (id < 0 || static_cast<size_t>(id) >= devices.size()) {
    throw_invalid(std::string(what) + " " + std::to_string(id) + ": expected one of the " +
                  std::to_string(devices.size()) + " there are");
  }
  return devices[static_cast<size_t>(id)];
}

// JAX passes over a plugin that does not start and computes on the CPU, without a word of it.
template <typename Start>
void start_or_say_why(Start start) {
  try {
    start();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tpuboard: the plugin does not start: %s\n",
                 client::text_of(error).c_str());
    throw;
  }
}

}  // namespace

void call(PJRT_Plugin_Initialize_Args& /*args*/) {
  start_or_say_why([] { CallLog::open(client::ProcessBoard::options().call_log); });
}

void call(PJRT_Plugin_Attributes_Args& args) {
  static const PJRT_NamedValue attributes[] = {
      named_integers("stablehlo_current_version", kNewestStableHlo, 3),
      named_integers("stablehlo_minimum_version", kOldestStableHlo, 3)};
  args.attributes = attributes;
  args.num_attributes = std::size(attributes);
}

// Of the options, node_id and num_nodes alone have a meaning here: others are those of other
// plugins, and ours are variables of the environment.
void call(PJRT_Client_Create_Args& args) {
  start_or_say_why([&args] {
    CallLog::open(client::ProcessBoard::options().call_log);
    auto client = make_client(args);
    args.client = client.get();
    args.client->of_caller = std::move(client);
    ++clients_of_callers;
  });
  ask_jax_for_callbacks(GetPjrtApi());
}

void call(PJRT_Client_Destroy_Args& args) {
  const auto last = std::move(need(args.client, "client").of_caller);
  // Other processes may wait for the devices of this one, which has them while it has a client.
  const bool is_shared = last && last->addressable.size() < last->devices.size();
  const bool leaves = last && --clients_of_callers == 0 && is_shared;
  if (last && (last->launched_by_device || leaves)) {
    std::vector<int> ids;
    for (const PJRT_Device* device : last->addressable) {
      ids.push_back(device->id);
    }
    last->runtime->leave(ids, {driver::ErrorCode::kCancelled, "the client was destroyed"});
  }
}

void call(PJRT_Client_PlatformName_Args& args) {
  const std::string& name = need(args.client, "client").topology.topology->platform;
  args.platform_name = name.data();
  args.platform_name_size = name.size();
}

void call(PJRT_Client_ProcessIndex_Args& args) {
  args.process_index = need(args.client, "client").process;
}

void call(PJRT_Client_UpdateGlobalProcessInfo_Args& args) {
  PJRT_Client& client = need(args.client, "client");
  if (args.num_process_infos > 0) {
    client.tasks.update({&need(args.process_infos, "process_infos"), args.num_process_infos},
                        client.processes);
  }
}

void call(PJRT_Client_PlatformVersion_Args& args) {
  const std::string& version = need(args.client, "client").topology.topology->version;
  args.platform_version = version.data();
  args.platform_version_size = version.size();
}

void call(PJRT_Client_TopologyDescription_Args& args) {
  args.topology = &need(args.client, "client").topology;
}

void call(PJRT_Client_Devices_Args& args) {
  const auto& devices = need(args.client, "client").devices;
  args.devices = devices.data();
  args.num_devices = devices.size();
}

void call(PJRT_Client_AddressableDevices_Args& args) {
  const auto& devices = need(args.client, "client").addressable;
  args.addressable_devices = devices.data();
  args.num_addressable_devices = devices.size();
}

void call(PJRT_Client_LookupDevice_Args& args) {
  args.device = device_of(need(args.client, "client").devices, args.id, "device id");
}

void call(PJRT_Client_LookupAddressableDevice_Args& args) {
  args.addressable_device = device_of(need(args.client, "client").addressable,
                                      args.local_hardware_id, "local hardware id");
}

void call(PJRT_Client_AddressableMemories_Args& args) {
  const auto& memories = need(args.client, "client").memories;
  args.addressable_memories = memories.data();
  args.num_addressable_memories = memories.size();
}

void call(PJRT_Client_DefaultDeviceAssignment_Args& args) {
  const auto& devices = need(args.client, "client").devices;
  const int64_t wanted = int64_t{args.num_replicas} * args.num_partitions;
  if (args.num_replicas < 1 || args.num_partitions < 1 ||
      wanted > static_cast<int64_t>(devices.size())) {
    throw_invalid("a program of " + std::to_string(wanted) + " devices; the board has " +
                  std::to_string(devices.size()));
  }
  if (args.default_assignment == nullptr ||
      args.default_assignment_size < static_cast<size_t>(wanted)) {
    throw_invalid("default_assignment has no room for " + std::to_string(wanted) + " ids");
  }
  for (int i = 0; i < wanted; ++i) {
    args.default_assignment[i] = i;
  }
}

void call(PJRT_Device_GetDescription_Args& args) {
  args.device_description = need(args.device, "device").description;
}

// The attributes live as long as the device: the caller owns nothing.
void call(PJRT_Device_GetAttributes_Args& args) {
  const auto& attributes = need(args.device, "device").description->attributes;
  args.attributes = attributes.data();
  args.num_attributes = attributes.size();
  args.device_attributes = nullptr;
  args.attributes_deleter = [](PJRT_Device_Attributes*) {};
}

void call(PJRT_Device_IsAddressable_Args& args) {
  args.is_addressable = need(args.device, "device").local_id >= 0;
}

void call(PJRT_Device_LocalHardwareId_Args& args) {
  args.local_hardware_id = need(args.device, "device").local_id;
}

void call(PJRT_Device_AddressableMemories_Args& args) {
  const PJRT_Device& device = need(args.device, "device");
  args.memories = device.memories.data();
  args.num_memories = device.local_id >= 0 ? device.memories.size() : 0;
}

void call(PJRT_Device_DefaultMemory_Args& args) {
  args.memory = need(args.device, "device").memories.front();
}

void call(PJRT_Device_MemoryStats_Args& args) {
  const PJRT_Device& device = need(args.device, "device");
  const driver::DeviceInfo info = device.client->runtime->device_info(device.id);
  PJRT_Device_MemoryStats_Args answer{};
  answer.struct_size = args.struct_size;
  answer.extension_start = args.extension_start;
  answer.device = args.device;
  answer.bytes_in_use = static_cast<int64_t>(info.hbm_used);
  answer.peak_bytes_in_use = static_cast<int64_t>(info.hbm_peak);
  answer.peak_bytes_in_use_is_set = true;
  answer.bytes_limit = static_cast<int64_t>(info.hbm_bytes);
  answer.bytes_limit_is_set = true;
  answer.largest_free_block_bytes = static_cast<int64_t>(info.hbm_largest_free);
  answer.largest_free_block_bytes_is_set = true;
  answer.bytes_reserved_is_set = true;  // none: what no array or program holds is free
  answer.bytes_reservable_limit = answer.bytes_limit;
  answer.bytes_reservable_limit_is_set = true;
  args = answer;
}

void call(PJRT_Memory_Id_Args& args) { args.id = need(args.memory, "memory").id; }

void call(PJRT_Memory_Kind_Args& args) {
  args.kind = memory_kind_name(need(args.memory, "memory").kind);
  args.kind_size = std::strlen(args.kind);
}

void call(PJRT_Memory_Kind_Id_Args& args) {
  args.kind_id = static_cast<int>(need(args.memory, "memory").kind);
}

void call(PJRT_Memory_DebugString_Args& args) {
  const std::string& text = need(args.memory, "memory").text;
  args.debug_string = text.data();
  args.debug_string_size = text.size();
}

void call(PJRT_Memory_ToString_Args& args) {
  const std::string& text = need(args.memory, "memory").text;
  args.to_string = text.data();
  args.to_string_size = text.size();
}

void call(PJRT_Memory_AddressableByDevices_Args& args) {
  args.devices = &need(args.memory, "memory").device;
  args.num_devices = 1;
}

}  // namespace tpu::pjrt
