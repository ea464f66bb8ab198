// Windows of the board's time are measured by epoch; within one the debug port tells the same
// without taking board time.
#include "cli/train/progress_bar.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "readers/view.hpp"

namespace tpu::driver {

using training::EpochResult;
using training::Progress;
using training::Trainer;
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

size_t terminal_columns() {
  constexpr size_t kUsual = 80;
  winsize size{};
  return ioctl(fileno(stdout), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

std::string figures(double seconds, double mxu, double idle) {
  return fmt::format("  {:.1f} us/step  MXU {:.2f} %  idle {:.2f} %", seconds * 1e6, 100 * mxu,
                     100 * idle);
}

// Progress that cannot be shown (a full disk, a reader that went away) does not end a run; the
// command looks at the state of standard output at its end.
void show(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

ProgressBar::ProgressBar(const Trainer& trainer)
    : trainer_(trainer), terminal_(isatty(fileno(stdout)) != 0), start_(Clock::now()) {}

void ProgressBar::step(const Progress& at) {
  constexpr double kMinSeconds = 0.1;
  if (!terminal_) {
    return;
  }
  if (at.epoch != epoch_) {
    begin_epoch(at);
  } else if (seconds_since(shown_) < kMinSeconds && at.step != at.steps) {
    return;
  }
  shown_ = Clock::now();
  std::string text =
      fmt::format(" {}/{}{}{}", at.step, at.steps, loss_text(at.loss), live_figures(at.step));
  // A line that is longer than the terminal could not be written over: what matters least goes.
  const size_t columns = terminal_columns();
  const double rate = static_cast<double>(trainer_.steps_run()) / seconds_since(start_);
  const auto left = static_cast<double>(at.steps - at.step);
  for (const std::string& extra :
       {fmt::format("  {} left", monitor::duration_text(rate > 0 ? left / rate : 0)),
        fmt::format("  epoch {}", at.epoch), fmt::format("  {:.1f} steps/s", rate)}) {
    constexpr size_t kShortBar = 12;
    text += text.size() + extra.size() + kShortBar < columns ? extra : std::string();
  }
  constexpr size_t kLongBar = 24;
  constexpr size_t kBrackets = 3;  // and the last column stays free
  const size_t width = std::min(kLongBar, columns - std::min(columns, text.size() + kBrackets));
  const double part = static_cast<double>(at.step) / static_cast<double>(at.steps);
  const auto done = static_cast<size_t>(static_cast<double>(width) * part);
  show(fmt::format("\r[{:<{}}]{}\x1b[K", std::string(done, '#'), width, text));
}

void ProgressBar::epoch(const EpochResult& result) {
  const Window& window = trainer_.window();
  const auto steps = static_cast<double>(std::max<int64_t>(1, trainer_.steps_run()));
  std::string text = fmt::format(
      "{}epoch {:>3}{}{}", terminal_ ? "\r\x1b[K" : "", result.epoch, loss_text(result.train_loss),
      figures(window.seconds() / steps, window.mxu_utilization(), window.idle()));
  if (result.eval) {
    for (const auto& [name, value] : result.eval->metrics) {
      text += name == "accuracy" ? fmt::format("  test accuracy {:.2f} %", 100 * value)
                                 : fmt::format("  test {} {:.4f}", name, value);
    }
  }
  show(text + "\n");
}

std::string ProgressBar::loss_text(double loss) const {
  return trainer_.has_data() ? fmt::format("  loss {:.4f}", loss) : std::string();
}

// The first step of an epoch only starts the clock.
void ProgressBar::begin_epoch(const Progress& at) {
  epoch_ = at.epoch;
  first_step_ = at.step;
  first_cycle_ = trainer_.board().now();
  first_run_ = run_cycles();
}

uint64_t ProgressBar::run_cycles() const {
  const std::vector<uint64_t> cores = trainer_.board().run_cycles();
  uint64_t sum = 0;
  for (const int device : trainer_.program().devices()) {
    sum += cores[static_cast<size_t>(device)];
  }
  return sum;
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
  const auto run = static_cast<double>(run_cycles() - first_run_);
  const double mxu = steps * static_cast<double>(trainer_.program().matmul_flops()) /
                     (cycles * static_cast<double>(board.peak_flops_per_cycle()));
  return figures(cycles / steps / board.clock_hz(), mxu,
                 std::clamp(1.0 - run / core_cycles, 0.0, 1.0));
}

}  // namespace tpu::driver
