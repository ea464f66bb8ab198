// TrainState: what a train program carries from step to step (parameters, optimizer state), leaf by
// leaf on the board.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "loop/signature.hpp"
#include "loop/train_config.hpp"
#include "tpu/buffer.hpp"
#include "tpu/executable.hpp"
#include "tpu/replicas_differ.hpp"

namespace tpu::training {

/// Copies of the state differ: contents that were lost (DataLoss).
class CopiesDiffer : public driver::Error {
 public:
  CopiesDiffer(const driver::ReplicasDiffer& differ, int64_t step);
  /// Behind which they were compared; 0: behind none.
  int64_t step() const { return step_; }

 private:
  int64_t step_;
};

/// With how many of its copies on other cores a replicated state leaf is compared.
enum class Replicas : uint8_t {
  kAll,
  kOne,  ///< with another one each time: a copy that differs is found within some checkpoints
};

class TrainState {
 public:
  /// `config` outlives it. `has_data`: false for a board that computes nothing; then replicas are
  /// not compared.
  TrainState(const TrainConfig& config, driver::Executable program, Signature signature,
             bool has_data);

  size_t leaves() const { return signature_.count(Role::kState); }
  /// The leaves as the program takes them.
  std::vector<driver::ParameterInfo> infos() const;
  /// What the board has; empty before put().
  const std::vector<driver::Array>& arrays() const { return arrays_; }
  /// Whether the board has all of it: a step that failed may have lost some.
  bool live() const;

  void clear() { arrays_.clear(); }
  /// Uploads the leaves and waits for them.
  void put(const std::vector<driver::HostArray>& leaves);
  /// The same of the state that the configuration names, or describes. Throws InvalidArgument.
  void put_initial();
  /// The state after a launch.
  void take_over(driver::RunResult& result);

  /// Of all of it, which passes through the host in pieces (checkpoint.hpp, state_digest()).
  /// Behind step `step`; throws as compare_replicas().
  std::string digest(int64_t step) const;
  /// Whether a leaf has copies on several cores.
  bool has_replicas() const;
  /// Compares all copies of all leaves behind step `step`; they pass through the host in pieces.
  /// Throws CopiesDiffer, which names the leaf, the cores and the element of the first difference.
  void compare_replicas(int64_t step) const;
  /// All of it on the host behind step `step`, compared over the cores when the board computes; as
  /// compare_replicas().
  std::vector<driver::HostArray> to_host(Replicas of, int64_t step);

 private:
  size_t argument(size_t leaf) const { return *signature_.argument({Role::kState, leaf}); }
  void put_described();
  driver::HostArray leaf_on_host(size_t leaf, Replicas of, int64_t step) const;
  driver::HostArray checked_leaf(size_t leaf, Replicas of) const;
  void wait() const;
  std::string called(size_t leaf) const;

  const TrainConfig& config_;
  const driver::Executable program_;
  const Signature signature_;
  const bool has_data_;
  std::vector<driver::Array> arrays_;
  size_t compared_ = 0;  // times that it was compared with one replica
};

}  // namespace tpu::training
