// Programs in, executables out: compiled, or taken from bytes that an executable was stored as.
#include <cstring>
#include <span>
#include <string_view>

#include "call_log.hpp"
#include "calls.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "partitioner.hpp"

struct PJRT_SerializedExecutable {
  std::string bytes;
};
struct PJRT_DeviceAssignmentSerialized {
  std::string bytes;
};
struct PJRT_SerializedCompileOptions {
  std::string bytes;
};

namespace tpu::pjrt {
namespace {

compiler::ImportOptions import_options(const BuildOptions& build) {
  return {.replicas = build.replicas, .partitions = build.partitions, .layouts = true};
}

// The compiler tells the forms by their first bytes.
void check_format(std::string_view format, std::span<const std::byte> code) {
  if (format != "mlir" && format != "hlo" && format != "hlo_with_config") {
    throw_unimplemented("program format '" + std::string(format) +
                        "'; the plugin reads \"mlir\", \"hlo\" and \"hlo_with_config\"");
  }
  if (format != "mlir" && !compiler::is_hlo(code)) {
    throw_invalid("the program is of format '" + std::string(format) +
                  "': expected a serialized HloModuleProto, found other bytes");
  }
}

std::shared_ptr<const client::CompiledProgram> compile(const PJRT_Program* program,
                                                       std::string_view options) {
  const PJRT_Program& source = need(program, "program");
  const std::string_view format(source.format, source.format_size);
  const std::span code(reinterpret_cast<const std::byte*>(source.code), source.code_size);
  check_format(format, code);
  const BuildOptions build = read_build_options(options);
  auto compiled = client::compile_program(code, {.cores = build.devices,
                                                 .import = import_options(build),
                                                 .partitioner = framework_partitioner(),
                                                 .text = asks_for_texts});
  for (const std::string& line : compiled->executable->notes) {
    CallLog::note(line);
  }
  return compiled;
}

std::vector<PJRT_Device*> devices_of(PJRT_Client& client, const ExecutableInfo& info) {
  std::vector<int> ids = info.build.devices;
  if (ids.empty() && !info.build.portable) {
    const int64_t devices = info.build.replicas * info.build.partitions;
    for (int64_t p = 0; p < devices; ++p) {
      ids.push_back(info.build.device_ordinal >= 0 && devices == 1
                        ? static_cast<int>(info.build.device_ordinal)
                        : static_cast<int>(p));
    }
  }
  std::vector<PJRT_Device*> devices;
  for (const int id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= client.devices.size()) {
      throw_invalid("compile options: device " + std::to_string(id) + ": expected one of the " +
                    std::to_string(client.devices.size()) + " of this board");
    }
    devices.push_back(client.devices[static_cast<size_t>(id)]);
  }
  return devices;
}

PJRT_LoadedExecutable* new_loaded(PJRT_Client* client, std::shared_ptr<const ExecutableInfo> info) {
  auto loaded = std::make_unique<PJRT_LoadedExecutable>();
  loaded->client = need(client, "client").shared_from_this();
  loaded->devices = devices_of(*client, *info);
  std::vector<int> ids;
  for (PJRT_Device* device : loaded->devices) {
    ids.push_back(device->id);
    if (device->local_id >= 0) {
      loaded->addressable.push_back(device);
    }
  }
  loaded->assignment = info->build.assignment.empty() ? device_assignment(ids, info->build.replicas)
                                                      : info->build.assignment;
  loaded->info = std::move(info);
  return loaded.release();
}

// A stored executable: magic, then three parts, each with its length (8 bytes, low first) before
// it: compile options, artifact, container.
constexpr std::string_view kMagic = "TPUPJRT1";

void put_part(std::string& to, std::string_view part) {
  for (unsigned shift = 0; shift < 64; shift += 8) {
    to.push_back(static_cast<char>(part.size() >> shift & 0xff));
  }
  to += part;
}

std::string_view take_part(std::string_view& from) {
  uint64_t size = 0;
  for (unsigned i = 0; i < 8 && i < from.size(); ++i) {
    size |= static_cast<uint64_t>(static_cast<unsigned char>(from[i])) << (8 * i);
  }
  if (from.size() < 8 || from.size() - 8 < size) {
    throw_invalid("the serialized executable is truncated");
  }
  const std::string_view part = from.substr(8, size);
  from.remove_prefix(8 + size);
  return part;
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

// Gives `text` to the caller, with the function that frees it.
template <typename Holder, typename Args>
void give(std::string text, Args& args, Holder*& holder, void (*&deleter)(Holder*)) {
  holder = new Holder{std::move(text)};
  deleter = [](Holder* done) { delete done; };
  args.serialized_bytes = holder->bytes.data();
  args.serialized_bytes_size = holder->bytes.size();
}

}  // namespace

void call(PJRT_Client_Compile_Args& args) {
  const auto working = need(args.client, "client").runtime->host_work();
  const std::string options(args.compile_options, args.compile_options_size);
  args.executable =
      new_loaded(args.client, executable_info(compile(args.program, options), options));
}

void call(PJRT_Compile_Args& args) {
  need(args.topology, "topology");
  const std::string options(args.compile_options, args.compile_options_size);
  args.executable = new PJRT_Executable{executable_info(compile(args.program, options), options)};
}

void call(PJRT_Executable_Serialize_Args& args) {
  const ExecutableInfo& info = *need(args.executable, "executable").info;
  std::string bytes(kMagic);
  put_part(bytes, info.build_bytes);
  put_part(bytes, text_of(info.program->artifact));
  put_part(bytes, text_of(exe::write_executable(*info.program->executable)));
  give(std::move(bytes), args, args.serialized_executable, args.serialized_executable_deleter);
}

void call(PJRT_Executable_DeserializeAndLoad_Args& args) {
  std::string_view left(args.serialized_executable, args.serialized_executable_size);
  if (!left.starts_with(kMagic)) {
    throw_invalid("expected an executable of this plugin, found other bytes");
  }
  left.remove_prefix(kMagic.size());
  std::string options(take_part(left));
  std::vector<std::byte> artifact = bytes_of(take_part(left));
  const std::vector<std::byte> container = bytes_of(take_part(left));
  if (args.overridden_serialized_compile_options != nullptr) {
    options.assign(args.overridden_serialized_compile_options,
                   args.overridden_serialized_compile_options_size);
  }
  args.loaded_executable = new_loaded(
      args.client,
      executable_info(client::stored_program(container, std::move(artifact),
                                             import_options(read_build_options(options))),
                      options));
}

void call(PJRT_Executable_GetCompileOptions_Args& args) {
  give(need(args.executable, "executable").info->build_bytes, args, args.serialized_compile_options,
       args.serialized_compile_options_deleter);
}

void call(PJRT_LoadedExecutable_GetDeviceAssignment_Args& args) {
  give(need(args.executable, "executable").assignment, args, args.serialized_device_assignment,
       args.serialized_device_assignment_deleter);
}

}  // namespace tpu::pjrt
