// Sinks by option.
#include "board/probe_sinks.hpp"

#include <tuple>
#include <utility>

#include "board/append_line.hpp"
#include "board/board_loader.hpp"

namespace tpu::model {
namespace {

bool same_waves(const spec::SimOptions& a, const spec::SimOptions& b) {
  const auto key = [](const spec::SimOptions& sim) {
    return std::tie(sim.waves_path, sim.waves_first_step, sim.waves_steps, sim.waves_scopes,
                    sim.waves_trigger, sim.waves_for_cycles, sim.waves_for_steps,
                    sim.waves_before_cycles);
  };
  return key(a) == key(b);
}

template <class Sink>
void replace_sink(std::unique_ptr<Sink>& sink, std::unique_ptr<Sink> by, std::string& error) {
  if (const std::string text = sink != nullptr ? sink->finish() : std::string(); !text.empty()) {
    append_line(error, text);
  }
  sink = std::move(by);
}

}  // namespace

ProbeSinks::ProbeSinks(const BoardOptions& options, const std::vector<VerilogUnit>& verilog,
                       ProbeSet& probes, bool& waves_open, WatchdogSink::Waits waits)
    : params_(options.params),
      sim_(options.sim),
      probes_(probes),
      waves_open_(waves_open),
      watchdog_(std::move(waits)) {
  text_ = make_text(sim_);
  waves_ = make_waves(sim_, verilog);
  if (sim_.check) {
    race_ = std::make_unique<RaceSink>(params_);
  }
  if (sim_.op_times) {
    op_times_ = std::make_unique<OpTimesSink>(spec::core_count(params_));
  }
  listen();
}

std::unique_ptr<TextSink> ProbeSinks::make_text(const spec::SimOptions& sim) {
  return sim.trace_path.empty() ? nullptr : std::make_unique<TextSink>(sim.trace_path);
}

std::unique_ptr<BoardWaves> ProbeSinks::make_waves(const spec::SimOptions& sim,
                                                   const std::vector<VerilogUnit>& verilog) {
  if (sim.waves_path.empty()) {
    return nullptr;
  }
  BoardWavesOptions waves;
  waves.path = sim.waves_path;
  waves.board = {.chips = static_cast<uint32_t>(params_.board.chips),
                 .cores_per_chip = static_cast<uint32_t>(params_.board.cores_per_chip),
                 .mxus = static_cast<uint32_t>(params_.core.mxus),
                 .semaphores = static_cast<uint32_t>(params_.core.semaphores)};
  waves.clock_mhz = static_cast<uint64_t>(params_.core.clock_mhz);
  waves.first_step = sim.waves_first_step;
  waves.step_count = sim.waves_steps;
  waves.scopes = sim.waves_scopes;
  waves.trigger = sim.waves_trigger;
  waves.for_cycles = sim.waves_for_cycles;
  waves.for_steps = sim.waves_for_steps;
  waves.before_cycles = sim.waves_before_cycles;
  waves.verilog = verilog;
  waves.is_open = &waves_open_;
  return std::make_unique<BoardWaves>(waves);
}

// Who listens, anew.
void ProbeSinks::listen() {
  probes_ = ProbeSet();
  watchdog_.listen(probes_);
  if (text_ != nullptr) {
    text_->listen(probes_);
  }
  if (waves_ != nullptr) {
    waves_->listen(probes_);
  }
  if (race_ != nullptr) {
    race_->listen(probes_);
  }
  if (op_times_ != nullptr) {
    op_times_->listen(probes_);
  }
}

std::string ProbeSinks::change(const spec::SimOptions& sim,
                               const std::vector<VerilogUnit>& verilog) {
  const bool other_text = sim.trace_path != sim_.trace_path;
  const bool other_waves = !same_waves(sim, sim_);
  std::unique_ptr<TextSink> text = other_text ? make_text(sim) : nullptr;
  std::unique_ptr<BoardWaves> waves = other_waves ? make_waves(sim, verilog) : nullptr;
  std::string error;
  if (other_text) {
    replace_sink(text_, std::move(text), error);
  }
  if (other_waves) {
    replace_sink(waves_, std::move(waves), error);
  }
  if (sim.op_times != sim_.op_times) {
    op_times_ = sim.op_times ? std::make_unique<OpTimesSink>(spec::core_count(params_)) : nullptr;
  }
  sim_ = sim;
  listen();
  return error;
}

std::vector<spec::CheckFinding> ProbeSinks::take_findings() {
  return race_ != nullptr ? race_->take_findings() : std::vector<spec::CheckFinding>();
}

std::vector<OpTime> ProbeSinks::take_op_times(uint32_t launch) {
  return op_times_ != nullptr ? op_times_->take_launch(launch) : std::vector<OpTime>();
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
