// Build options, and shardings of what is compiled. Field numbers are those of
// xla/pjrt/proto/compile_options.proto and xla/xla_data.proto.
#include "protos.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "errors.hpp"
#include "proto_wire.hpp"

namespace tpu::pjrt {
namespace {

// A repeated integer field comes packed or one by one.
void take_integers(const Field& field, std::vector<int>& to) {
  if (field.wire == kVarint) {
    to.push_back(static_cast<int>(field.value));
    return;
  }
  for (Reader reader(field.bytes); !reader.done();) {
    to.push_back(static_cast<int>(reader.varint()));
  }
}

// DeviceAssignmentProto: one ComputationDevice a partition, with its device in each replica.
std::vector<int> read_assignment(std::string_view bytes) {
  std::vector<std::vector<int>> by_partition;
  Reader reader(bytes);
  while (const auto field = reader.next()) {
    if (field->number == 3) {
      auto& replicas = by_partition.emplace_back();
      Reader inner(field->bytes);
      while (const auto device = inner.next()) {
        if (device->number == 1) {
          take_integers(*device, replicas);
        }
      }
    }
  }
  std::vector<int> devices;
  for (size_t replica = 0; !by_partition.empty() && replica < by_partition[0].size(); ++replica) {
    for (const auto& replicas : by_partition) {
      if (replicas.size() != by_partition[0].size()) {
        throw_invalid("compile options: partitions with different numbers of replicas");
      }
      devices.push_back(replicas[replica]);
    }
  }
  return devices;
}

void read_executable_options(std::string_view bytes, BuildOptions& options) {
  Reader reader(bytes);
  while (const auto field = reader.next()) {
    switch (field->number) {
      case 1:
        options.device_ordinal = static_cast<int64_t>(field->value);
        break;
      case 4:
        options.replicas = static_cast<int64_t>(field->value);
        break;
      case 5:
        options.partitions = static_cast<int64_t>(field->value);
        break;
      case 9:
        options.assignment = field->bytes;
        options.devices = read_assignment(field->bytes);
        break;
      default:
        break;
    }
  }
}

// A mesh that has a device twice is one that the caller built so.
void check_devices(std::vector<int> devices) {
  std::sort(devices.begin(), devices.end());
  const auto twice = std::adjacent_find(devices.begin(), devices.end());
  if (twice != devices.end()) {
    throw_invalid("compile options: the device assignment names device " + std::to_string(*twice) +
                  " twice; a mesh has each device once");
  }
}

bool is_word_or_number(const std::string& text) {
  for (const char* word : {"true", "false", "True", "False"}) {
    if (text == word) {
      return true;
    }
  }
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0';
}

// Options of XLA for all machines whose values are text; those for one machine may have any.
bool takes_text(std::string_view option) {
  for (const std::string_view machine :
       {"xla_tpu_", "xla_gpu_", "xla_cpu_", "xla_jf_", "xla_sc_"}) {
    if (option.starts_with(machine)) {
      return true;
    }
  }
  for (const std::string_view text :
       {"xla_backend_extra_options", "xla_detect_unstable_reductions",
        "xla_detect_unstable_reductions_post_optimizations", "xla_disable_hlo_passes",
        "xla_dump_emitter_re", "xla_dump_hlo_module_re", "xla_dump_hlo_pass_re",
        "xla_dump_hlo_pipeline_re", "xla_dump_to", "xla_enable_hlo_passes_only",
        "xla_partitioning_algorithm", "xla_step_marker_location"}) {
    if (option == text) {
      return true;
    }
  }
  return false;
}

// Of OptionOverrideProto, where it is one of text.
std::optional<std::string> override_text(std::string_view value) {
  Reader reader(value);
  std::optional<std::string> text;
  while (const auto field = reader.next()) {
    if (field->number == 1 && field->wire == kBytes) {
      text = field->bytes;
    }
  }
  return text;
}

// An entry of the map env_option_overrides. XLA's options speak of passes that are not ours.
void check_override(std::string_view entry) {
  std::string option;
  std::optional<std::string> text;
  Reader reader(entry);
  while (const auto field = reader.next()) {
    if (field->number == 1) {
      option = field->bytes;
    } else if (field->number == 2) {
      text = override_text(field->bytes);
    }
  }
  if (!option.starts_with("xla_")) {
    throw_invalid("No such compile option: '" + option +
                  "': this compiler has none (those of XLA, xla_..., are without effect); the "
                  "board's are environment variables, see docs/jax.md");
  }
  if (text && !takes_text(option) && !is_word_or_number(*text)) {
    throw_invalid("compile option " + option + ": '" + *text +
                  "' is not a valid bool value. It is not a number either");
  }
}

}  // namespace

BuildOptions read_build_options(std::string_view bytes) {
  BuildOptions options;
  Reader reader(bytes);
  while (const auto field = reader.next()) {
    switch (field->number) {
      case 3:
        read_executable_options(field->bytes, options);
        break;
      case 4:
        options.portable = field->value != 0;
        break;
      case 7:
        check_override(field->bytes);
        break;
      default:
        break;
    }
  }
  check_devices(options.devices);
  return options;
}

std::string device_assignment(const std::vector<int>& devices, int64_t replicas) {
  const size_t partitions = devices.size() / static_cast<size_t>(replicas);
  std::string bytes;
  put_number(bytes, 1, static_cast<uint64_t>(replicas));
  put_number(bytes, 2, partitions);
  for (size_t p = 0; p < partitions; ++p) {
    std::vector<int> in_each;
    for (size_t at = p; at < devices.size(); at += partitions) {
      in_each.push_back(devices[at]);
    }
    std::string computation;
    put_bytes(computation, 1, packed(in_each));
    put_bytes(bytes, 3, computation);
  }
  return bytes;
}

std::string op_sharding(const driver::Layout& layout, const driver::Shape& global) {
  if (layout.replicated || layout.offsets.size() <= 1) {
    return {};
  }
  // Tiles a dimension, and the cores of each tile in row-major order of the tiles.
  driver::Shape tiles;
  for (size_t d = 0; d < global.size(); ++d) {
    tiles.push_back(layout.local[d] > 0 ? global[d] / layout.local[d] : 1);
  }
  std::vector<std::array<size_t, 3>> order;  // tile, term, core
  int64_t count = 1;
  for (const int64_t n : tiles) {
    count *= n;
  }
  for (size_t core = 0; core < layout.offsets.size(); ++core) {
    int64_t tile = 0;
    for (size_t d = 0; d < tiles.size(); ++d) {
      tile = tile * tiles[d] + (tiles[d] > 1 ? layout.offsets[core][d] / layout.local[d] : 0);
    }
    const auto term = static_cast<size_t>(layout.terms.empty() ? 0 : layout.terms[core]);
    order.push_back({static_cast<size_t>(tile), term, core});
  }
  std::sort(order.begin(), order.end());
  std::vector<size_t> cores;
  for (const auto& [tile, term, core] : order) {
    cores.push_back(core);
  }
  const int64_t terms = static_cast<int64_t>(order.back()[1]) + 1;
  const int64_t copies = static_cast<int64_t>(cores.size()) / count / terms;
  if (terms > 1) {
    tiles.push_back(terms);
  }
  if (copies > 1) {
    tiles.push_back(copies);
  }
  std::string bytes;
  put_number(bytes, 1, 3);  // OTHER
  put_bytes(bytes, 3, packed(tiles));
  put_bytes(bytes, 4, packed(cores));
  if (terms >
      1) {  // what the last dimensions of the tiles count: UNREDUCED terms, REPLICATED copies
    put_bytes(bytes, 8, packed(copies > 1 ? std::vector{6, 0} : std::vector{6}));
  } else if (copies > 1) {
    put_number(bytes, 6, 1);  // the last dimension of the tiles counts equal copies
  }
  return bytes;
}

}  // namespace tpu::pjrt
