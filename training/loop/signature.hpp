// What the arguments and results of a program are to training. A configuration says it in lists
// with one entry for each of them (docs/training.md, "Programs"); without a list the convention
// holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loop/train_config.hpp"
#include "tpu/executable.hpp"

namespace tpu::training {

enum class Role : uint8_t { kState, kInput, kMask, kLearningRate, kLoss, kMetric, kIgnored };

struct Place {
  Role role = Role::kIgnored;
  size_t index = 0;  ///< of the state leaf, of the input, of the metric

  bool operator==(const Place&) const = default;
};

/// What of a program is known before it is compiled.
struct ProgramNames {
  std::string name;
  std::vector<std::string> arguments;  ///< the program's names; empty ones where it gives none
  size_t results = 0;
};

struct Signature {
  std::vector<Place> arguments;
  std::vector<Place> results;
  std::vector<std::string> metrics;

  /// Where something stands; nothing when it does not.
  std::optional<size_t> argument(Place place) const;
  std::optional<size_t> result(Place place) const;
  /// How many of the arguments are of that kind.
  size_t count(Role role) const;
};

/// Checks the program against the lists or the convention: each state leaf is an argument and a
/// result of the same type at the same place, inputs have the batch in dimension 0, the loss is a
/// scalar. Throws InvalidArgument.
Signature train_signature(const TrainConfig& config, const driver::Executable& program);
/// The same of an eval program, whose state leaves are those of `train`.
Signature eval_signature(const TrainConfig& config, const driver::Executable& program,
                         const Signature& train_signature, const driver::Executable& train);

/// Arguments with an element or row for each example of a batch: inputs and mask. `eval` takes the
/// state of `train`. Throws as the signatures do, whose checks of types come later.
std::vector<size_t> batch_arguments(const TrainConfig& config, const ProgramNames& train);
std::vector<size_t> eval_batch_arguments(const TrainConfig& config, const ProgramNames& eval,
                                         const ProgramNames& train);

/// Rows of the eval program's inputs.
int64_t eval_batch(const Signature& signature, const driver::Executable& program);

/// Argument of `program` that holds leaf `name`, by number or by the name that it has there.
size_t find_leaf(const std::string& name, const Signature& signature,
                 const driver::Executable& program);

}  // namespace tpu::training
