// Replays: where a run goes on after a fault of the board (FaultRules), and when it does not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "loop/train_config.hpp"
#include "tpu/error.hpp"

namespace tpu::training {

class Replays {
 public:
  /// `from`: the checkpoint that the run came from; null: none.
  Replays(const FaultRules& rules, const Checkpoint* from);

  bool wanted() const { return rules_.replay; }
  /// The run can go back to it from now on; of no use unless wanted().
  void keep(const Checkpoint& checkpoint);
  /// The last one that was kept; null: the run goes back to its initial state.
  const Checkpoint* kept() const { return kept_ ? &*kept_ : nullptr; }
  /// The same, to go back to. Throws DataLoss when the host's memory has changed its state.
  const Checkpoint* undamaged() const;
  /// Whether this error of a step is a fault of the board behind which the run can go on.
  bool recovers(const driver::Error& why) const;
  /// Counts a fault of step `step`. Throws it with the reason when the run is to end: the same
  /// fault came back at the same place, or there were too many.
  void count(const driver::Error& why, int64_t step);

 private:
  const FaultRules rules_;
  std::optional<Checkpoint> kept_;
  std::string digest_;  // of its state
  int64_t replays_ = 0;
  std::vector<std::string> seen_;  // faults since `kept_`, by step, place and text without times
};

}  // namespace tpu::training
