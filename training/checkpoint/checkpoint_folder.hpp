// The folder of a run's checkpoints: step120.safetensors, step140.safetensors, ... A run that
// starts anew where there are some already is number 2 of the folder: run2.step20.safetensors; its
// first checkpoint takes the place of all older ones.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "file/files.hpp"

namespace tpu::training {

/// What a file of the folder is called; in the order of writing. What it is says its header
/// (holds_own_checkpoint()), and only what this user's runs have written is renamed, replaced or
/// removed.
struct CheckpointName {
  int64_t run = 1;
  int64_t step = 0;

  std::string text() const;
  static std::optional<CheckpointName> parse(const std::string& name);
  auto operator<=>(const CheckpointName&) const = default;
};

class CheckpointFolder {
 public:
  /// Changes nothing yet. `keep`: how many are kept beside the best one; at least 1. `say` is told
  /// when save() moves a file of others away; by the thread that calls it.
  CheckpointFolder(std::filesystem::path path, size_t keep,
                   std::function<void(const std::string&)> say = {});

  /// Makes the folder and locks it until the object goes; removes what a killed run has left half
  /// written. The other calls do so by themselves. Throws FailedPrecondition when the folder cannot
  /// be written to or another run has it.
  void open();

  /// The newest complete checkpoint; the run goes on from there. Damaged ones that are newer get
  /// the suffix .damaged, files of others are passed over, and `say` is told of each. Throws
  /// InvalidArgument when there is none, and UnreadableFile when a newer one cannot be opened or
  /// read just now: it may be as good as any.
  Checkpoint resume(const std::function<void(const std::string&)>& say);

  /// Writes a checkpoint and removes those that are not kept any more. A file of others that has
  /// its name gets the suffix .other. Throws as write_checkpoint(); what was there before is as it
  /// was then.
  void save(const Checkpoint& checkpoint);

  const std::filesystem::path& path() const { return path_; }
  /// The newest one, by its name.
  std::optional<CheckpointName> newest() const;

 private:
  std::vector<CheckpointName> names() const;
  std::filesystem::path file(const CheckpointName& name) const { return path_ / name.text(); }
  void make_place(const std::filesystem::path& target) const;
  void remove_rest(const Checkpoint& saved) const;

  const std::filesystem::path path_;
  const size_t keep_;
  const std::function<void(const std::string&)> say_;
  std::optional<driver::FolderLock> lock_;
  std::optional<int64_t> run_;  // known with the first resume or save
};

/// The checkpoints of a folder by their names, in the order of writing. Throws UnreadableFile for a
/// folder that is there and cannot be read.
std::vector<CheckpointName> checkpoint_names(const std::filesystem::path& folder);
/// The newest of them; for messages: none where they cannot be read.
std::optional<CheckpointName> newest_checkpoint(const std::filesystem::path& folder);

}  // namespace tpu::training
