// Listings follow the order of the file's tables.
#include "cli/program_file.hpp"

#include <fmt/format.h>

#include "cli/files.hpp"
#include "exe/executable.hpp"
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
    text += fmt::format(", kept by its owners in {} runs", tensor.owned_elements.size());
  }
  if (tensor.donated_to >= 0) {
    text += fmt::format(", donated to result {}", tensor.donated_to);
  }
  return tensor.name.empty() ? text : text + "  # " + tensor.name;
}

std::string header_listing(const exe::ExecutableT& exe) {
  std::string text = fmt::format(
      "program {}\n  ISA version {}, board {} (hash {:016x}), {} core(s)\n  image {} bytes, "
      "estimated {} cycles, {} matmul operations a core and step\n  VMEM peak {} bytes, HBM {} "
      "bytes a core\n",
      exe.name, exe.isa_version, exe.board_name, exe.board_hash, exe.partitions, exe.image.size(),
      exe.estimated_cycles, exe.matmul_flops, exe.vmem_peak_bytes, exe.hbm_bytes);
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
    text += fmt::format("slot {}: {} {}, {} bytes", i, exe::EnumNameSlotKind(slot.kind), slot.index,
                        slot.bytes);
    text += slot.alias_of >= 0 ? fmt::format(", same memory as slot {}\n", slot.alias_of) : "\n";
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

exe::ExecutableT read(const std::string& path) {
  try {
    return exe::read_executable(read_file(path));
  } catch (const exe::ExecutableError& error) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace

CompiledFile program_file(const std::string& path, const OpenOptions& options) {
  if (path.ends_with(".mlirbc")) {
    return compile_file(path, options.preset, options.overrides);
  }
  return {read_file(path), {}};
}

std::vector<std::byte> program_bytes(const std::string& path, const OpenOptions& options) {
  return program_file(path, options).executable;
}

std::string program_listing(const std::string& path) {
  const exe::ExecutableT exe = read(path);
  return header_listing(exe) + "\n" + disassemble_program(exe);
}

}  // namespace tpu::driver
