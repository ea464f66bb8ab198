// Checkpoints of a training run: a folder with the state leaves as 0.npy, 1.npy, ..., the losses so
// far and checkpoint.json. At every moment of writing one complete checkpoint is on the disk, the
// one before or the one that is written; read_checkpoint() finds it after a crash at any point.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
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

struct Checkpoint {
  int64_t step = 0;  ///< of the whole training
  DataOrder order;
  std::vector<EpochResult> epochs;  ///< whole ones
  std::vector<float> losses;        ///< one a step
  std::vector<driver::HostArray> leaves;
};

/// SHA-256 of the state leaves in order.
std::string state_digest(const std::vector<driver::HostArray>& leaves);

/// What the writing of a checkpoint asks of the file system, so that a test can fail at any point.
/// All throw Error (Internal) and come back when the change is on the disk.
class FileActions {
 public:
  virtual ~FileActions() = default;
  virtual void make_folder(const std::filesystem::path& path);
  virtual void write(const std::filesystem::path& path, std::span<const std::byte> bytes);
  virtual void sync(const std::filesystem::path& folder);
  /// Two folders change their names in one step; false when the file system cannot do this.
  virtual bool exchange(const std::filesystem::path& a, const std::filesystem::path& b);
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to);
  virtual void remove(const std::filesystem::path& folder);
};

/// Throws InvalidArgument when `folder` is no place for a checkpoint: a file, a folder with other
/// files in it (they would be lost), or the folder of the run itself.
void check_checkpoint_folder(const std::filesystem::path& folder);

/// Replaces the checkpoint `folder`. On an Error the old one is there as it was.
void write_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                      FileActions& actions);
void write_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint);

/// Throws InvalidArgument when there is no checkpoint or only damaged ones.
Checkpoint read_checkpoint(const std::filesystem::path& folder);

/// Step of the checkpoint in `folder`, as its checkpoint.json says; nothing when there is none.
std::optional<int64_t> checkpoint_step(const std::filesystem::path& folder);

}  // namespace tpu::training
