// A checkpoint of a training run: one safetensors file with the state leaves, the losses so far and
// what the run was made of. A SHA-256 over all of it tells a damaged file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tpu/types.hpp"

namespace tpu::training {

/// A figure of a run by its name, such as "accuracy".
struct Metric {
  std::string name;
  double value = 0;

  bool operator==(const Metric&) const = default;
};

/// Over the held-out examples, in the order of the eval program's results.
struct EvalResult {
  std::vector<Metric> metrics;

  /// Nothing when the program has no such metric.
  std::optional<double> find(std::string_view name) const;
};

struct EpochResult {
  int64_t epoch = 0;  ///< from 1 on
  double train_loss = 0;
  std::optional<EvalResult> eval;
  bool whole = false;  ///< all its steps, and the evaluation that was due, are done
};

/// What the order of examples depends on. A run goes on only with the same.
struct DataOrder {
  uint64_t split_seed = 0;
  uint64_t examples = 0;
  uint64_t eval_count = 0;
  int64_t batch = 0;

  bool operator==(const DataOrder&) const = default;
};

/// What a run computes with, and where.
struct RunParts {
  std::string program;  ///< SHA-256 of the artifact; empty: an executable, whose source is unknown
  std::string data;     ///< SHA-256 of the examples
  std::string board;
  int64_t cores = 0;
};

/// The step with the best evaluation so far.
struct BestStep {
  std::string rule;  ///< what the best is: "largest accuracy"
  int64_t step = 0;
  double value = 0;
};

struct Checkpoint {
  int64_t step = 0;  ///< of the whole training
  uint64_t state_seed = 0;
  DataOrder order;
  std::string input;  ///< position of the input; empty: behind `step` batches of any order
  RunParts parts;
  std::optional<BestStep> best;
  std::vector<EpochResult> epochs;  ///< whole ones
  std::vector<float> losses;        ///< one a step
  std::vector<driver::HostArray> leaves;
};

/// The first state leaf that holds a NaN or an infinite value.
std::optional<size_t> leaf_not_finite(const std::vector<driver::HostArray>& leaves);

/// SHA-256 of the state leaves in order.
std::string state_digest(const std::vector<driver::HostArray>& leaves);

/// Name of state leaf `leaf` in a checkpoint: "state.3".
std::string leaf_name(size_t leaf);

/// Replaces the file in one step and waits until it is on the disk: at every moment, and on an
/// Error (as FileWriter), the old one or none is there, or the new one.
void write_checkpoint(const std::filesystem::path& file, const Checkpoint& checkpoint);

/// Throws InvalidArgument when the file is damaged or no checkpoint, UnreadableFile (files.hpp)
/// when it cannot be opened or read just now, FailedPrecondition when another version wrote it,
/// ResourceExhausted when the host has no room.
Checkpoint read_checkpoint(const std::filesystem::path& path);

/// By its header, which must be whole: an ordinary file of this user, no link, that a run has
/// written as a checkpoint of whatever version; its rest may be cut or damaged.
bool holds_own_checkpoint(const std::filesystem::path& path);

/// What makes the rest of a run another one: a text each.
std::vector<std::string> changed_parts(const RunParts& checkpoint, const RunParts& run);
/// What the owner of the run should know, although the run may go on.
std::vector<std::string> notes_on_parts(const RunParts& checkpoint, const RunParts& run);

}  // namespace tpu::training
