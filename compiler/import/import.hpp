// Public entry of the import: a StableHLO portable artifact, as jax.export writes it, to a verified
// graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ir/graph.hpp"

namespace tpu::compiler {

// What whoever compiles a program knows beside it.
struct ImportOptions {
  // The number of replicas and partitions; 0: as the program says, else one. A program that says
  // another number above one is refused. Where it says none, replicas that have no collective and
  // no replica_id have nothing to do with each other: it is a program of one core.
  int64_t replicas = 0, partitions = 0;
  // Arguments and results lie in memory as the attribute `mhlo.layout_mode` says
  // (jax.experimental.layout); else the program's arrays are as in files, row-major.
  bool layouts = false;
  // Custom calls of jax.experimental.custom_partitioning are taken: Module::partitioner is to be
  // set for the pass `partition`.
  bool own_partitioning = false;
  bool operator==(const ImportOptions&) const = default;
};

// Reads `artifact` (Exported.mlir_module_serialized). The module is the global graph: whole arrays,
// shardings as attributes. Calls and composites are kept: run the passes `inline` and `partition`
// next. `name`: of the module; empty: its own. Throws compiler::Error
// for damaged files and for anything that is not supported.
Module import_vhlo(std::span<const std::byte> artifact, const std::string& name,
                   const ImportOptions& options = {});

// The same from a file; the module is named after the file.
Module import_vhlo_file(const std::string& path);

// True of bytes that begin as a serialized HloModuleProto, the program form of PyTorch/XLA and of
// XLA itself: "hlo" in PJRT, files .hlo.pb. HloProto, HloModuleProtoWithConfig and HloSnapshot,
// which wrap one, are known too.
bool is_hlo(std::span<const std::byte> program);

// Either of the two, told by its first bytes.
Module import_program(std::span<const std::byte> program, const std::string& name,
                      const ImportOptions& options = {});
Module import_program_file(const std::string& path);
// The same with what the file holds, for whoever imports it more than once: it may be a pipe.
Module import_program_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace tpu::compiler
