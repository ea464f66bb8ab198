// Compiled programs: made from an artifact or a file, and what is known of them before they are
// loaded.
#include <utility>

#include "board/board_loader.hpp"
#include "compiled_program.hpp"
#include "handles.hpp"
#include "process_board.hpp"

namespace tpu::c_api {
namespace {

std::span<const std::byte> bytes_of(const void* data, size_t bytes, const char* name) {
  return {&need(static_cast<const std::byte*>(data), name), bytes};
}

compiler::UpdateSharding update_sharding(tpu_update_sharding from) {
  switch (from) {
    case TPU_UPDATE_SHARDING_AUTO:
      return compiler::UpdateSharding::kAuto;
    case TPU_UPDATE_SHARDING_OFF:
      return compiler::UpdateSharding::kOff;
    case TPU_UPDATE_SHARDING_ON:
      return compiler::UpdateSharding::kOn;
  }
  refuse("options->update_sharding: expected a tpu_update_sharding");
}

std::unique_ptr<tpu_program> program_of(std::shared_ptr<const exe::ExecutableT> executable) {
  auto program = std::make_unique<tpu_program>();
  program->notes = executable->notes;
  program->executable = std::move(executable);
  return program;
}

// The cores of the partitions, each another one of the board.
std::vector<int> cores_of(const tpu_compile_options& from) {
  if (from.core_count == 0) {
    return {};
  }
  const auto all = static_cast<size_t>(spec::core_count(client::ProcessBoard::params()));
  need_most(from.core_count, all, "options->core_count",
            "the board has " + std::to_string(all) + " cores");
  std::vector<int> cores(&need(from.cores, "options->cores"), from.cores + from.core_count);
  std::vector<bool> taken(all);
  for (const int core : cores) {
    if (core < 0 || std::cmp_greater_equal(core, all) || taken[static_cast<size_t>(core)]) {
      refuse("options->cores names core " + std::to_string(core) +
             ", which is taken or not on the board; its cores are 0 to " + std::to_string(all - 1));
    }
    taken[static_cast<size_t>(core)] = true;
  }
  return cores;
}

std::unique_ptr<tpu_program> compiled(std::span<const std::byte> artifact,
                                      const tpu_compile_options& from) {
  client::ProgramForm form;
  form.name = from.name == nullptr ? "main" : from.name;
  form.update_sharding = update_sharding(from.update_sharding);
  form.cores = cores_of(from);
  const auto program = client::compile_program(artifact, form);
  const uint32_t partitions = program->executable->partitions;
  if (!form.cores.empty() && form.cores.size() != partitions) {
    refuse("options->cores names " + std::to_string(form.cores.size()) +
           " cores, the program is for " + std::to_string(partitions));
  }
  return program_of(program->executable);
}

std::unique_ptr<tpu_program> read(std::span<const std::byte> file) {
  return program_of(std::make_shared<const exe::ExecutableT>(exe::read_executable(file)));
}

tpu_program_info info_of(const tpu_program& program) {
  const exe::ExecutableT& from = *program.executable;
  tpu_program_info info{};
  info.name = from.name.c_str();
  info.partitions = from.partitions;
  info.argument_count = static_cast<uint32_t>(from.args.size());
  info.result_count = static_cast<uint32_t>(from.results.size());
  info.note_count = static_cast<uint32_t>(program.notes.size());
  info.estimated_cycles = from.estimated_cycles;
  info.matmul_flops = from.matmul_flops;
  info.vector_ops = from.vector_ops;
  info.hbm_read_bytes = from.hbm_read_bytes;
  info.hbm_written_bytes = from.hbm_written_bytes;
  info.link_bytes = from.link_bytes;
  info.vmem_peak_bytes = from.vmem_peak_bytes;
  info.hbm_bytes = from.hbm_bytes;
  return info;
}

using Tensors = std::vector<std::unique_ptr<exe::TensorT>>;

void give_parameter(const Tensors& from, uint32_t index, const char* what, tpu_parameter* out) {
  if (index >= from.size()) {
    refuse("there is no " + std::string(what) + " " + std::to_string(index) + "; the program has " +
           std::to_string(from.size()));
  }
  const exe::TensorT& tensor = *from[index];
  tpu_parameter parameter{};
  parameter.name = tensor.name.c_str();
  parameter.dtype = static_cast<tpu_dtype>(tensor.elem);
  parameter.donated_to = tensor.donated_to;
  parameter.rank = tensor.global_dims.size();
  parameter.shape = tensor.global_dims.data();
  parameter.local_shape = tensor.local_dims.data();
  parameter.offsets = tensor.offsets.data();
  parameter.replicated = tensor.replicated ? 1 : 0;
  give(out, parameter, "parameter");
}

}  // namespace
}  // namespace tpu::c_api

using namespace tpu::c_api;  // NOLINT: the calls are its only users

tpu_status tpu_compile(const void* artifact, size_t bytes, const tpu_compile_options* options,
                       tpu_program** out) {
  return guarded([&] {
    need(out, "out");
    *out = compiled(bytes_of(artifact, bytes, "artifact"), taken(options, "options")).release();
  });
}

tpu_status tpu_program_read(const void* file, size_t bytes, tpu_program** out) {
  return guarded([&] {
    need(out, "out");
    *out = read(bytes_of(file, bytes, "file")).release();
  });
}

tpu_status tpu_program_bytes(const tpu_program* program, const void** data, size_t* bytes) {
  return guarded([&] {
    const auto& container = need(program, "program").container();
    need(bytes, "bytes");
    need(data, "data") = container.data();
    *bytes = container.size();
  });
}

tpu_status tpu_get_program_info(const tpu_program* program, tpu_program_info* info) {
  return guarded([&] { give(info, info_of(need(program, "program")), "info"); });
}

tpu_status tpu_program_argument(const tpu_program* program, uint32_t index,
                                tpu_parameter* parameter) {
  return guarded([&] {
    give_parameter(need(program, "program").executable->args, index, "argument", parameter);
  });
}

tpu_status tpu_program_result(const tpu_program* program, uint32_t index,
                              tpu_parameter* parameter) {
  return guarded([&] {
    give_parameter(need(program, "program").executable->results, index, "result", parameter);
  });
}

int32_t tpu_program_core(const tpu_program* program, uint32_t partition) {
  if (program == nullptr || partition >= program->executable->partitions) {
    return -1;
  }
  const std::vector<uint16_t> cores = tpu::exe::cores_of(*program->executable);
  return static_cast<int32_t>(cores.empty() ? partition : cores[partition]);
}

const char* tpu_program_note(const tpu_program* program, uint32_t index) {
  const bool there = program != nullptr && index < program->notes.size();
  return there ? program->notes[index].c_str() : nullptr;
}

void tpu_program_destroy(tpu_program* program) { delete program; }
