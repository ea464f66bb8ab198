// Ids, chips and coordinates as the board file orders them: core id = chip * cores_per_chip + core.
#include "topology.hpp"

#include <fmt/format.h>

#include <cstring>

#include "board/board_loader.hpp"
#include "board/chip_kind.hpp"
#include "calls.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "process_board.hpp"
#include "processes/place.hpp"
#include "tpu/version.hpp"

namespace tpu::pjrt {
namespace {

PJRT_NamedValue named(const char* name, PJRT_NamedValue_Type type) {
  PJRT_NamedValue value{};
  value.struct_size = kPjrtStructSize<PJRT_NamedValue>;
  value.name = name;
  value.name_size = std::strlen(name);
  value.type = type;
  value.value_size = 1;
  return value;
}

std::string serialized(const std::string& platform, const spec::BoardParams& board) {
  std::string text = "tpuboard topology\nplatform=" + platform + "\n";
  for (const spec::BoardKey& key : spec::kBoardKeys) {
    text += fmt::format("{}.{}={}\n", key.section, key.name, spec::value_text(key, board));
  }
  return text;
}

}  // namespace

PJRT_NamedValue named_integer(const char* name, int64_t value) {
  PJRT_NamedValue result = named(name, PJRT_NamedValue_kInt64);
  result.int64_value = value;
  return result;
}

PJRT_NamedValue named_integers(const char* name, const int64_t* values, size_t count) {
  PJRT_NamedValue result = named(name, PJRT_NamedValue_kInt64List);
  result.int64_array_value = values;
  result.value_size = count;
  return result;
}

PJRT_NamedValue named_float(const char* name, float value) {
  PJRT_NamedValue result = named(name, PJRT_NamedValue_kFloat);
  result.float_value = value;
  return result;
}

std::shared_ptr<const Topology> make_topology(const std::string& platform,
                                              const spec::BoardParams& board,
                                              const std::vector<int>& owners) {
  auto topology = std::make_shared<Topology>();
  topology->platform = platform;
  topology->version = fmt::format("tpuboard {} ({})", driver::kVersion, board.board.name);
  topology->bytes = serialized(platform, board);
  const int64_t per_chip = board.board.cores_per_chip;
  for (int64_t id = 0; id < spec::chip_count(board) * per_chip; ++id) {
    auto device = std::make_unique<PJRT_DeviceDescription>();
    const int64_t chip = id / per_chip;
    device->id = static_cast<int>(id);
    device->process = owners.empty() ? 0 : owners.at(static_cast<size_t>(id));
    device->kind = spec::chip_kind(board);
    device->coords[0] = chip % spec::chips_x(board);
    device->coords[1] = chip / spec::chips_x(board);
    device->text = fmt::format("TPU:{}", id);
    device->debug = fmt::format("TPU:{} (chip {} at {},{}, core {})", id, chip, device->coords[0],
                                device->coords[1], id % per_chip);
    // A device is one core: JAX takes more for a megacore, cores that work as one device.
    device->attributes = {named_integers("coords", device->coords, 3),
                          named_integer("core_on_chip", id % per_chip),
                          named_integer("num_cores", 1), named_integer("slice_index", 0)};
    topology->devices.push_back(device.get());
    topology->owned.push_back(std::move(device));
  }
  return topology;
}

static PJRT_TopologyDescription* topology_of_process() {
  return new PJRT_TopologyDescription{make_topology(client::ProcessBoard::options().platform,
                                                    client::ProcessBoard::params(),
                                                    process_place().owners)};
}

void call(PJRT_TopologyDescription_Create_Args& args) { args.topology = topology_of_process(); }

// The bytes live as long as the topology: the caller owns nothing.
void call(PJRT_TopologyDescription_Serialize_Args& args) {
  const std::string& bytes = need(args.topology, "topology").topology->bytes;
  args.serialized_bytes = bytes.data();
  args.serialized_bytes_size = bytes.size();
  args.serialized_topology = nullptr;
  args.serialized_topology_deleter = [](PJRT_SerializedTopology*) {};
}

// Programs are compiled for the board of this process: that of another one is of no use.
void call(PJRT_TopologyDescription_Deserialize_Args& args) {
  std::unique_ptr<PJRT_TopologyDescription> own(topology_of_process());
  if (own->topology->bytes !=
      std::string_view(args.serialized_topology, args.serialized_topology_size)) {
    throw_invalid("expected a topology of this board, found other bytes; this board is " +
                  own->topology->version + " (OpenOptions::preset, OpenOptions::overrides)");
  }
  args.topology = own.release();
}

void call(PJRT_TopologyDescription_Destroy_Args& args) { delete args.topology; }

void call(PJRT_TopologyDescription_PlatformName_Args& args) {
  const std::string& name = need(args.topology, "topology").topology->platform;
  args.platform_name = name.data();
  args.platform_name_size = name.size();
}

void call(PJRT_TopologyDescription_PlatformVersion_Args& args) {
  const std::string& version = need(args.topology, "topology").topology->version;
  args.platform_version = version.data();
  args.platform_version_size = version.size();
}

void call(PJRT_TopologyDescription_GetDeviceDescriptions_Args& args) {
  const auto& devices = need(args.topology, "topology").topology->devices;
  args.descriptions = devices.data();
  args.num_descriptions = devices.size();
}

void call(PJRT_TopologyDescription_Attributes_Args& args) {
  const auto& attributes = need(args.topology, "topology").topology->attributes;
  args.attributes = attributes.data();
  args.num_attributes = attributes.size();
}

void call(PJRT_DeviceDescription_Id_Args& args) {
  args.id = need(args.device_description, "device_description").id;
}

void call(PJRT_DeviceDescription_ProcessIndex_Args& args) {
  args.process_index = need(args.device_description, "device_description").process;
}

void call(PJRT_DeviceDescription_Attributes_Args& args) {
  const auto& attributes = need(args.device_description, "device_description").attributes;
  args.attributes = attributes.data();
  args.num_attributes = attributes.size();
}

void call(PJRT_DeviceDescription_Kind_Args& args) {
  const std::string& kind = need(args.device_description, "device_description").kind;
  args.device_kind = kind.data();
  args.device_kind_size = kind.size();
}

void call(PJRT_DeviceDescription_DebugString_Args& args) {
  const std::string& text = need(args.device_description, "device_description").debug;
  args.debug_string = text.data();
  args.debug_string_size = text.size();
}

void call(PJRT_DeviceDescription_ToString_Args& args) {
  const std::string& text = need(args.device_description, "device_description").text;
  args.to_string = text.data();
  args.to_string_size = text.size();
}

}  // namespace tpu::pjrt
