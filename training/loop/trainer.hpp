// Trainer: runs a train program over a dataset and an eval program over the held-out examples.
// Keeps a few steps in flight, so that uploads and losses do not make the board wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "figures/measure.hpp"
#include "loop/dataset.hpp"
#include "loop/evaluator.hpp"
#include "loop/replays.hpp"
#include "loop/result_reads.hpp"
#include "loop/signature.hpp"
#include "loop/step_launcher.hpp"
#include "loop/train_state.hpp"
#include "tpu/board.hpp"
#include "tpu/error.hpp"

namespace tpu::training {

/// Called after each step whose loss has come back.
struct Progress {
  int64_t epoch = 0;
  int64_t step = 0;
  int64_t steps = 0;
  float loss = 0;
  std::vector<Metric> metrics;          ///< what else the program returns; means over the batch
  std::optional<double> learning_rate;  ///< when the configuration gives it
};

/// A loss that is not a number, or infinite: the state is lost.
class NotFinite : public driver::Error {
 public:
  NotFinite(int64_t step, float loss);
  /// From 1 on.
  int64_t step() const { return step_; }

 private:
  int64_t step_;
};

/// How far to train; 0: as the configuration says, no checkpoints on the way.
struct TrainLimits {
  int64_t max_steps = 0;
  int64_t checkpoint_every = 0;    ///< steps
  int64_t checkpoint_seconds = 0;  ///< of wall-clock time
  /// Learning rate by step (from 0 on), instead of the configuration's.
  std::function<double(int64_t step)> learning_rate = {};
};

/// Calls of a run to its owner; empty ones are left out.
struct TrainHooks {
  std::function<void(const Progress&)> step;
  std::function<void(const EpochResult&)> epoch_done;
  /// Asked between steps: true ends the run with all submitted steps done.
  std::function<bool()> stop_wanted;
  /// A checkpoint is due (by steps, by time, or since its evaluation is the best so far): nothing
  /// is in flight, checkpoint() gives it.
  std::function<void()> save;
  /// A step failed on the board, and the run goes back to step `to` (0: the initial state).
  std::function<void(const driver::Error& why, int64_t to)> replayed{};
};

class Trainer {
 public:
  /// Checks the programs against the convention of docs/training.md; throws InvalidArgument.
  /// `has_data`: false for a board that computes nothing; then replicas are not compared, and there
  /// are no losses and no accuracy. `from`: goes on there instead of at the initial state.
  Trainer(const driver::Board& board, const TrainConfig& config, driver::Executable train,
          std::optional<driver::Executable> eval, bool has_data = true,
          const Checkpoint* from = nullptr);

  /// False when it was stopped before all steps were done; early_stop says whether by itself.
  bool train(const TrainLimits& limits, const TrainHooks& hooks);
  EvalResult evaluate() const;
  /// Why it ended before all epochs were done, though nobody stopped it; empty: it did not.
  std::string stopped_early() const;

  /// All that a later run needs to go on with the same bits. Waits for the state. A run that goes
  /// back to its checkpoints compares all copies for each of them.
  Checkpoint checkpoint(Replicas compared = Replicas::kAll);
  /// The same after an error: nothing when steps were lost.
  std::optional<Checkpoint> rescue();

  /// Begins anew at the checkpoint, or at the initial state: the state that the board has of this
  /// run goes. Throws as the constructor.
  void restart(const Checkpoint* from);
  /// Runs the steps that are left up to step `last` of the training, without evaluations; false
  /// when it was stopped. The bits are those of train().
  bool replay(int64_t last, const std::function<bool()>& stop_wanted);
  /// Runs the next step by another compilation of the train program, which gives one more result,
  /// behind the others: that comes back.
  driver::HostArray watched_step(const driver::Executable& watched);

  int64_t planned_steps(int64_t max_steps) const;
  /// One a step, with those before the checkpoint that the run came from.
  const std::vector<float>& losses() const { return losses_; }
  /// Steps of this run.
  int64_t steps_run() const { return static_cast<int64_t>(losses_.size()) - first_step_; }
  /// Step of the checkpoint that the run came from; 0: none.
  int64_t first_step() const { return first_step_; }
  /// Wall-clock time between the losses of two steps; of an epoch's first step, since its start.
  const std::vector<double>& step_seconds() const { return step_seconds_; }
  const std::vector<EpochResult>& epochs() const { return epochs_; }
  /// The step whose evaluation was the best, as the configuration says what that is.
  const std::optional<BestStep>& best() const { return best_; }
  const driver::Window& window() const { return window_; }
  const driver::Board& board() const { return board_; }
  const driver::Executable& program() const { return train_; }
  const Dataset& data() const { return data_; }
  /// What came out of the files of this run's steps, and how long steps waited for it.
  input::Rates input_rates() const { return batches_->rates(); }
  const Signature& signature() const { return signature_; }
  bool has_data() const { return has_data_; }

  /// Of the state, which passes through the host in pieces (checkpoint.hpp, state_digest()).
  std::string digest() const { return state_.digest(submitted_); }
  /// The state on the host, compared over the cores when the board computes.
  std::vector<driver::HostArray> state(Replicas compared = Replicas::kAll) {
    return state_.to_host(compared, submitted_);
  }

 private:
  struct InFlight {
    ResultReads results;    // the loss, then the metrics
    driver::StepFeed feed;  // that gives them instead
    uint32_t step = 0;      // of the feed
    std::optional<double> learning_rate;
  };

  bool train_on(const TrainLimits& limits, const TrainHooks& hooks);
  void go_on_from(const Checkpoint& from);
  void restore_input(const Checkpoint& from);
  input::Position input_position() const;
  std::optional<double> rate(const TrainLimits& limits) const;
  void submit(const Progress& at, const TrainLimits& limits, const TrainHooks& hooks);
  void submitted(InFlight entry, const Progress& at, const TrainHooks& hooks);
  void submit_steps(int64_t steps, const Progress& at, const TrainLimits& limits,
                    const TrainHooks& hooks);
  int64_t steps_of_launch(int64_t last, const TrainLimits& limits) const;
  void take_loss(const Progress& at, const TrainHooks& hooks);
  void take_losses(const Progress& at, const TrainHooks& hooks);
  bool run_steps(const Progress& at, int64_t last, const TrainLimits& limits,
                 const TrainHooks& hooks);
  bool end_epoch(int64_t epoch, int64_t planned, bool stop, const TrainHooks& hooks);
  int64_t steps_an_epoch() const;
  bool checkpoint_due(const TrainLimits& limits) const;
  bool is_best(const EpochResult& result) const;

  driver::Board board_;
  const TrainConfig& config_;
  driver::Executable train_;
  const bool has_data_;
  const Signature signature_;
  Dataset data_;
  StepLauncher launcher_;
  std::unique_ptr<input::BatchPipeline> batches_;
  input::Batch batch_;  // of the step that is submitted next
  std::optional<Evaluator> evaluator_;
  TrainState state_;
  std::deque<InFlight> in_flight_;
  int64_t first_step_ = 0;
  int64_t submitted_ = 0;  // steps of the whole training that were given to the board
  std::vector<float> losses_;
  std::vector<double> step_seconds_;
  std::chrono::steady_clock::time_point last_loss_;
  std::vector<EpochResult> epochs_;
  std::optional<BestStep> best_;
  Replays replays_;
  std::chrono::steady_clock::time_point last_checkpoint_;
  driver::Window window_;
};

}  // namespace tpu::training
