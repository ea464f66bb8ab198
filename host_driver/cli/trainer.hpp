// Trainer: runs a train program over a dataset and an eval program over the held-out examples.
// Keeps a few launches in flight, so that uploads and losses do not make the board wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/dataset.hpp"
#include "cli/measure.hpp"
#include "tpu/board.hpp"

namespace tpu::driver {

struct EvalResult {
  double accuracy = 0;
  std::optional<double> loss;
};

struct EpochResult {
  int64_t epoch = 0;  ///< from 1 on
  double train_loss = 0;
  std::optional<EvalResult> eval;
};

/// Called after each step whose loss has come back.
struct Progress {
  int64_t epoch = 0;
  int64_t step = 0;
  int64_t steps = 0;
  float loss = 0;
};

class Trainer {
 public:
  /// Checks the programs against the convention of docs/host_driver.md; throws InvalidArgument.
  /// `has_data`: false for a board that computes nothing; then replicas are not compared, and there
  /// are no losses and no accuracy.
  Trainer(const Board& board, const TrainConfig& config, Executable train,
          std::optional<Executable> eval, bool has_data = true);

  void train(int64_t max_steps, const std::function<void(const Progress&)>& progress,
             const std::function<void(const EpochResult&)>& epoch_done);
  EvalResult evaluate();

  int64_t planned_steps(int64_t max_steps) const;
  const std::vector<float>& losses() const { return losses_; }
  /// Host time between the losses of two steps; of an epoch's first step, since its start.
  const std::vector<double>& step_seconds() const { return step_seconds_; }
  const std::vector<EpochResult>& epochs() const { return epochs_; }
  const Window& window() const { return window_; }
  const Board& board() const { return board_; }
  const Executable& program() const { return train_; }
  bool has_data() const { return has_data_; }

  /// The state on the host, compared over the cores when the board computes.
  std::vector<HostArray> state();

 private:
  struct InFlight {
    float loss = 0;
    Event ready;
  };

  void check_train() const;
  void check_eval() const;
  std::vector<HostArray> initial_state() const;
  void submit(const std::vector<uint32_t>& order, size_t first);
  void take_loss(const Progress& at, const std::function<void(const Progress&)>& progress);

  Board board_;
  const TrainConfig& config_;
  Executable train_;
  std::optional<Executable> eval_;
  const bool has_data_;
  size_t leaves_;
  Dataset data_;
  std::vector<Array> state_;
  std::deque<InFlight> in_flight_;
  std::vector<float> losses_;
  std::vector<double> step_seconds_;
  std::chrono::steady_clock::time_point last_loss_;
  std::vector<EpochResult> epochs_;
  Window window_;
};

}  // namespace tpu::driver
