// Arguments of steps, by the roles that the signature gives them.
#include "loop/step_launcher.hpp"

#include <span>
#include <utility>

namespace tpu::training {

using driver::Array;
using driver::DType;
using driver::HostView;
using driver::RunOptions;
using driver::RunResult;

StepLauncher::StepLauncher(driver::Executable program, Signature signature,
                           std::optional<size_t> rate_leaf)
    : program_(std::move(program)), signature_(std::move(signature)), rate_leaf_(rate_leaf) {}

std::vector<size_t> StepLauncher::losses_and_metrics() const {
  std::vector<size_t> results = {*signature_.result({Role::kLoss})};
  for (size_t i = 0; i < signature_.metrics.size(); ++i) {
    results.push_back(*signature_.result({Role::kMetric, i}));
  }
  return results;
}

RunResult StepLauncher::run(const driver::Executable& program, TrainState& state,
                            const input::Batch& batch, std::optional<double> rate) const {
  const auto value = static_cast<float>(rate.value_or(0));
  const HostView rate_view(DType::kF32, {}, std::as_bytes(std::span(&value, 1)));
  std::vector<Array> arguments;
  for (size_t i = 0; i < signature_.arguments.size(); ++i) {
    const Place place = signature_.arguments[i];
    if (place.role == Role::kInput) {
      arguments.push_back(program_.put(i, batch.arrays[place.index]));
    } else if (place.role == Role::kLearningRate || place.index == rate_leaf_) {
      arguments.push_back(program_.put(i, rate_view));
    } else {
      arguments.push_back(state.arrays()[place.index]);
    }
  }
  RunResult result = program.run(arguments);
  state.take_over(result);
  return result;
}

RunResult StepLauncher::launch(TrainState& state, int64_t steps) const {
  RunOptions options;
  options.steps = static_cast<uint32_t>(steps);
  options.outfeed = losses_and_metrics();
  std::vector<Array> arguments(signature_.arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Place place = signature_.arguments[i];
    if (place.role == Role::kInput || place.role == Role::kLearningRate) {
      options.infeed.push_back(i);
    } else {
      arguments[i] = state.arrays()[place.index];
    }
  }
  RunResult result = program_.run(arguments, options);
  state.take_over(result);
  return result;
}

void StepLauncher::feed(const driver::StepFeed& feed, const input::Batch& batch,
                        std::optional<double> rate) const {
  const auto value = static_cast<float>(rate.value_or(0));
  std::vector<HostView> views;
  for (const Place place : signature_.arguments) {
    if (place.role == Role::kInput) {
      views.emplace_back(batch.arrays[place.index]);
    } else if (place.role == Role::kLearningRate) {
      views.emplace_back(DType::kF32, driver::Shape{}, std::as_bytes(std::span(&value, 1)));
    }
  }
  feed.feed(views);
}

}  // namespace tpu::training
