// The training loop.
#include "cli/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "cli/initial_state.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

constexpr size_t kStepsInFlight = 3;

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ErrorCode::kInvalidArgument, text);
}

std::string type_of(const ParameterInfo& info) { return type_text(info.dtype, info.shape); }

void need_scalar(const Executable& program, size_t result, const char* what, bool i32_too) {
  const ParameterInfo& info = program.results()[result];
  if (!info.shape.empty() ||
      !(info.dtype == DType::kF32 || (i32_too && info.dtype == DType::kI32))) {
    refuse(fmt::format("{}: result {} must be {}, a scalar f32{}, not {}", program.name(), result,
                       what, i32_too ? " or i32" : "", type_of(info)));
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
    refuse(fmt::format("{}: argument {} must be the images, f32, bf16 or ui8 [{},...], not {}",
                       program.name(), first, batch, type_of(images)));
  }
  if (labels.dtype != DType::kI32 || labels.shape != Shape{batch}) {
    refuse(fmt::format("{}: argument {} must be the labels, i32[{}], not {}", program.name(),
                       first + 1, batch, type_of(labels)));
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
                 std::optional<Executable> eval, bool has_data)
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
      window_(board, train_.partitions()) {
  if (eval_) {
    check_eval();
  }
  if (static_cast<int64_t>(data_.train_count()) < config.batch) {
    refuse(fmt::format("{} training examples are less than one batch of {}", data_.train_count(),
                       config.batch));
  }
  const std::vector<HostArray> leaves = initial_state();
  for (size_t i = 0; i < leaves.size(); ++i) {
    state_.push_back(train_.put(i, leaves[i]));
  }
}

void Trainer::check_train() const {
  const auto& arguments = train_.arguments();
  const auto& results = train_.results();
  if (arguments.size() < 3 || results.size() != arguments.size() - 1) {
    refuse(
        fmt::format("{}: a train program takes state leaves, images and labels and returns the "
                    "new leaves and the loss; this one has {} arguments and {} results",
                    train_.name(), arguments.size(), results.size()));
  }
  const size_t leaves = arguments.size() - 2;
  for (size_t i = 0; i < leaves; ++i) {
    if (results[i].dtype != arguments[i].dtype || results[i].shape != arguments[i].shape) {
      refuse(fmt::format("{}: result {} is {}, but state leaf {} is {}", train_.name(), i,
                         type_of(results[i]), i, type_of(arguments[i])));
    }
    if (results[i].layout.offsets != arguments[i].layout.offsets) {
      refuse(fmt::format("{}: result {} does not lie on the cores as state leaf {} does",
                         train_.name(), i, i));
    }
  }
  need_batch(train_, leaves, config_.batch);
  need_scalar(train_, leaves, "the loss", false);
  if (config_.init.size() != leaves) {
    refuse(fmt::format("state.init has {} entries, {} has {} state leaves", config_.init.size(),
                       train_.name(), leaves));
  }
}

void Trainer::check_eval() const {
  const auto& arguments = eval_->arguments();
  const auto& results = eval_->results();
  if (arguments.size() < 4 || arguments.size() - 3 > leaves_ || results.empty() ||
      results.size() > 2) {
    refuse(
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
      refuse(fmt::format("{}: argument {} is {}, but state leaf {} of {} is {}", eval_->name(), i,
                         type_of(arguments[i]), i, train_.name(), type_of(leaf)));
    }
  }
  const int64_t batch = arguments[leaves].shape.empty() ? 0 : arguments[leaves].shape[0];
  need_batch(*eval_, leaves, batch);
  const ParameterInfo& mask = arguments[leaves + 2];
  if (mask.dtype != DType::kF32 || mask.shape != Shape{batch}) {
    refuse(fmt::format("{}: argument {} must be the mask, f32[{}], not {}", eval_->name(),
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
  in_flight_.emplace_back();
  InFlight& entry = in_flight_.back();
  entry.ready = result.outputs[leaves_].parts()[0].read(
      std::as_writable_bytes(std::span<float, 1>(&entry.loss, 1)));
  result.outputs.pop_back();
  state_ = std::move(result.outputs);
}

void Trainer::take_loss(const Progress& at, const std::function<void(const Progress&)>& progress) {
  in_flight_.front().ready.wait();
  losses_.push_back(in_flight_.front().loss);
  in_flight_.pop_front();
  const auto when = std::chrono::steady_clock::now();
  step_seconds_.push_back(std::chrono::duration<double>(when - last_loss_).count());
  last_loss_ = when;
  Progress now = at;
  now.step = static_cast<int64_t>(losses_.size());
  now.loss = losses_.back();
  progress(now);
}

int64_t Trainer::planned_steps(int64_t max_steps) const {
  const auto an_epoch = static_cast<int64_t>(data_.train_count()) / config_.batch;
  const int64_t all = an_epoch * config_.epochs;
  return max_steps > 0 ? std::min(max_steps, all) : all;
}

void Trainer::train(int64_t max_steps, const std::function<void(const Progress&)>& progress,
                    const std::function<void(const EpochResult&)>& epoch_done) {
  const int64_t planned = planned_steps(max_steps);
  const auto batch = static_cast<size_t>(config_.batch);
  for (const Array& leaf : state_) {
    leaf.wait();
  }
  int64_t submitted = 0;
  for (int64_t epoch = 0; epoch < config_.epochs && submitted < planned; ++epoch) {
    const std::vector<uint32_t> order = data_.epoch_order(static_cast<uint32_t>(epoch));
    const size_t first_loss = losses_.size();
    const Progress at{.epoch = epoch + 1, .step = 0, .steps = planned, .loss = 0};
    window_.open();
    last_loss_ = std::chrono::steady_clock::now();
    for (size_t first = 0; first + batch <= order.size() && submitted < planned; first += batch) {
      submit(order, first);
      ++submitted;
      if (in_flight_.size() > kStepsInFlight) {
        take_loss(at, progress);
      }
    }
    while (!in_flight_.empty()) {
      take_loss(at, progress);
    }
    window_.close();
    EpochResult result;
    result.epoch = epoch + 1;
    result.train_loss =
        std::accumulate(losses_.begin() + static_cast<ptrdiff_t>(first_loss), losses_.end(), 0.0) /
        static_cast<double>(losses_.size() - first_loss);
    const bool last = submitted == planned;
    const bool due = config_.eval_every > 0 && (epoch + 1) % config_.eval_every == 0;
    if (eval_ && has_data_ && (last || due)) {
      result.eval = evaluate();
    }
    epochs_.push_back(result);
    epoch_done(result);
  }
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
  EvalResult result;
  result.accuracy = correct / static_cast<double>(order.size());
  if (eval_->results().size() > 1) {
    result.loss = loss / static_cast<double>(order.size());
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

}  // namespace tpu::driver
