// The training loop.
#include "loop/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "files/checked.hpp"
#include "loop/initial_state.hpp"
#include "tpu/error.hpp"

namespace tpu::training {

using driver::Array;
using driver::Board;
using driver::Buffer;
using driver::checked_product;
using driver::DType;
using driver::Error;
using driver::ErrorCode;
using driver::Executable;
using driver::HostArray;
using driver::HostView;
using driver::need_fit;
using driver::ParameterInfo;
using driver::RunOptions;
using driver::RunResult;
using driver::Shape;
using driver::type_text;
namespace {

constexpr size_t kStepsInFlight = 3;

[[noreturn]] void refuse_training(const std::string& text) {
  throw Error(ErrorCode::kInvalidArgument, text);
}

std::string type_of(const ParameterInfo& info) { return type_text(info.dtype, info.shape); }

void need_scalar(const Executable& program, size_t result, const char* what, bool i32_too) {
  const ParameterInfo& info = program.results()[result];
  if (!info.shape.empty() ||
      !(info.dtype == DType::kF32 || (i32_too && info.dtype == DType::kI32))) {
    refuse_training(fmt::format("{}: result {} must be {}, a scalar f32{}, not {}", program.name(),
                                result, what, i32_too ? " or i32" : "", type_of(info)));
  }
}

// `images` and the arguments behind it have the batch in dimension 0.
void need_batch(const Executable& program, size_t first, int64_t batch) {
  const auto& arguments = program.arguments();
  const ParameterInfo& images = arguments[first];
  const ParameterInfo& labels = arguments[first + 1];
  if (images.shape.empty() || images.shape[0] != batch || batch < 1 ||
      !(images.dtype == DType::kF32 || images.dtype == DType::kBf16 ||
        images.dtype == DType::kU8)) {
    refuse_training(
        fmt::format("{}: argument {} must be the images, f32, bf16 or ui8 [{},...], not {}",
                    program.name(), first, batch, type_of(images)));
  }
  if (labels.dtype != DType::kI32 || labels.shape != Shape{batch}) {
    refuse_training(fmt::format("{}: argument {} must be the labels, i32[{}], not {}",
                                program.name(), first + 1, batch, type_of(labels)));
  }
}

float scalar(const HostArray& array) {
  if (array.dtype == DType::kI32) {
    int32_t value = 0;
    std::memcpy(&value, array.bytes.data(), sizeof(value));
    return static_cast<float>(value);
  }
  float value = 0;
  std::memcpy(&value, array.bytes.data(), sizeof(value));
  return value;
}

}  // namespace

Trainer::Trainer(const Board& board, const TrainConfig& config, Executable train,
                 std::optional<Executable> eval, bool has_data, const Checkpoint* from)
    : board_(board),
      config_(config),
      train_(std::move(train)),
      eval_(std::move(eval)),
      has_data_(has_data),
      leaves_([this] {
        check_train();
        return train_.arguments().size() - 2;
      }()),
      data_(config, train_.arguments()[leaves_]),
      window_(board, train_.devices()) {
  if (eval_) {
    check_eval();
  }
  if (static_cast<int64_t>(data_.train_count()) < config.batch) {
    refuse_training(fmt::format("{} training examples are less than one batch of {}",
                                data_.train_count(), config.batch));
  }
  if (from != nullptr) {
    go_on_from(*from);
  }
  const std::vector<HostArray> leaves = from != nullptr ? from->leaves : initial_state();
  for (size_t i = 0; i < leaves.size(); ++i) {
    state_.push_back(train_.put(i, leaves[i]));
  }
}

void Trainer::go_on_from(const Checkpoint& from) {
  const DataOrder mine = data_.order(config_.batch);
  const auto same = [](const char* what, auto ours, auto theirs) {
    if (ours != theirs) {
      refuse_training(
          fmt::format("the run cannot go on from the checkpoint: {} is {}, the checkpoint was "
                      "made with {}",
                      what, ours, theirs));
    }
  };
  same("the number of examples", mine.examples, from.order.examples);
  same("data.split_seed", mine.split_seed, from.order.split_seed);
  same("data.eval_count", mine.eval_count, from.order.eval_count);
  same("run.batch", mine.batch, from.order.batch);
  same("the number of state leaves", leaves_, from.leaves.size());
  for (size_t i = 0; i < leaves_; ++i) {
    const ParameterInfo& info = train_.arguments()[i];
    const HostArray& leaf = from.leaves[i];
    same(fmt::format("state leaf {}", i).c_str(), type_of(info), type_text(leaf.dtype, leaf.shape));
  }
  // Epochs are counted by their steps, so that only whole ones may stand there.
  const auto whole = static_cast<int64_t>(from.epochs.size());
  const auto counted = checked_product(whole, steps_an_epoch());
  if (!counted || *counted > from.step) {
    refuse_training(
        fmt::format("the checkpoint is damaged: {} epochs in {} steps", whole, from.step));
  }
  losses_ = from.losses;
  epochs_ = from.epochs;
  first_step_ = submitted_ = from.step;
}

void Trainer::check_train() const {
  const auto& arguments = train_.arguments();
  const auto& results = train_.results();
  if (arguments.size() < 3 || results.size() != arguments.size() - 1) {
    refuse_training(
        fmt::format("{}: a train program takes state leaves, images and labels and returns the "
                    "new leaves and the loss; this one has {} arguments and {} results",
                    train_.name(), arguments.size(), results.size()));
  }
  const size_t leaves = arguments.size() - 2;
  for (size_t i = 0; i < leaves; ++i) {
    if (results[i].dtype != arguments[i].dtype || results[i].shape != arguments[i].shape) {
      refuse_training(fmt::format("{}: result {} is {}, but state leaf {} is {}", train_.name(), i,
                                  type_of(results[i]), i, type_of(arguments[i])));
    }
    if (results[i].layout.offsets != arguments[i].layout.offsets) {
      refuse_training(fmt::format("{}: result {} does not lie on the cores as state leaf {} does",
                                  train_.name(), i, i));
    }
  }
  need_batch(train_, leaves, config_.batch);
  need_scalar(train_, leaves, "the loss", false);
  if (config_.init.size() != leaves) {
    refuse_training(fmt::format("state.init has {} entries, {} has {} state leaves",
                                config_.init.size(), train_.name(), leaves));
  }
}

void Trainer::check_eval() const {
  const auto& arguments = eval_->arguments();
  const auto& results = eval_->results();
  if (arguments.size() < 4 || arguments.size() - 3 > leaves_ || results.empty() ||
      results.size() > 2) {
    refuse_training(
        fmt::format("{}: an eval program takes the first state leaves, images, labels and mask "
                    "and returns correct and, if wanted, loss_sum; this one has {} arguments "
                    "and {} results",
                    eval_->name(), arguments.size(), results.size()));
  }
  const size_t leaves = arguments.size() - 3;
  for (size_t i = 0; i < leaves; ++i) {
    const ParameterInfo& leaf = train_.arguments()[i];
    if (arguments[i].dtype != leaf.dtype || arguments[i].shape != leaf.shape ||
        arguments[i].layout.offsets != leaf.layout.offsets) {
      refuse_training(fmt::format("{}: argument {} is {}, but state leaf {} of {} is {}",
                                  eval_->name(), i, type_of(arguments[i]), i, train_.name(),
                                  type_of(leaf)));
    }
  }
  const int64_t batch = arguments[leaves].shape.empty() ? 0 : arguments[leaves].shape[0];
  need_batch(*eval_, leaves, batch);
  data_.check_images(arguments[leaves], config_.images);
  const ParameterInfo& mask = arguments[leaves + 2];
  if (mask.dtype != DType::kF32 || mask.shape != Shape{batch}) {
    refuse_training(fmt::format("{}: argument {} must be the mask, f32[{}], not {}", eval_->name(),
                                leaves + 2, batch, type_of(mask)));
  }
  need_scalar(*eval_, 0, "the number of correct predictions", true);
  if (results.size() > 1) {
    need_scalar(*eval_, 1, "the sum of the losses", false);
  }
}

std::vector<HostArray> Trainer::initial_state() const {
  std::vector<HostArray> leaves;
  for (size_t i = 0; i < leaves_; ++i) {
    const ParameterInfo& info = train_.arguments()[i];
    leaves.push_back(initial_leaf(config_.init[i], info.dtype, info.shape, config_.seed, i));
  }
  return leaves;
}

void Trainer::submit(const std::vector<uint32_t>& order, size_t first) {
  const auto batch = static_cast<size_t>(config_.batch);
  const auto& arguments = train_.arguments();
  std::vector<Array> inputs = state_;
  inputs.push_back(train_.put(leaves_, data_.image_batch(arguments[leaves_], order, first, batch)));
  inputs.push_back(
      train_.put(leaves_ + 1, data_.label_batch(arguments[leaves_ + 1], order, first, batch)));
  RunResult result = train_.run(inputs);
  const Array loss = std::move(result.outputs.back());
  result.outputs.pop_back();
  state_ = std::move(result.outputs);
  InFlight entry{.loss = std::make_shared<float>(0.0f), .ready = {}};
  entry.ready =
      loss.parts()[0].read(std::as_writable_bytes(std::span<float, 1>(entry.loss.get(), 1)));
  entry.ready.on_ready([keep = entry.loss](const std::shared_ptr<const Error>&) {});
  in_flight_.push_back(std::move(entry));
  ++submitted_;
}

void Trainer::take_loss(const Progress& at, const TrainHooks& hooks) {
  in_flight_.front().ready.wait();
  losses_.push_back(*in_flight_.front().loss);
  in_flight_.pop_front();
  const auto when = std::chrono::steady_clock::now();
  step_seconds_.push_back(std::chrono::duration<double>(when - last_loss_).count());
  last_loss_ = when;
  Progress now = at;
  now.step = static_cast<int64_t>(losses_.size());
  now.loss = losses_.back();
  if (hooks.step) {
    hooks.step(now);
  }
}

void Trainer::take_losses(const Progress& at, const TrainHooks& hooks) {
  while (!in_flight_.empty()) {
    take_loss(at, hooks);
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

// Steps `first` .. `last` - 1 of an epoch whose first one is `first`; true when it was stopped.
bool Trainer::run_steps(const Progress& at, int64_t first, int64_t last, const TrainLimits& limits,
                        const TrainHooks& hooks) {
  const std::vector<uint32_t> order = data_.epoch_order(static_cast<uint32_t>(at.epoch - 1));
  window_.open();
  last_loss_ = std::chrono::steady_clock::now();
  bool stop = false;
  while (submitted_ < last) {
    stop = hooks.stop_wanted && hooks.stop_wanted();
    if (stop) {
      break;
    }
    submit(order, static_cast<size_t>((submitted_ - first) * config_.batch));
    if (in_flight_.size() > kStepsInFlight) {
      take_loss(at, hooks);
    }
    const bool due = limits.checkpoint_every > 0 && submitted_ % limits.checkpoint_every == 0;
    if (due && submitted_ < at.steps && hooks.save) {
      take_losses(at, hooks);
      window_.close();  // the time of a checkpoint is no time of steps
      hooks.save();
      window_.open();
      last_loss_ = std::chrono::steady_clock::now();
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
  if (eval_ && has_data_ && due && !stop) {
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
  return stop;
}

bool Trainer::train(const TrainLimits& limits, const TrainHooks& hooks) {
  const int64_t planned = planned_steps(limits.max_steps);
  if (first_step_ > planned) {
    refuse_training(
        fmt::format("the checkpoint stands at step {}; {} steps are asked for; give more "
                    "--steps or epochs, or leave --resume out",
                    first_step_, planned));
  }
  for (const Array& leaf : state_) {
    leaf.wait();
  }
  if (submitted_ == planned && eval_ && has_data_ && !epochs_.empty() && !epochs_.back().eval) {
    epochs_.pop_back();  // the run ends here, with an evaluation that was not due before
  }
  const int64_t an_epoch = steps_an_epoch();
  for (int64_t first = static_cast<int64_t>(epochs_.size()) * an_epoch;
       submitted_ < planned || submitted_ > first; first += an_epoch) {
    const Progress at{.epoch = first / an_epoch + 1, .step = 0, .steps = planned, .loss = 0};
    bool stop = run_steps(at, first, std::min(planned, first + an_epoch), limits, hooks);
    if (submitted_ > first) {
      stop = end_epoch(at.epoch, planned, stop, hooks);
    }
    if (stop) {
      return false;
    }
  }
  return true;
}

Checkpoint Trainer::checkpoint() {
  Checkpoint made;
  made.step = submitted_;
  made.order = data_.order(config_.batch);
  for (const EpochResult& epoch : epochs_) {
    if (epoch.whole) {
      made.epochs.push_back(epoch);
    }
  }
  made.losses = losses_;
  made.leaves = state();
  return made;
}

std::optional<Checkpoint> Trainer::rescue() {
  try {
    take_losses({}, {});
    const bool live = std::all_of(state_.begin(), state_.end(), [](const Array& leaf) {
      return std::all_of(leaf.parts().begin(), leaf.parts().end(),
                         [](const Buffer& part) { return part.live(); });
    });
    if (live && submitted_ == static_cast<int64_t>(losses_.size()) && submitted_ > first_step_) {
      return checkpoint();
    }
  } catch (const std::exception&) {
    // The error that is on its way says more.
  }
  return std::nullopt;
}

EvalResult Trainer::evaluate() {
  const size_t leaves = eval_->arguments().size() - 3;
  const auto& arguments = eval_->arguments();
  const auto batch = static_cast<size_t>(arguments[leaves].shape[0]);
  const std::vector<uint32_t>& order = data_.eval_order();
  std::vector<RunResult> results;
  for (size_t first = 0; first < order.size(); first += batch) {
    const size_t count = std::min(batch, order.size() - first);
    std::vector<float> mask(batch, 0.0f);
    std::fill(mask.begin(), mask.begin() + static_cast<ptrdiff_t>(count), 1.0f);
    std::vector<Array> inputs(state_.begin(), state_.begin() + static_cast<ptrdiff_t>(leaves));
    inputs.push_back(eval_->put(leaves, data_.image_batch(arguments[leaves], order, first, count)));
    inputs.push_back(
        eval_->put(leaves + 1, data_.label_batch(arguments[leaves + 1], order, first, count)));
    inputs.push_back(eval_->put(leaves + 2, HostView(DType::kF32, {static_cast<int64_t>(batch)},
                                                     std::as_bytes(std::span(mask)))));
    RunOptions options;
    for (size_t i = 0; i < leaves; ++i) {
      options.keep.push_back(i);  // an eval program must not use up the state
    }
    results.push_back(eval_->run(inputs, options));
  }
  double correct = 0;
  double loss = 0;
  for (const RunResult& result : results) {
    correct += static_cast<double>(scalar(result.outputs[0].to_host_checked("correct")));
    if (result.outputs.size() > 1) {
      loss += static_cast<double>(scalar(result.outputs[1].to_host_checked("loss_sum")));
    }
  }
  EvalResult result{{{"accuracy", correct / static_cast<double>(order.size())}}};
  if (eval_->results().size() > 1) {
    result.metrics.push_back({"loss", loss / static_cast<double>(order.size())});
  }
  return result;
}

std::vector<HostArray> Trainer::state() {
  std::vector<HostArray> leaves;
  for (size_t i = 0; i < state_.size(); ++i) {
    leaves.push_back(has_data_ ? state_[i].to_host_checked(fmt::format("state leaf {}", i))
                               : state_[i].to_host());
  }
  return leaves;
}

}  // namespace tpu::training
