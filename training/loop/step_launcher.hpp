// StepLauncher: runs a train program for one step, or for several that are fed one after the other,
// with the arguments in the order of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "input/batch_pipeline.hpp"
#include "loop/signature.hpp"
#include "loop/train_state.hpp"
#include "tpu/executable.hpp"

namespace tpu::training {

class StepLauncher {
 public:
  /// `rate_leaf`: of the state, that holds the learning rate; empty: none does.
  StepLauncher(driver::Executable program, Signature signature, std::optional<size_t> rate_leaf);

  bool rate_is_state() const { return rate_leaf_.has_value(); }
  /// Results that come to the host after each step: the loss, then the metrics.
  std::vector<size_t> losses_and_metrics() const;

  /// One step by `program`, which takes the arguments of the train program. The state is that after
  /// the step.
  driver::RunResult run(const driver::Executable& program, TrainState& state,
                        const input::Batch& batch, std::optional<double> rate) const;
  /// Starts so many steps, each of which waits for feed().
  driver::RunResult launch(TrainState& state, int64_t steps) const;
  /// Batch and rate of the next step of a launch.
  void feed(const driver::StepFeed& feed, const input::Batch& batch,
            std::optional<double> rate) const;

 private:
  const driver::Executable program_;
  const Signature signature_;
  const std::optional<size_t> rate_leaf_;
};

}  // namespace tpu::training
