// Windows of the board's time are measured by epoch; within one the debug port tells the same
// without taking simulated time.
#include "cli/train/progress_bar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "report/run_figures.hpp"

namespace tpu::driver {

using training::EpochResult;
using training::Progress;
using training::Trainer;
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// `idle`: nothing where it is not known.
std::string figures(double seconds, double mxu, std::optional<double> idle) {
  return fmt::format("  {:.1f} us/step  MXU {:.2f} %", seconds * 1e6, 100 * mxu) +
         (idle ? fmt::format("  idle {:.2f} %", 100 * *idle) : std::string());
}

}  // namespace

ProgressBar::ProgressBar(const Trainer& trainer)
    : trainer_(trainer), bar_("", 0, stdout), start_(Clock::now()) {}

void ProgressBar::step(const Progress& at) {
  if (!bar_.terminal()) {
    return;
  }
  if (at.epoch != epoch_) {
    begin_epoch(at);
  }
  if (!bar_.due() && at.step != at.steps) {
    return;
  }
  // Of this run: steps before it was resumed took no time.
  const double rate = static_cast<double>(trainer_.steps_run()) / seconds_since(start_);
  const auto left = static_cast<double>(at.steps - at.step);
  bar_.show(static_cast<double>(at.step) / static_cast<double>(at.steps),
            fmt::format("{}/{}{}{}", at.step, at.steps, loss_text(at.loss), live_figures(at.step)),
            {spec::duration_text(rate > 0 ? left / rate : 0) + " left",
             fmt::format("epoch {}", at.epoch), fmt::format("{:.1f} steps/s", rate)});
}

void ProgressBar::epoch(const EpochResult& result) {
  const Window& window = trainer_.window();
  const auto steps = static_cast<double>(std::max<int64_t>(1, trainer_.steps_run()));
  std::string text =
      fmt::format("epoch {:>3}{}{}", result.epoch, loss_text(result.train_loss),
                  figures(window.seconds() / steps, window.mxu_utilization(), window.idle()));
  if (result.eval) {
    for (const auto& [name, value] : result.eval->metrics) {
      text += name == "accuracy" ? fmt::format("  test accuracy {:.2f} %", 100 * value)
                                 : fmt::format("  test {} {:.4f}", name, value);
    }
  }
  bar_.print(text);
}

std::string ProgressBar::loss_text(double loss) const {
  return trainer_.has_data() ? fmt::format("  loss {:.4f}", loss) : std::string();
}

// The first step of an epoch only starts the clock.
void ProgressBar::begin_epoch(const Progress& at) {
  epoch_ = at.epoch;
  first_step_ = at.step;
  first_cycle_ = trainer_.board().now();
  first_run_ = training::busy_cycles(trainer_);
}

// Since the first step of the epoch; of the epochs before while there is nothing else to tell.
std::string ProgressBar::live_figures(int64_t step) const {
  const Window& window = trainer_.window();
  const Board& board = trainer_.board();
  const auto cycles = static_cast<double>(board.now() - first_cycle_);
  if (step == first_step_ || cycles <= 0) {
    const int64_t before = first_step_ - 1 - trainer_.first_step();
    return before < 1 ? std::string()
                      : figures(window.seconds() / static_cast<double>(before),
                                window.mxu_utilization(), window.idle());
  }
  const auto steps = static_cast<double>(step - first_step_);
  const double core_cycles = cycles * trainer_.program().partitions();
  const std::optional<uint64_t> run = training::busy_cycles(trainer_);
  const double mxu = steps * static_cast<double>(trainer_.program().matmul_flops()) /
                     (cycles * static_cast<double>(board.peak_flops_per_cycle()));
  std::optional<double> idle;
  if (run && first_run_) {
    idle = std::clamp(1.0 - static_cast<double>(*run - *first_run_) / core_cycles, 0.0, 1.0);
  }
  return figures(cycles / steps / board.clock_hz(), mxu, idle);
}

}  // namespace tpu::driver
