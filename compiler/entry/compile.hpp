// The entry of the compiler, for commands and plugins: a StableHLO portable artifact and a board
// in, an executable out. Nothing is kept between calls; calls in several threads share nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "entry/compile_options.hpp"
#include "exe/executable.hpp"
#include "import/import.hpp"
#include "import/join_replicas.hpp"
#include "instrument/finite_watch.hpp"
#include "ir/error_kinds.hpp"
#include "ir/graph.hpp"
#include "pass/pass_log.hpp"
#include "passes/roll.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

// What is known of a compilation beside what the executable says (its sizes, notes and estimated
// cycles).
struct CompileReport {
  Module graph;  // the graph that kernels were made of
  // Why no update is sharded; empty: some are.
  std::vector<std::string> unsharded;
  // What the sharding pass made the cores exchange; see describe_moved().
  std::vector<MovedArray> moved;
  std::vector<RolledLayers> rolled;  // equal layers that became loops
  FiniteWatch finite;                // with CompileOptions::watch_finite
  PassReport passes;                 // with CompileOptions::stats
  std::string core_text;             // with CompileOptions::core_text
};

struct Compiled {
  exe::ExecutableT executable;
  CompileReport report;
};

// The exchanges as lines of text: one of all sums together, then one for each array that could not
// stay where it was, with op, source line and bytes, the largest first.
std::vector<std::string> describe_moved(const std::vector<MovedArray>& moved);

// The loops as lines of text.
std::vector<std::string> describe_rolled(const std::vector<RolledLayers>& rolled);

// Names of all stages, in order.
std::vector<std::string> stages();

// Compiles an artifact (Exported.mlir_module_serialized); `name` becomes the executable's (empty:
// that of the module). Throws Error: a damaged file, an op or type that is not supported (with its
// source line), memory of the board that does not suffice (HbmExhausted, with the largest buffers).
Compiled compile(std::span<const std::byte> artifact, const std::string& name,
                 const spec::BoardParams& board, const CompileOptions& options = {});

// The programs of the replicas of one launch, by replica, as one program
// (import/join_replicas.hpp), to be compiled: it takes its arguments from those of the replicas, or
// as constants. `options` has the number of replicas. Throws Error with the first difference that
// one program cannot have.
JoinedReplicas joined_program(const std::vector<std::span<const std::byte>>& artifacts,
                              const ImportOptions& options);

// The program of one core as StableHLO in MLIR's text: imported, partitioned and simplified, before
// it becomes kernels (export/stablehlo_text.hpp), with the sums that cores exchange together as one
// op. Throws Error as compile() does.
std::string core_program_text(std::span<const std::byte> artifact, const spec::BoardParams& board,
                              const ImportOptions& options = {},
                              const FrameworkPartitioner& partitioner = {});

// What an artifact says of itself before it is compiled.
struct ProgramInterface {
  int64_t cores = 1;
  std::vector<std::string> arguments;  // names; empty ones where it gives none
  size_t results = 0;
};
ProgramInterface interface_of(std::span<const std::byte> artifact);

// By argument and core the part that the program wants the core to have, a number a dimension; no
// parts for an argument of which it says nothing. For arguments without elements: an executable
// says which elements a core has, and of those there are none to tell parts by.
std::vector<std::vector<Dims>> argument_parts(std::span<const std::byte> artifact,
                                              const ImportOptions& options = {});

// The same of what `import` makes, which is called once more for a program that is too long.
Compiled compile(const std::function<Module()>& import, const spec::BoardParams& board,
                 const CompileOptions& options = {});

// The same of a module as the import makes it (import.hpp); RollLayers::kAuto rolls nothing, since
// a program that is too long is compiled again from the start.
Compiled compile(Module module, const spec::BoardParams& board, const CompileOptions& options = {});

}  // namespace tpu::compiler
