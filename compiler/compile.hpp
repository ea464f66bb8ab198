// The entry of the compiler, for commands and plugins: a StableHLO portable artifact and a board
// in, an executable out. Nothing is kept between calls; calls in several threads share nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "exe/executable.hpp"
#include "finite_watch.hpp"
#include "import/import.hpp"
#include "ir/error_kinds.hpp"
#include "ir/graph.hpp"
#include "pass/pass_log.hpp"
#include "style.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

// Whether the update of replicated state may be cut over the cores (shard_update.hpp). Results have
// the same bits in all modes.
enum class UpdateSharding : uint8_t {
  kAuto,  // where it is legal and the estimate of its traffic says that it is faster
  kOn,    // wherever it is legal; the executable's notes say where it is not
  kOff,
};

// Who partitions the custom calls of jax.experimental.custom_partitioning: the answer's artifact is
// the program of one core.
struct FrameworkPart {
  std::vector<std::byte> artifact;
  std::vector<TileList> operand_tiles, result_tiles;
};
using FrameworkPartitioner = std::function<FrameworkPart(const PartitionRequest&)>;

struct CompileOptions {
  // Values have the same bits in all styles but those whose rules say otherwise (style.hpp).
  Style style = Style::kBest;
  ImportOptions import = {};
  FrameworkPartitioner partitioner;  // none: such calls are refused
  UpdateSharding update_sharding = UpdateSharding::kAuto;
  // Of the numbers that `rng` ops draw: the same seed gives the same numbers.
  uint64_t rng_seed = 0;
  // One more result, behind the others: which values are not finite (finite_watch.hpp).
  bool watch_finite = false;
  // More results, behind the others: what each op makes (kept_values.hpp). Updates are not cut.
  bool keep_values = false;
  // Core of the board on which each partition runs, each another one. None: partition p on core p.
  std::vector<int> cores;
  // Of a program that says nothing of cores: these arguments hold a batch in dimension 0, which is
  // cut over `cores`, else over all of the board (data_parallel.hpp). None: the program as it is.
  std::vector<size_t> data_parallel;
  // Stages (of stages()) whose text `dump` is called with, as soon as it is known: also of a
  // program that a later stage refuses.
  std::vector<std::string> dump_after;
  std::function<void(const std::string& stage, const std::string& text)> dump;
  // The report says of each pass how often and how long it ran, what it changed, and why it gave up.
  bool stats = false;
  // Called as the work goes on, some thousand times for a large program: what is done next, and the
  // share of the work that is behind, from 0 to 1, by the shares that stages usually have.
  std::function<void(const std::string& stage, double done)> progress;
};

// What is known of a compilation beside what the executable says (its sizes, notes and estimated
// cycles).
struct CompileReport {
  Module graph;  // the graph that kernels were made of
  // With UpdateSharding::kOn and no update cut: why not.
  std::vector<std::string> unsharded;
  // What the sharding pass made the cores exchange; see describe_moved().
  std::vector<MovedArray> moved;
  FiniteWatch finite;  // with CompileOptions::watch_finite
  PassReport passes;   // with CompileOptions::stats
};

// Why these options cannot be had together; empty: they can.
std::string contradiction(const CompileOptions& options);

struct Compiled {
  exe::ExecutableT executable;
  CompileReport report;
};

// The exchanges as lines of text: one of all sums together, then one for each array that could not
// stay where it was, with op, source line and bytes, the largest first.
std::vector<std::string> describe_moved(const std::vector<MovedArray>& moved);

// Names of all stages, in order.
std::vector<std::string> stages();

// Compiles an artifact (Exported.mlir_module_serialized); `name` becomes the executable's (empty:
// that of the module). Throws Error: a damaged file, an op or type that is not supported (with its
// source line), memory of the board that does not suffice (HbmExhausted, with the largest buffers).
Compiled compile(std::span<const std::byte> artifact, const std::string& name,
                 const spec::BoardParams& board, const CompileOptions& options = {});

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

// The same of a module as the import makes it (import.hpp).
Compiled compile(Module module, const spec::BoardParams& board, const CompileOptions& options = {});

}  // namespace tpu::compiler
