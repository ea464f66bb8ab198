// The debug port tells simulated time and busy cycles without taking simulated time.
#include "report/run_figures.hpp"

#include <algorithm>

namespace tpu::training {

std::optional<uint64_t> busy_cycles(const Trainer& trainer) {
  const std::vector<uint64_t> cores = trainer.board().run_cycles();
  if (cores.empty()) {
    return std::nullopt;
  }
  uint64_t sum = 0;
  for (const int device : trainer.program().devices()) {
    sum += cores[static_cast<size_t>(device)];
  }
  return sum;
}

StepMeter::StepMeter(const Trainer& trainer) : trainer_(trainer) { skip(); }

void StepMeter::skip() {
  cycle_ = trainer_.board().now();
  run_ = busy_cycles(trainer_);
}

FigureRow StepMeter::step(const Progress& at) {
  FigureRow row{.step = at.step, .epoch = at.epoch, .evaluation = false, .values = {}};
  if (trainer_.has_data()) {
    row.values.push_back({"loss", static_cast<double>(at.loss)});
    row.values.insert(row.values.end(), at.metrics.begin(), at.metrics.end());
  }
  if (at.learning_rate) {
    row.values.push_back({"learning_rate", *at.learning_rate});
  }
  const driver::Board& board = trainer_.board();
  const auto cycles = static_cast<double>(board.now() - cycle_);
  const std::optional<uint64_t> before = run_;
  skip();
  const double flops = static_cast<double>(trainer_.program().matmul_flops());
  const bool passed = cycles > 0;  // the transport null has no time
  row.values.push_back({"step_us", 1e6 * cycles / board.clock_hz()});
  row.values.push_back(
      {"mxu_percent",
       passed ? 100 * flops / (cycles * static_cast<double>(board.peak_flops_per_cycle())) : 0});
  if (run_ && before) {
    const auto run = static_cast<double>(*run_ - *before);
    row.values.push_back(
        {"idle_percent",
         passed
             ? std::clamp(100 - 100 * run / (cycles * trainer_.program().partitions()), 0.0, 100.0)
             : 0});
  }
  row.values.push_back({"host_ms", 1e3 * trainer_.step_seconds().back()});
  const double waited = trainer_.input_rates().waited_seconds;
  row.values.push_back({"input_ms", 1e3 * (waited - waited_)});
  waited_ = waited;
  return row;
}

FigureRow StepMeter::epoch(const EpochResult& result) {
  FigureRow row{.step = static_cast<int64_t>(trainer_.losses().size()),
                .epoch = result.epoch,
                .evaluation = true,
                .values = {}};
  for (const auto& [name, value] : result.eval.value_or(EvalResult()).metrics) {
    row.values.push_back({"test_" + name, value});
  }
  skip();
  return row;
}

}  // namespace tpu::training
