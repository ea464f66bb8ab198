// Steps of the training loop: their batches and rates go to the board, in launches of one step or
// of several, and their losses come back.
#include <algorithm>
#include <cmath>

#include "loop/trainer.hpp"

namespace tpu::training {

using driver::HostArray;
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

void Trainer::submit(const Progress& at, const TrainLimits& limits, const TrainHooks& hooks) {
  InFlight entry{.results = {}, .feed = {}, .step = 0, .learning_rate = rate(limits)};
  batches_->next(batch_);
  const RunResult result = launcher_.run(train_, state_, batch_, entry.learning_rate);
  for (const size_t index : launcher_.losses_and_metrics()) {
    entry.results.add(result.outputs[index]);
  }
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

// A launch of several steps of one epoch. Its first batch comes before it: where there is none, the
// state stays as it is.
void Trainer::submit_steps(int64_t steps, const Progress& at, const TrainLimits& limits,
                           const TrainHooks& hooks) {
  batches_->next(batch_);
  const RunResult run = launcher_.launch(state_, steps);
  for (int64_t step = 0; step < steps; ++step) {
    InFlight entry{.results = {},
                   .feed = run.feed,
                   .step = static_cast<uint32_t>(step),
                   .learning_rate = rate(limits)};
    if (step > 0) {
      batches_->next(batch_);
    }
    launcher_.feed(run.feed, batch_, entry.learning_rate);
    submitted(std::move(entry), at, hooks);
  }
}

// The next launch ends with the epoch, and where a checkpoint or a comparison is due.
int64_t Trainer::steps_of_launch(int64_t last, const TrainLimits& limits) const {
  int64_t steps = std::min(config_.steps_per_execution, last - submitted_);
  for (const int64_t every : {limits.checkpoint_every, config_.faults.compare_replicas}) {
    if (every > 0) {
      steps = std::min(steps, every - submitted_ % every);
    }
  }
  return steps;
}

// Its loss is among what is watched.
HostArray Trainer::watched_step(const driver::Executable& watched) {
  batches_->next(batch_);
  const RunResult result = launcher_.run(watched, state_, batch_, rate({}));
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
