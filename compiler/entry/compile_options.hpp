// What a compilation is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "entry/style.hpp"
#include "import/import.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler {

// Whether the update of replicated state may be cut over the cores (shard_update.hpp). Results have
// the same bits in all modes.
enum class UpdateSharding : uint8_t {
  kAuto,  // where it is legal and the estimate of its traffic says that it is faster
  kOn,    // wherever it is legal; the executable's notes say where it is not
  kOff,
};

// Whether equal layers that the program writes out become loops (passes/roll.hpp). Results have the
// same bits in all modes.
enum class RollLayers : uint8_t {
  kAuto,  // of a program that is too long otherwise
  kOn,
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
  RollLayers roll_layers = RollLayers::kAuto;
  // Of the numbers that `rng` ops draw: the same seed gives the same numbers.
  uint64_t rng_seed = 0;
  // One more result, behind the others: which values are not finite (finite_watch.hpp).
  bool watch_finite = false;
  // More results, behind the others: what each op makes (kept_values.hpp). Updates are not cut,
  // and layers are not rolled.
  bool keep_values = false;
  // Core of the board on which each partition runs, each another one. None: partition p on core p.
  std::vector<int> cores;
  // Of a program that says nothing of cores: these arguments hold a batch in dimension 0, which is
  // cut over `cores`, else over all of the board (data_parallel.hpp). None: the program as it is.
  std::vector<size_t> data_parallel;
  // HBM of a core that the program may use with its instructions. 0: all that a core has.
  int64_t hbm_bytes = 0;
  // A program that needs more is compiled again with fewer values kept, in place of being refused.
  bool fit = true;
  // Time is spent where that needs fewer bytes of HBM.
  bool least_memory = false;
  // Exchanges start early (early_exchanges.hpp), which takes HBM: not for a program that does not
  // fit then.
  bool early_exchanges = true;
  // Exchanges go piece by piece beside products where the estimate is lower with it
  // (pieced_exchanges.hpp).
  bool pieced_exchanges = true;
  // Kernels run beside transfers with the host's memory (memory_transfers.hpp), which takes HBM,
  // too.
  bool host_beside = true;
  // Stages (of stages()) whose text `dump` is called with, as soon as it is known: also of a
  // program that a later stage refuses.
  std::vector<std::string> dump_after;
  std::function<void(const std::string& stage, const std::string& text)> dump;
  // The report says of each pass how often and how long it ran, what it changed, why it gave up.
  bool stats = false;
  // The report has what core_program_text() gives.
  bool core_text = false;
  // Called as the work goes on, some thousand times for a large program: what is done next, and the
  // share of the work that is behind, from 0 to 1, by the shares that stages usually have.
  std::function<void(const std::string& stage, double done)> progress;
};

}  // namespace tpu::compiler
