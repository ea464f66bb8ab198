// The training loop: epochs, evaluations, checkpoints. trainer_steps.cpp has its steps.
#include "loop/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "check/checked.hpp"
#include "check/refuse.hpp"
#include "tpu/error.hpp"

namespace tpu::training {

using driver::Board;
using driver::checked_product;
using driver::Error;
using driver::ErrorCode;
using driver::Executable;
using driver::HostArray;
using driver::need_fit;
using driver::ParameterInfo;
using driver::refuse;
using driver::type_text;
namespace {

// The arguments that take the inputs, by input.
std::vector<ParameterInfo> input_infos(const Signature& signature, const Executable& program) {
  std::vector<ParameterInfo> infos(signature.count(Role::kInput));
  for (size_t i = 0; i < signature.arguments.size(); ++i) {
    if (signature.arguments[i].role == Role::kInput) {
      infos[signature.arguments[i].index] = program.arguments()[i];
    }
  }
  return infos;
}

// Leaf of the state that holds the learning rate.
std::optional<size_t> rate_leaf(const TrainConfig& config, const Signature& signature,
                                const Executable& program) {
  if (!config.learning_rate || config.learning_rate->leaf.empty()) {
    return std::nullopt;
  }
  return signature.arguments[find_leaf(config.learning_rate->leaf, signature, program)].index;
}

// A checkpoint behind the end of the run.
void refuse_fewer(int64_t stands_at, int64_t planned) {
  if (stands_at > planned) {
    refuse(
        fmt::format("the checkpoint is at step {}; {} steps are requested; give more "
                    "--steps or epochs, or leave --resume out",
                    stands_at, planned));
  }
}

// Evaluations behind the best one, and the best value.
struct Wait {
  int64_t evaluations = 0;
  double best = 0;
};

Wait wait_of(const EarlyStop& stop, const std::vector<EpochResult>& epochs) {
  Wait wait;
  bool first = true;
  for (const EpochResult& epoch : epochs) {
    const std::optional<double> value = epoch.eval ? epoch.eval->find(stop.metric) : std::nullopt;
    if (!value) {
      continue;
    }
    const double gain = stop.rises ? *value - wait.best : wait.best - *value;
    if (first || gain > stop.min_change) {
      wait = {0, *value};
    } else {
      ++wait.evaluations;
    }
    first = false;
  }
  return wait;
}

// A difference is named behind a step, all else is of the one whose loss has not come.
int64_t step_of(const Error& why, size_t losses) {
  const auto* const differ = dynamic_cast<const CopiesDiffer*>(&why);
  return differ != nullptr ? differ->step() : static_cast<int64_t>(losses) + 1;
}

}  // namespace

NotFinite::NotFinite(int64_t step, float loss)
    : Error(ErrorCode::kInvalidArgument,
            fmt::format("step {}: the loss is {}; training ends, since the state cannot recover "
                        "(run.stop_on_nan = false continues)",
                        step, loss)),
      step_(step) {}

Trainer::Trainer(const Board& board, const TrainConfig& config, Executable train,
                 std::optional<Executable> eval, bool has_data, const Checkpoint* from)
    : board_(board),
      config_(config),
      train_(std::move(train)),
      has_data_(has_data),
      signature_(train_signature(config, train_)),
      data_([this] {
        const size_t leaves = signature_.count(Role::kState);
        if (config_.init.size() != leaves && config_.state_from.empty()) {
          refuse(fmt::format("state.init has {} entries, {} has {} state leaves",
                             config_.init.size(), train_.name(), leaves));
        }
        return Dataset(config_, input_infos(signature_, train_));
      }()),
      launcher_(train_, signature_, rate_leaf(config, signature_, train_)),
      state_(config, train_, signature_, has_data),
      replays_(config.faults, from),
      window_(board, train_.devices()) {
  if (config.steps_per_execution > 1 && launcher_.rate_is_state()) {
    refuse(
        fmt::format("learning_rate.leaf = \"{}\": it is set before each step, which needs "
                    "run.steps_per_execution = 1; let the program take the rate as an argument",
                    config.learning_rate->leaf));
  }
  if (eval) {
    evaluator_.emplace(data_, *eval, eval_signature(config, *eval, signature_, train_));
    const std::vector<std::string> metrics = evaluator_->metrics();
    if (config.early_stop &&
        std::find(metrics.begin(), metrics.end(), config.early_stop->metric) == metrics.end()) {
      refuse(fmt::format("early_stop.metric = \"{}\" is not a result of the eval program: {}",
                         config.early_stop->metric, fmt::join(metrics, ", ")));
    }
    if (!config.checkpoints.best.empty() &&
        std::find(metrics.begin(), metrics.end(), config.checkpoints.best_metric) ==
            metrics.end()) {
      refuse(fmt::format("run.checkpoint_best = \"{}\": the eval program's metrics are {}",
                         config.checkpoints.best, fmt::join(metrics, ", ")));
    }
  } else if (!config.checkpoints.best.empty()) {
    refuse("run.checkpoint_best wants an evaluation; program.eval names none");
  }
  if (static_cast<int64_t>(data_.train_count()) < config.batch) {
    refuse(fmt::format("{} training examples are less than one batch of {}", data_.train_count(),
                       config.batch));
  }
  restart(from);
  if (config.faults.compare_replicas > 0 && has_data_ && !state_.has_replicas()) {
    refuse(
        fmt::format("run.compare_replicas: no state leaf of {} has copies on several cores to "
                    "compare; leave it out",
                    train_.name()));
  }
}

void Trainer::restart(const Checkpoint* from) {
  state_.clear();
  in_flight_.clear();
  losses_.clear();
  epochs_.clear();
  best_.reset();
  first_step_ = submitted_ = 0;
  batches_ = data_.training(config_.batch, config_.epochs);
  if (from != nullptr) {
    go_on_from(*from);
    state_.put(from->leaves);
  } else {
    state_.put_initial();
  }
}

void Trainer::go_on_from(const Checkpoint& from) {
  const DataOrder mine = data_.order(config_.batch);
  const auto same = [](const char* what, auto ours, auto theirs) {
    if (ours != theirs) {
      refuse(
          fmt::format("the run cannot continue from the checkpoint: {} is {}, the checkpoint was "
                      "made with {}",
                      what, ours, theirs));
    }
  };
  same("the number of examples", mine.examples, from.order.examples);
  same("data.split_seed", mine.split_seed, from.order.split_seed);
  same("data.eval_count", mine.eval_count, from.order.eval_count);
  same("run.batch", mine.batch, from.order.batch);
  const std::vector<ParameterInfo> infos = state_.infos();
  same("the number of state leaves", infos.size(), from.leaves.size());
  for (size_t i = 0; i < infos.size(); ++i) {
    const ParameterInfo& info = infos[i];
    const HostArray& leaf = from.leaves[i];
    same(fmt::format("state leaf {}", i).c_str(), type_text(info.dtype, info.shape),
         type_text(leaf.dtype, leaf.shape));
  }
  // Epochs are counted by their steps, so that only whole ones may stand there.
  const auto whole = static_cast<int64_t>(from.epochs.size());
  const auto counted = checked_product(whole, steps_an_epoch());
  if (!counted || *counted > from.step) {
    refuse(fmt::format("the checkpoint is damaged: {} epochs in {} steps", whole, from.step));
  }
  restore_input(from);
  losses_ = from.losses;
  epochs_ = from.epochs;
  if (from.best && from.best->rule == config_.checkpoints.best) {
    best_ = from.best;
  }
  first_step_ = submitted_ = from.step;
}

// A step takes one batch, so that a checkpoint without a position has one all the same.
void Trainer::restore_input(const Checkpoint& from) {
  input::Position position = batches_->position();
  if (!from.input.empty()) {
    position = input::Position::parse(from.input);
    if (position.next != static_cast<uint64_t>(from.step) || !position.beyond.empty()) {
      refuse(
          fmt::format("the checkpoint is damaged: step {} with the input behind {} "
                      "batches",
                      from.step, position.next));
    }
  }
  position.next = static_cast<uint64_t>(from.step);
  refuse_fewer(from.step, planned_steps(0));
  try {
    batches_->restore(position);
  } catch (const Error& error) {
    refuse(fmt::format("{}; --accept-changes takes this one from step {} on", error.message(),
                       from.step));
  }
}

int64_t Trainer::steps_an_epoch() const {
  return static_cast<int64_t>(data_.train_count()) / config_.batch;
}

int64_t Trainer::planned_steps(int64_t max_steps) const {
  const int64_t all =
      need_fit(checked_product(steps_an_epoch(), config_.epochs), "steps of all epochs");
  return max_steps > 0 ? std::min(max_steps, all) : all;
}

bool Trainer::checkpoint_due(const TrainLimits& limits) const {
  return (limits.checkpoint_every > 0 && submitted_ % limits.checkpoint_every == 0) ||
         (limits.checkpoint_seconds > 0 && std::chrono::steady_clock::now() - last_checkpoint_ >=
                                               std::chrono::seconds(limits.checkpoint_seconds));
}

bool Trainer::is_best(const EpochResult& result) const {
  const CheckpointRules& rules = config_.checkpoints;
  const std::optional<double> value =
      result.eval ? result.eval->find(rules.best_metric) : std::nullopt;
  return value && std::isfinite(*value) &&
         (!best_ || (rules.best_rises ? *value > best_->value : *value < best_->value));
}

// Steps of an epoch up to `last` - 1; true when it was stopped.
bool Trainer::run_steps(const Progress& at, int64_t last, const TrainLimits& limits,
                        const TrainHooks& hooks) {
  window_.open();
  last_loss_ = std::chrono::steady_clock::now();
  bool stop = false;
  while (submitted_ < last) {
    stop = hooks.stop_wanted && hooks.stop_wanted();
    if (stop) {
      break;
    }
    if (config_.steps_per_execution > 1) {
      submit_steps(steps_of_launch(last, limits), at, limits, hooks);
    } else {
      submit(at, limits, hooks);
    }
    if (has_data_ && config_.faults.compares_after(submitted_, at.steps)) {
      take_losses(at, hooks);
      window_.close();  // no time of steps, as that of a checkpoint
      state_.compare_replicas(submitted_);
      window_.open();
      last_loss_ = std::chrono::steady_clock::now();
    }
    if (checkpoint_due(limits) && submitted_ < at.steps && (hooks.save || replays_.wanted())) {
      take_losses(at, hooks);
      window_.close();  // the time of a checkpoint is no time of steps
      if (hooks.save) {
        hooks.save();
      }
      if (replays_.wanted() &&
          (replays_.kept() == nullptr || replays_.kept()->step != submitted_)) {
        checkpoint();  // in memory alone
      }
      window_.open();
      last_loss_ = last_checkpoint_ = std::chrono::steady_clock::now();
    }
  }
  take_losses(at, hooks);
  window_.close();
  return stop;
}

// What comes behind the steps of an epoch; true when it was stopped before the evaluation.
bool Trainer::end_epoch(int64_t epoch, int64_t planned, bool stop, const TrainHooks& hooks) {
  const int64_t first = (epoch - 1) * steps_an_epoch();
  EpochResult result;
  result.epoch = epoch;
  result.train_loss =
      std::accumulate(losses_.begin() + static_cast<ptrdiff_t>(first), losses_.end(), 0.0) /
      static_cast<double>(submitted_ - first);
  const bool due =
      submitted_ == planned || (config_.eval_every > 0 && epoch % config_.eval_every == 0);
  if (evaluator_ && has_data_ && due && !stop) {
    stop = hooks.stop_wanted && hooks.stop_wanted();
    if (!stop) {
      result.eval = evaluate();
    }
  }
  result.whole = !stop && submitted_ == first + steps_an_epoch();
  epochs_.push_back(result);
  if (hooks.epoch_done) {
    hooks.epoch_done(result);
  }
  if (is_best(result)) {
    best_ = {config_.checkpoints.best, submitted_,
             *result.eval->find(config_.checkpoints.best_metric)};
    if (submitted_ < planned && hooks.save) {  // at the end the owner saves anyway
      hooks.save();
      last_checkpoint_ = std::chrono::steady_clock::now();
    }
  }
  return stop;
}

// Examples come by number and losses with the checkpoint: what runs again has the bits that it
// would have had.
bool Trainer::train(const TrainLimits& limits, const TrainHooks& hooks) {
  for (;;) {
    try {
      return train_on(limits, hooks);
    } catch (const Error& why) {
      if (!replays_.recovers(why)) {
        throw;
      }
      replays_.count(why, step_of(why, losses_.size()));
      const int64_t begun_at = first_step_;
      restart(replays_.undamaged());
      if (hooks.replayed) {
        hooks.replayed(why, first_step_);
      }
      first_step_ = begun_at;
    }
  }
}

bool Trainer::train_on(const TrainLimits& limits, const TrainHooks& hooks) {
  const int64_t planned = planned_steps(limits.max_steps);
  refuse_fewer(first_step_, planned);
  if (submitted_ == planned && evaluator_ && has_data_ && !epochs_.empty() &&
      !epochs_.back().eval) {
    epochs_.pop_back();  // the run ends here, with an evaluation that was not due before
  }
  last_checkpoint_ = std::chrono::steady_clock::now();
  const int64_t an_epoch = steps_an_epoch();
  for (int64_t first = static_cast<int64_t>(epochs_.size()) * an_epoch;
       (submitted_ < planned || submitted_ > first) && stopped_early().empty(); first += an_epoch) {
    Progress at;
    at.epoch = first / an_epoch + 1;
    at.steps = planned;
    bool stop = run_steps(at, std::min(planned, first + an_epoch), limits, hooks);
    if (submitted_ > first) {
      stop = end_epoch(at.epoch, planned, stop, hooks);
    }
    if (stop) {
      return false;
    }
  }
  return true;
}

bool Trainer::replay(int64_t last, const std::function<bool()>& stop_wanted) {
  TrainHooks hooks;
  hooks.stop_wanted = stop_wanted;
  bool stop = false;
  while (submitted_ < last && !stop) {
    Progress at;
    at.epoch = submitted_ / steps_an_epoch() + 1;
    at.steps = last;
    stop = run_steps(at, std::min(last, at.epoch * steps_an_epoch()), {}, hooks);
  }
  return !stop;
}

// Behind the batches of all submitted steps: one that was read for a step that could not start is
// not behind them.
input::Position Trainer::input_position() const {
  input::Position position = batches_->position();
  position.next = static_cast<uint64_t>(submitted_);
  return position;
}

Checkpoint Trainer::checkpoint(Replicas compared) {
  Checkpoint made;
  made.step = submitted_;
  made.state_seed = config_.seed;
  made.order = data_.order(config_.batch);
  made.input = input_position().text();
  made.best = best_;
  for (const EpochResult& epoch : epochs_) {
    if (epoch.whole) {
      made.epochs.push_back(epoch);
    }
  }
  made.losses = losses_;
  // A run that goes back to it may not find what a copy that differs has spoiled there.
  const bool all = replays_.wanted() || config_.faults.compare_replicas > 0;
  made.leaves = state(all ? Replicas::kAll : compared);
  replays_.keep(made);
  return made;
}

std::optional<Checkpoint> Trainer::rescue() {
  try {
    take_losses({}, {});
    const bool finite =
        !config_.stop_on_nan || std::all_of(losses_.begin() + first_step_, losses_.end(),
                                            [](float loss) { return std::isfinite(loss); });
    if (state_.live() && finite && submitted_ == static_cast<int64_t>(losses_.size()) &&
        submitted_ > first_step_) {
      return checkpoint();
    }
  } catch (const std::exception&) {
    // The error that is on its way says more.
  }
  return std::nullopt;
}

EvalResult Trainer::evaluate() const { return evaluator_->evaluate(state_.arrays()); }

std::string Trainer::stopped_early() const {
  if (!config_.early_stop) {
    return {};
  }
  const EarlyStop& stop = *config_.early_stop;
  const Wait wait = wait_of(stop, epochs_);
  return wait.evaluations < stop.patience
             ? std::string()
             : fmt::format("{} did not improve on {:.6g} in {} evaluations", stop.metric, wait.best,
                           wait.evaluations);
}

}  // namespace tpu::training
