// The programs of a training run, for the number of cores that its configuration wants.
#pragma once

#include <cstddef>
#include <vector>

#include "cli/compile_file.hpp"
#include "loop/train_config.hpp"
#include "tpu/board.hpp"

namespace tpu::driver {

struct TrainPrograms {
  CompiledFile train;
  std::vector<std::byte> eval;  ///< empty: none
  /// Arguments of the train program whose dimension 0 is cut over the cores; none: it says itself
  /// what its cores do.
  std::vector<size_t> data_parallel;
};

/// Compiles what is no executable yet. With run.cores a program that says nothing of cores is made
/// one of so many: each has a part of the batch. Throws Error: a number of cores that is neither 1
/// nor all of the board, a program that is of another number.
TrainPrograms train_programs(const training::TrainConfig& config, const OpenOptions& options);

}  // namespace tpu::driver
