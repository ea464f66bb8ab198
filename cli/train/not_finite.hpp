// Where a loss that is not finite came from: the steps before it are run again from the last
// checkpoint or the initial state, and the last ones by a program that watches its values.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/train/run_checkpoints.hpp"
#include "loop/trainer.hpp"
#include "tpu/board.hpp"

namespace tpu::driver {

class NotFiniteSearch {
 public:
  /// `options`: of the board. `data_parallel`: how the train program was compiled.
  NotFiniteSearch(training::Trainer& trainer, const training::TrainConfig& config,
                  RunCheckpoints& checkpoints, const OpenOptions& options,
                  const std::vector<size_t>& data_parallel)
      : trainer_(trainer),
        config_(config),
        checkpoints_(checkpoints),
        options_(options),
        data_parallel_(data_parallel) {}

  /// A text that begins with a line break: the first op whose result is not finite, with its
  /// source line, and the state leaves that are not finite behind it; else why it is not known. The
  /// trainer is of no use afterwards. Ctrl-C ends the search.
  std::string explain(const training::NotFinite& error);

 private:
  struct Watched;

  std::string search(int64_t step);
  std::optional<std::string> look(Watched& watched, int64_t first, int64_t last);
  std::string found(const Watched& watched, int64_t step, size_t value) const;
  std::string argument_text(size_t argument, int64_t step) const;

  training::Trainer& trainer_;
  const training::TrainConfig& config_;
  RunCheckpoints& checkpoints_;
  const OpenOptions& options_;
  const std::vector<size_t>& data_parallel_;
};

}  // namespace tpu::driver
