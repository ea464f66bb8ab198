// A program is cut only where its own number of cores is 1 and more are wanted; whatever says
// itself how it is cut stays as it is, or is refused.
#include "cli/train/train_programs.hpp"

#include <fmt/format.h>

#include "check/refuse.hpp"
#include "cli/program_file.hpp"
#include "import/file.hpp"
#include "loop/signature.hpp"
#include "terminal/counted.hpp"

namespace tpu::driver {
namespace {

using training::ProgramNames;
using training::TrainConfig;

// A board is given out as one core or as a whole, as users of the real one know it.
void check_cores(const TrainConfig& config, const OpenOptions& options) {
  const int64_t all = board_cores(options.preset, options.overrides);
  if (config.cores != 1 && config.cores != all) {
    refuse(fmt::format(
        "run.cores (--cores): the number of cores must be either 1 or {}, got {} instead; {}", all,
        config.cores,
        all == 1 ? "the board has one core"
                 : "a slice of the board is one of its cores or all of them"));
  }
}

// True where the program has to be cut over the cores.
bool is_cut(const std::string& path, int64_t own, int64_t wanted) {
  if (own == wanted) {
    return false;
  }
  const bool artifact = compiler::is_program_file(path);
  if (own == 1 && artifact) {
    return true;
  }
  refuse(fmt::format(
      "{}: {} {}, but run.cores (--cores) is {}; {}", path,
      artifact ? "the program says itself that it runs on" : "compiled for",
      spec::counted(own, "core"), wanted,
      artifact
          ? "export it without a mesh and jax.shard_map, and it trains on 1 core and on all of "
            "them; or name one program for each, with {cores} in its file name"
          : "give the .mlirbc that it was compiled from"));
}

ProgramNames names_of(const std::string& path, const compiler::ProgramInterface& program) {
  return {compiler::program_name(path), program.arguments, program.results};
}

}  // namespace

TrainPrograms train_programs(const TrainConfig& config, const OpenOptions& options) {
  TrainPrograms programs;
  std::vector<size_t> eval_batch;
  if (config.cores > 0) {
    check_cores(config, options);
    const compiler::ProgramInterface train = program_interface(config.train);
    const ProgramNames train_names = names_of(config.train, train);
    if (is_cut(config.train, train.cores, config.cores)) {
      programs.data_parallel = training::batch_arguments(config, train_names);
    }
    if (!config.eval.empty()) {
      const compiler::ProgramInterface eval = program_interface(config.eval);
      if (is_cut(config.eval, eval.cores, config.cores)) {
        eval_batch =
            training::eval_batch_arguments(config, names_of(config.eval, eval), train_names);
      }
    }
  }
  programs.train = program_file(config.train, options, programs.data_parallel);
  if (!config.eval.empty()) {
    programs.eval = program_file(config.eval, options, eval_batch).executable;
  }
  return programs;
}

}  // namespace tpu::driver
