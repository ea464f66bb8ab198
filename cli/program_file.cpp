// Listings follow the order of the file's tables.
#include "cli/program_file.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "exe/executable.hpp"
#include "figures/program_cost.hpp"
#include "file/files.hpp"
#include "import/file.hpp"
#include "terminal/counted.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

std::string tensor_line(const exe::TensorT& tensor, const exe::ExecutableT& exe) {
  std::string text =
      fmt::format("{}[{}]", exe::elem_name(tensor.elem), fmt::join(tensor.global_dims, ","));
  if (!tensor.replicated || exe.partitions == 1) {
    text += fmt::format(", {}[{}] a core", exe::elem_name(tensor.elem),
                        fmt::join(tensor.local_dims, ","));
  } else {
    text += ", replicated";
  }
  text += fmt::format(", slot {}", tensor.slot);
  if (!tensor.owned_elements.empty()) {
    text += fmt::format(", sharded over its owners in {} runs", tensor.owned_elements.size());
  }
  if (const std::vector<uint16_t> terms = exe::terms_of(tensor); !terms.empty()) {
    text += fmt::format(", a sum; terms of the cores: {}", fmt::join(terms, ","));
  }
  if (tensor.donated_to >= 0) {
    text += fmt::format(", donated to result {}", tensor.donated_to);
  }
  return tensor.name.empty() ? text : text + "  # " + tensor.name;
}

std::string header_listing(const exe::ExecutableT& exe) {
  std::string text = fmt::format(
      "program {}\n  ISA version {}, board {} (hash {:016x}), {}\n  image {} bytes, "
      "estimated {} cycles, {} matmul operations a core and step\n  {} vector operations, {} "
      "bytes read and {} written in HBM, {} sent over links\n  VMEM peak {} bytes, HBM {} "
      "bytes a core\n",
      exe.name, exe.isa_version, exe.board_name, exe.board_hash,
      spec::counted(exe.partitions, "core"), exe.image.size(), exe.estimated_cycles,
      exe.matmul_flops, exe.vector_ops, exe.hbm_read_bytes, exe.hbm_written_bytes, exe.link_bytes,
      exe.vmem_peak_bytes, exe.hbm_bytes);
  text +=
      exe.sharded_update_bytes > 0
          ? fmt::format("  update sharding on: {} bytes of gradients\n", exe.sharded_update_bytes)
          : "  update sharding off\n";
  for (size_t i = 0; i < exe.args.size(); ++i) {
    text += fmt::format("argument {}: {}\n", i, tensor_line(*exe.args[i], exe));
  }
  for (size_t i = 0; i < exe.results.size(); ++i) {
    text += fmt::format("result {}: {}\n", i, tensor_line(*exe.results[i], exe));
  }
  for (size_t i = 0; i < exe.slots.size(); ++i) {
    const exe::SlotT& slot = *exe.slots[i];
    text += fmt::format("slot {}: {} {}, {} bytes\n", i, exe::EnumNameSlotKind(slot.kind),
                        slot.index, slot.bytes);
  }
  for (size_t i = 0; i < exe.ops.size(); ++i) {
    const exe::OpInfoT& op = *exe.ops[i];
    text += fmt::format("op {}: {} at {}:{}:{}\n", i, op.name, op.file, op.line, op.column);
  }
  for (const std::string& note : exe.notes) {
    text += fmt::format("note: {}\n", note);
  }
  return text;
}

nlohmann::ordered_json tensor_figures(const exe::TensorT& tensor) {
  nlohmann::ordered_json json = {{"name", tensor.name},
                                 {"type", exe::elem_name(tensor.elem)},
                                 {"shape", tensor.global_dims},
                                 {"shape_per_core", tensor.local_dims},
                                 {"replicated", tensor.replicated}};
  if (tensor.donated_to >= 0) {
    json["donated_to"] = tensor.donated_to;
  }
  return json;
}

}  // namespace

exe::ExecutableT parsed_program(std::span<const std::byte> executable, const std::string& path) {
  try {
    return exe::read_executable(executable);
  } catch (const exe::ExecutableError& error) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, error.what()));
  }
}

CompiledFile program_file(const std::string& path, const OpenOptions& options,
                          const std::vector<size_t>& data_parallel) {
  if (compiler::is_program_file(path)) {
    return compile_file(path, options.preset, options.overrides, data_parallel);
  }
  std::vector<std::byte> bytes = read_file(path);
  parsed_program(bytes, path);
  return {{}, std::move(bytes), {}};
}

compiler::ProgramInterface program_interface(const std::string& path) {
  if (compiler::is_program_file(path)) {
    return artifact_interface(path);
  }
  const exe::ExecutableT exe = parsed_program(read_file(path), path);
  compiler::ProgramInterface found{exe.partitions, {}, exe.results.size()};
  for (const auto& argument : exe.args) {
    found.arguments.push_back(argument->name);
  }
  return found;
}

Executable load_program(const Board& board, const std::string& path,
                        std::span<const std::byte> executable, int device, bool as_run) {
  try {
    return board.load(executable, device, as_run ? path : std::string());
  } catch (const Error& error) {
    const std::string& text = error.message();
    const bool named = text.starts_with(path + ": ");
    throw Error(error.code(), named ? text : path + ": " + text, error.place());
  }
}

std::vector<std::byte> program_bytes(const std::string& path, const OpenOptions& options) {
  return program_file(path, options).executable;
}

nlohmann::ordered_json program_figures(const std::string& path) {
  const exe::ExecutableT exe = parsed_program(read_file(path), path);
  const ProgramCost cost = program_cost(exe);
  nlohmann::ordered_json json = {{"program", exe.name},
                                 {"isa_version", exe.isa_version},
                                 {"board", exe.board_name},
                                 {"board_hash", fmt::format("{:016x}", exe.board_hash)},
                                 {"cores", exe.partitions}};
  json["cost"] = {
      {"matmul_flops", cost.matmul_flops},     {"vector_ops", cost.vector_ops},
      {"hbm_read_bytes", cost.hbm_read_bytes}, {"hbm_written_bytes", cost.hbm_written_bytes},
      {"link_bytes", cost.link_bytes},         {"estimated_cycles", cost.estimated_cycles},
      {"code_bytes", cost.code_bytes},         {"vmem_peak_bytes", cost.vmem_peak_bytes},
      {"argument_bytes", cost.argument_bytes}, {"result_bytes", cost.result_bytes},
      {"donated_bytes", cost.donated_bytes},   {"constant_bytes", cost.constant_bytes},
      {"scratch_bytes", cost.scratch_bytes},   {"hbm_bytes", cost.hbm_bytes}};
  for (const auto& [key, tensors] :
       {std::pair("arguments", &exe.args), std::pair("results", &exe.results)}) {
    json[key] = nlohmann::ordered_json::array();
    for (const auto& tensor : *tensors) {
      json[key].push_back(tensor_figures(*tensor));
    }
  }
  return json;
}

std::string program_listing(const std::string& path) {
  const exe::ExecutableT exe = parsed_program(read_file(path), path);
  return header_listing(exe) + "\n" + disassemble_program(exe);
}

}  // namespace tpu::driver
