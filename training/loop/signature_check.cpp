// Each check names the argument or result by its number, as `tpuboard objdump` lists it.
#include "loop/signature_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "check/refuse.hpp"
#include "terminal/counted.hpp"

namespace tpu::training {

using driver::DType;
using driver::Executable;
using driver::ParameterInfo;
using driver::refuse;
using driver::Shape;
using driver::type_text;

namespace {

std::string type_of(const ParameterInfo& info) { return type_text(info.dtype, info.shape); }

// Dimension 0 is the batch, and the type is one that the input may have.
void check_input(const InputConfig& input, const Executable& program, size_t argument,
                 int64_t batch, const std::string& remedy = {}) {
  const ParameterInfo& info = program.arguments()[argument];
  const bool known_type = input.types.empty() || std::find(input.types.begin(), input.types.end(),
                                                           info.dtype) != input.types.end();
  if (known_type && batch >= 1 && !info.shape.empty() && info.shape[0] == batch &&
      (!input.numbers || info.shape.size() == 1)) {
    return;
  }
  std::string types;
  for (size_t i = 0; i < input.types.size(); ++i) {
    types += i == 0 ? "" : i + 1 == input.types.size() ? " or " : ", ";
    types += driver::dtype_name(input.types[i]);
  }
  refuse(fmt::format("{}: argument {} must be the {}, {}{}[{}{}], not {}{}", program.name(),
                     argument, input.name, types, input.types.empty() || input.numbers ? "" : " ",
                     batch, input.numbers ? "" : ",...", type_of(info), remedy));
}

// A program has one batch.
std::string scaled_text(const TrainConfig& config) {
  return config.scale_batch
             ? fmt::format(
                   "; run.scale_batch (--scale-batch) makes a batch of {} for {}: "
                   "export the program for it, with {{batch}} in its file name and in "
                   "program.train, or leave run.scale_batch out",
                   config.batch, spec::counted(config.cores, "core"))
             : std::string();
}

void check_mask(const Executable& program, size_t argument, int64_t batch) {
  const ParameterInfo& mask = program.arguments()[argument];
  if (mask.dtype != DType::kF32 || mask.shape != Shape{batch}) {
    refuse(fmt::format("{}: argument {} must be the mask, f32[{}], not {}", program.name(),
                       argument, batch, type_of(mask)));
  }
}

void check_scalar(const Executable& program, size_t result, const std::string& what, bool i32_too) {
  const ParameterInfo& info = program.results()[result];
  if (!info.shape.empty() ||
      !(info.dtype == DType::kF32 || (i32_too && info.dtype == DType::kI32))) {
    refuse(fmt::format("{}: result {} must be {}, a scalar f32{}, not {}", program.name(), result,
                       what, i32_too ? " or i32" : "", type_of(info)));
  }
}

// A scalar, or one number an example.
void check_metric(const Executable& program, size_t result, const std::string& name,
                  int64_t batch) {
  const ParameterInfo& info = program.results()[result];
  const bool number = info.dtype == DType::kF32 || info.dtype == DType::kI32;
  if (!number || !(info.shape.empty() || info.shape == Shape{batch})) {
    refuse(
        fmt::format("{}: result {} must be the metric {}, a scalar or [{}] of f32 or "
                    "i32, not {}",
                    program.name(), result, name, batch, type_of(info)));
  }
}

// Each leaf is replaced by a result like it.
void check_state(const Executable& program, const Signature& signature) {
  const size_t leaves = signature.count(Role::kState);
  for (size_t leaf = 0; leaf < leaves; ++leaf) {
    const std::optional<size_t> before = signature.argument({Role::kState, leaf});
    const std::optional<size_t> after = signature.result({Role::kState, leaf});
    if (!before || !after) {
      refuse(fmt::format("{}: state leaf {} is not a {}", program.name(), leaf,
                         before ? "result" : "argument"));
    }
    const ParameterInfo& argument = program.arguments()[*before];
    const ParameterInfo& result = program.results()[*after];
    if (result.dtype != argument.dtype || result.shape != argument.shape) {
      refuse(fmt::format("{}: result {} is {}, but state leaf {} is {}", program.name(), *after,
                         type_of(result), leaf, type_of(argument)));
    }
    if (result.layout.offsets != argument.layout.offsets) {
      refuse(fmt::format("{}: result {} is not sharded as state leaf {} is", program.name(), *after,
                         leaf));
    }
  }
}

void check_rate(const TrainConfig& config, const Executable& program, const Signature& signature) {
  const std::optional<size_t> argument = signature.argument({Role::kLearningRate});
  if (takes_rate(config) != argument.has_value()) {
    refuse(argument ? fmt::format("{}: argument {} is a learning rate; give its values in "
                                  "[learning_rate]",
                                  program.name(), *argument)
                    : fmt::format("{}: [learning_rate] has no argument to go to; name it "
                                  "in program.arguments, or the state leaf that holds it "
                                  "in learning_rate.leaf",
                                  program.name()));
  }
  if (argument || config.learning_rate) {
    const size_t place =
        argument ? *argument : find_leaf(config.learning_rate->leaf, signature, program);
    const ParameterInfo& info = program.arguments()[place];
    if (info.dtype != DType::kF32 || !info.shape.empty()) {
      refuse(fmt::format("{}: argument {} must be the learning rate, a scalar f32, not {}",
                         program.name(), place, type_of(info)));
    }
  }
}

void check_eval_state(const Executable& program, const Signature& signature,
                      const Executable& train, const Signature& train_signature) {
  for (size_t i = 0; i < signature.arguments.size(); ++i) {
    const Place place = signature.arguments[i];
    if (place.role != Role::kState) {
      continue;
    }
    const std::optional<size_t> in_train = train_signature.argument(place);
    if (!in_train) {
      refuse(fmt::format("{}: argument {} is state leaf {}, but {} has {}", program.name(), i,
                         place.index, train.name(), train_signature.count(Role::kState)));
    }
    const ParameterInfo& mine = program.arguments()[i];
    const ParameterInfo& leaf = train.arguments()[*in_train];
    if (mine.dtype != leaf.dtype || mine.shape != leaf.shape) {
      refuse(fmt::format("{}: argument {} is {}, but state leaf {} of {} is {}", program.name(), i,
                         type_of(mine), place.index, train.name(), type_of(leaf)));
    }
    if (mine.layout.offsets != leaf.layout.offsets) {
      refuse(fmt::format(
          "{}: argument {}, {}, is sharded over the program's {} cores differently than "
          "state leaf {} on the {} of {}; compile both for the same cores (--cores) "
          "and shardings",
          program.name(), i, type_of(mine), program.partitions(), place.index, train.partitions(),
          train.name()));
    }
  }
}

void check_eval_results(const Executable& program, const Signature& signature, int64_t batch) {
  for (size_t i = 0; i < signature.results.size(); ++i) {
    if (signature.results[i].role == Role::kState || signature.results[i].role == Role::kLoss) {
      refuse(fmt::format("{}: result {} of an eval program is a metric, not state", program.name(),
                         i));
    }
    if (signature.results[i].role != Role::kMetric) {
      continue;
    }
    const std::string& name = signature.metrics[signature.results[i].index];
    if (name == "correct" || name == "loss_sum") {
      check_scalar(
          program, i,
          name == "correct" ? "the number of correct predictions" : "the sum of the losses",
          name == "correct");
    }
    check_metric(program, i, name, batch);
    // Padding counts in a sum that the program makes.
    if (program.results()[i].shape.empty() && !signature.argument({Role::kMask})) {
      refuse(
          fmt::format("{}: result {} is a sum over a batch, so the program must take a "
                      "mask; or let it return {} of each example",
                      program.name(), i, name));
    }
  }
}

}  // namespace

bool takes_rate(const TrainConfig& config) {
  return config.learning_rate && config.learning_rate->leaf.empty();
}

void check_train_signature(const TrainConfig& config, const Executable& program,
                           const Signature& signature) {
  check_state(program, signature);
  if (signature.argument({Role::kMask})) {
    refuse(
        fmt::format("{}: a train program has no padding and takes no mask; give a mask that is an "
                    "input another name",
                    program.name()));
  }
  for (size_t i = 0; i < config.inputs.size(); ++i) {
    const std::optional<size_t> argument = signature.argument({Role::kInput, i});
    if (!argument) {
      refuse(fmt::format("{}: takes no argument {}; name it in program.arguments", program.name(),
                         config.inputs[i].name));
    }
    check_input(config.inputs[i], program, *argument, config.batch, scaled_text(config));
  }
  const std::optional<size_t> loss = signature.result({Role::kLoss});
  if (!loss) {
    refuse(fmt::format("{}: no result is the loss; name it in program.results", program.name()));
  }
  check_scalar(program, *loss, "the loss", false);
  for (size_t i = 0; i < signature.metrics.size(); ++i) {
    check_metric(program, *signature.result({Role::kMetric, i}), signature.metrics[i],
                 config.batch);
  }
  check_rate(config, program, signature);
}

void check_eval_signature(const TrainConfig& config, const Executable& program,
                          const Signature& signature, const Executable& train,
                          const Signature& train_signature) {
  if (signature.argument({Role::kLearningRate})) {
    refuse(fmt::format("{}: an eval program takes no learning rate", program.name()));
  }
  check_eval_state(program, signature, train, train_signature);
  const int64_t batch = eval_batch(signature, program);
  for (size_t i = 0; i < signature.arguments.size(); ++i) {
    if (signature.arguments[i].role == Role::kInput) {
      check_input(config.inputs[signature.arguments[i].index], program, i, batch);
    } else if (signature.arguments[i].role == Role::kMask) {
      check_mask(program, i, batch);
    }
  }
  check_eval_results(program, signature, batch);
}

}  // namespace tpu::training
