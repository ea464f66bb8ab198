// Loss, simulated time a step, MXU % and idle % while a training run goes on: one line that is
// written over on a terminal, one line an epoch elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "loop/trainer.hpp"
#include "terminal/text_bar.hpp"

namespace tpu::driver {

class ProgressBar {
 public:
  explicit ProgressBar(const training::Trainer& trainer);

  void step(const training::Progress& at);
  void epoch(const training::EpochResult& result);

 private:
  std::string loss_text(double loss) const;
  void begin_epoch(const training::Progress& at);
  std::string live_figures(int64_t step) const;

  using Clock = std::chrono::steady_clock;

  const training::Trainer& trainer_;
  spec::TextBar bar_;
  Clock::time_point start_;
  int64_t epoch_ = 0;
  int64_t first_step_ = 0;
  uint64_t first_cycle_ = 0;
  std::optional<uint64_t> first_run_ = {};
};

}  // namespace tpu::driver
