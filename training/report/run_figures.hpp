// Figures of a run by step: what the programs return and what the board did.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "loop/trainer.hpp"

namespace tpu::training {

/// Cycles with a program running so far, of all cores of the trainer's program together, from the
/// debug port. Nothing: the transport does not tell (PCI functions).
std::optional<uint64_t> busy_cycles(const Trainer& trainer);

/// One step, or one evaluation behind it.
struct FigureRow {
  int64_t step = 0;
  int64_t epoch = 0;
  bool evaluation = false;
  std::vector<Metric> values;
};

/// Makes rows of the calls of a trainer's hooks. Between two losses that come back the board does
/// about one step: MXU and idle are those of that time, not of the step's own commands. Idle is not
/// there where the transport does not tell it.
class StepMeter {
 public:
  explicit StepMeter(const Trainer& trainer);

  FigureRow step(const Progress& at);
  FigureRow epoch(const EpochResult& result);
  /// Time passed that no step took (a checkpoint, an evaluation).
  void skip();

 private:
  const Trainer& trainer_;
  uint64_t cycle_ = 0;                // of the loss before
  std::optional<uint64_t> run_ = {};  // cycles of all cores with a program running until then
  double waited_ = 0;                 // for the input until then
};

}  // namespace tpu::training
