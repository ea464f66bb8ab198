// Steps of the training loop: their batches and rates go to the board, in launches of one step or
// of several, and their losses come back.
#include <algorithm>
#include <cmath>

#include "loop/trainer.hpp"

namespace tpu::training {

using driver::Array;
using driver::DType;
using driver::HostArray;
using driver::HostView;
using driver::RunOptions;
using driver::RunResult;
namespace {

constexpr size_t kStepsInFlight = 3;

}  // namespace

// Of the step that is submitted next.
std::optional<double> Trainer::rate(const TrainLimits& limits) const {
  if (limits.learning_rate) {
    return limits.learning_rate(submitted_);
  }
  if (!config_.learning_rate) {
    return std::nullopt;
  }
  return learning_rate(*config_.learning_rate, submitted_, planned_steps(0), train_.partitions());
}

std::vector<Array> Trainer::arguments(std::optional<double> rate) {
  const auto value = static_cast<float>(rate.value_or(0));
  const HostView rate_view(DType::kF32, {}, std::as_bytes(std::span(&value, 1)));
  std::vector<Array> inputs;
  for (size_t i = 0; i < signature_.arguments.size(); ++i) {
    const Place place = signature_.arguments[i];
    if (place.role == Role::kInput) {
      inputs.push_back(train_.put(i, batch_.arrays[place.index]));
    } else if (place.role == Role::kLearningRate || place.index == rate_leaf_) {
      inputs.push_back(train_.put(i, rate_view));
    } else {
      inputs.push_back(state_[place.index]);
    }
  }
  return inputs;
}

void Trainer::submit(const Progress& at, const TrainLimits& limits, const TrainHooks& hooks) {
  InFlight entry{.results = {}, .feed = {}, .step = 0, .learning_rate = rate(limits)};
  batches_->next(batch_);
  RunResult result = train_.run(arguments(entry.learning_rate));
  for (const size_t index : losses_and_metrics()) {
    entry.results.add(result.outputs[index]);
  }
  take_over(result);
  submitted(std::move(entry), at, hooks);
}

// A few steps stay in flight.
void Trainer::submitted(InFlight entry, const Progress& at, const TrainHooks& hooks) {
  in_flight_.push_back(std::move(entry));
  ++submitted_;
  if (in_flight_.size() > kStepsInFlight) {
    take_loss(at, hooks);
  }
}

// Results that come to the host after each step.
std::vector<size_t> Trainer::losses_and_metrics() const {
  std::vector<size_t> results = {*signature_.result({Role::kLoss})};
  for (size_t i = 0; i < signature_.metrics.size(); ++i) {
    results.push_back(*signature_.result({Role::kMetric, i}));
  }
  return results;
}

void Trainer::take_over(RunResult& result) {
  for (size_t i = 0; i < leaves_; ++i) {
    state_[i] = std::move(result.outputs[*signature_.result({Role::kState, i})]);
  }
}

// Starts a launch of so many steps, which are fed one after the other.
RunResult Trainer::launch(int64_t steps) {
  RunOptions options;
  options.steps = static_cast<uint32_t>(steps);
  options.outfeed = losses_and_metrics();
  std::vector<Array> arguments(signature_.arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Place place = signature_.arguments[i];
    if (place.role == Role::kInput || place.role == Role::kLearningRate) {
      options.infeed.push_back(i);
    } else {
      arguments[i] = state_[place.index];
    }
  }
  RunResult result = train_.run(arguments, options);
  take_over(result);
  return result;
}

// A launch of several steps of one epoch. Its first batch comes before it: where there is none, the
// state stays as it is.
void Trainer::submit_steps(int64_t steps, const Progress& at, const TrainLimits& limits,
                           const TrainHooks& hooks) {
  batches_->next(batch_);
  const RunResult run = launch(steps);
  for (int64_t step = 0; step < steps; ++step) {
    InFlight entry{.results = {},
                   .feed = run.feed,
                   .step = static_cast<uint32_t>(step),
                   .learning_rate = rate(limits)};
    const auto value = static_cast<float>(entry.learning_rate.value_or(0));
    if (step > 0) {
      batches_->next(batch_);
    }
    std::vector<HostView> batch;
    for (const Place place : signature_.arguments) {
      if (place.role == Role::kInput) {
        batch.emplace_back(batch_.arrays[place.index]);
      } else if (place.role == Role::kLearningRate) {
        batch.emplace_back(DType::kF32, driver::Shape{}, std::as_bytes(std::span(&value, 1)));
      }
    }
    run.feed.feed(batch);
    submitted(std::move(entry), at, hooks);
  }
}

// The next launch ends with the epoch, and where a checkpoint is due.
int64_t Trainer::steps_of_launch(int64_t last, const TrainLimits& limits) const {
  int64_t steps = std::min(config_.steps_per_execution, last - submitted_);
  if (limits.checkpoint_every > 0) {
    steps = std::min(steps, limits.checkpoint_every - submitted_ % limits.checkpoint_every);
  }
  return steps;
}

// Its loss is among what is watched.
HostArray Trainer::watched_step(const driver::Executable& watched) {
  batches_->next(batch_);
  RunResult result = watched.run(arguments(rate({})));
  take_over(result);
  ++submitted_;
  losses_.push_back(0);
  return result.outputs.back().to_host();
}

void Trainer::take_loss(const Progress& at, const TrainHooks& hooks) {
  in_flight_.front().results.wait();
  InFlight taken = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (taken.feed.valid()) {
    for (HostArray& array : taken.feed.take(taken.step)) {
      taken.results.add(std::move(array));
    }
  }
  losses_.push_back(static_cast<float>(taken.results.numbers(0)[0]));
  const auto when = std::chrono::steady_clock::now();
  step_seconds_.push_back(std::chrono::duration<double>(when - last_loss_).count());
  last_loss_ = when;
  Progress now = at;
  now.step = static_cast<int64_t>(losses_.size());
  now.loss = losses_.back();
  now.learning_rate = taken.learning_rate;
  for (size_t i = 0; i < signature_.metrics.size(); ++i) {
    now.metrics.push_back({signature_.metrics[i], taken.results.mean(i + 1)});
  }
  if (hooks.step) {
    hooks.step(now);
  }
  if (has_data_ && config_.stop_on_nan && !std::isfinite(now.loss)) {
    throw NotFinite(now.step, now.loss);
  }
}

void Trainer::take_losses(const Progress& at, const TrainHooks& hooks) {
  while (!in_flight_.empty()) {
    take_loss(at, hooks);
  }
}

}  // namespace tpu::training
