// The checkpoints of a run of `tpuboard train`: when one fails, what is said of it, and where the
// state stands after an error.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/checkpoint_writer.hpp"
#include "loop/train_config.hpp"
#include "loop/trainer.hpp"

namespace tpu::driver {

class RunCheckpoints {
 public:
  RunCheckpoints(std::filesystem::path folder, const training::CheckpointRules& rules);

  /// The newest complete checkpoint; what was passed over is said.
  training::Checkpoint resume();
  /// Makes and locks the folder, before hours of work and not behind them.
  void open() { folder_.open(); }
  const std::filesystem::path& path() const { return folder_.path(); }

  /// SHA-256 of the program that the run was compiled from; goes into each checkpoint.
  void set_program(const std::string& sha256) { program_ = sha256; }
  training::RunParts parts(const training::Trainer& trainer) const;
  /// Throws InvalidArgument when the run would be another one than the checkpoint's, unless
  /// `accept`: then it is said only.
  void check_parts(const training::RunParts& checkpoint, const training::RunParts& run,
                   bool accept) const;

  /// Between two steps: copies the state and has it written while the next steps run. Waits for the
  /// one before.
  void save_on_the_way(training::Trainer& trainer);
  /// Says what has failed since; throws when the configuration wants the run to end then.
  void poll();
  /// At once; throws with the step in the text.
  void save(training::Checkpoint checkpoint, const training::Trainer& trainer);

  /// Of the last one that is on the disk; also of the one that the run came from.
  std::optional<int64_t> saved_step() const { return saved_step_; }
  /// Waits for what is being written; a failure is said.
  void finish();
  /// "\nthe state after step 40 stands in ...", empty when none does.
  std::string stands() const;
  /// The same behind a loss that is not finite: reads how far back the state was not finite either.
  std::string stands_finite() const;
  /// Number, wall-clock time of copies and of writing, the best one.
  nlohmann::ordered_json figures(const training::Trainer& trainer) const;

 private:
  void take(const training::CheckpointWriter::Outcome& outcome);

  const training::CheckpointRules rules_;
  training::CheckpointFolder folder_;
  std::string program_;
  std::optional<int64_t> saved_step_;
  int64_t written_ = 0;
  double copy_seconds_ = 0;
  double wait_seconds_ = 0;
  double write_seconds_ = 0;
  mutable std::string data_;  // computed once
  training::CheckpointWriter writer_;
};

}  // namespace tpu::driver
