// What the arguments and results of a program are to training. A configuration says it in lists
// with one entry for each of them (docs/host_driver.md, "Programs"); without a list the convention
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

/// Rows of the eval program's inputs.
int64_t eval_batch(const Signature& signature, const driver::Executable& program);

/// Argument of `program` that holds leaf `name`, by number or by the name that it has there.
size_t find_leaf(const std::string& name, const Signature& signature,
                 const driver::Executable& program);

}  // namespace tpu::training
