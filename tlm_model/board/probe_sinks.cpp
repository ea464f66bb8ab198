// Sinks by option.
#include "board/probe_sinks.hpp"

#include "board/append_line.hpp"
#include "board/board_loader.hpp"

namespace tpu::model {

ProbeSinks::ProbeSinks(const BoardOptions& options, ProbeSet& probes) {
  const spec::BoardParams& params = options.params;
  const spec::SimOptions& sim = options.sim;
  if (!sim.trace_path.empty()) {
    text_ = std::make_unique<TextSink>(sim.trace_path);
    text_->listen(probes);
  }
  if (!sim.waves_path.empty()) {
    BoardWavesOptions waves;
    waves.path = sim.waves_path;
    waves.chips = static_cast<uint32_t>(params.board.chips);
    waves.cores_per_chip = static_cast<uint32_t>(params.board.cores_per_chip);
    waves.mxus = static_cast<uint32_t>(params.core.mxus);
    waves.clock_mhz = static_cast<uint64_t>(params.core.clock_mhz);
    waves.first_step = sim.waves_first_step;
    waves.step_count = sim.waves_steps;
    waves_ = std::make_unique<BoardWaves>(waves);
    waves_->listen(probes);
  }
  if (sim.check) {
    race_ = std::make_unique<RaceSink>(params);
    race_->listen(probes);
  }
}

std::string ProbeSinks::finish() {
  std::string error = text_ != nullptr ? text_->finish() : std::string();
  if (const std::string waves = waves_ != nullptr ? waves_->finish() : std::string();
      !waves.empty()) {
    append_line(error, waves);
  }
  return error;
}

}  // namespace tpu::model
