// Sinks by option.
#include "board/probe_sinks.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "board/append_line.hpp"
#include "board/board_loader.hpp"
#include "image/firmware_image.hpp"

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

bool same_timeline(const spec::SimOptions& a, const spec::SimOptions& b) {
  return a.timeline_path == b.timeline_path && a.timeline_first_step == b.timeline_first_step &&
         a.timeline_steps == b.timeline_steps;
}

bool same_xprof(const spec::SimOptions& a, const spec::SimOptions& b) {
  return a.xprof == b.xprof && a.xprof_first_step == b.xprof_first_step &&
         a.xprof_steps == b.xprof_steps;
}

bool same_record(const spec::SimOptions& a, const spec::SimOptions& b) {
  const auto key = [](const spec::SimOptions& sim) {
    return std::tie(sim.record, sim.record_step, sim.record_path, sim.record_path_first_step,
                    sim.record_path_steps);
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
                       ProbeSet& probes, bool& waves_open, WatchdogSink::Board board,
                       const LaunchPrograms& programs)
    : params_(options.params),
      sim_(options.sim),
      probes_(probes),
      waves_open_(waves_open),
      watchdog_(std::move(board)),
      programs_(programs) {
  text_ = make_text(sim_);
  mmio_ = make_mmio(options);
  if (!sim_.firmware_log.empty()) {
    log_ = std::make_unique<LogSink>(sim_.firmware_log);
  }
  waves_ = make_waves(sim_, verilog);
  timeline_ = make_timeline(sim_);
  xprof_ = make_xprof(sim_);
  record_ = make_record(sim_);
  if (sim_.check) {
    race_ = std::make_unique<RaceSink>(params_, &programs_);
  }
  if (sim_.op_times) {
    op_times_ = std::make_unique<OpTimesSink>(spec::core_count(params_));
  }
  listen();
}

std::unique_ptr<TextSink> ProbeSinks::make_text(const spec::SimOptions& sim) {
  return sim.trace_path.empty() ? nullptr : std::make_unique<TextSink>(sim.trace_path);
}

std::unique_ptr<MmioSink> ProbeSinks::make_mmio(const BoardOptions& options) {
  if (options.sim.mmio_trace_path.empty()) {
    return nullptr;
  }
  return std::make_unique<MmioSink>(
      options.sim.mmio_trace_path, [firmware = options.firmware](uint32_t address) {
        return firmware != nullptr ? firmware::code_place(*firmware, address) : std::string();
      });
}

std::unique_ptr<BoardWaves> ProbeSinks::make_waves(const spec::SimOptions& sim,
                                                   const std::vector<VerilogUnit>& verilog) {
  if (sim.waves_path.empty()) {
    return nullptr;
  }
  BoardWavesOptions waves;
  waves.path = sim.waves_path;
  waves.board = {.chips = static_cast<uint32_t>(spec::chip_count(params_)),
                 .cores_per_chip = static_cast<uint32_t>(params_.board.cores_per_chip),
                 .mxus = static_cast<uint32_t>(params_.core.mxus),
                 .semaphores = static_cast<uint32_t>(params_.core.semaphores),
                 .faults = !sim.faults_path.empty()};
  waves.clock_mhz = static_cast<uint64_t>(params_.core.clock_mhz);
  waves.first_step = sim.waves_first_step;
  waves.step_count = sim.waves_steps;
  waves.scopes = sim.waves_scopes;
  waves.trigger = sim.waves_trigger;
  waves.for_cycles = sim.waves_for_cycles;
  waves.for_steps = sim.waves_for_steps;
  waves.before_cycles = sim.waves_before_cycles;
  waves.verilog = verilog;
  waves.other_verilog =
      std::ranges::any_of(sim.verilog, [](const auto& choice) { return choice.second != "model"; });
  waves.is_open = &waves_open_;
  waves.programs = &programs_;
  waves.no_data = sim.no_data;
  return std::make_unique<BoardWaves>(waves);
}

std::unique_ptr<TimelineSink> ProbeSinks::make_timeline(const spec::SimOptions& sim) const {
  if (sim.timeline_path.empty()) {
    return nullptr;
  }
  TimelineOptions timeline;
  timeline.path = sim.timeline_path;
  timeline.chips = static_cast<uint32_t>(spec::chip_count(params_));
  for (int64_t chip = 0; spec::board_count(params_) > 1 && chip < spec::chip_count(params_);
       ++chip) {
    timeline.board_of_chip.push_back(static_cast<uint32_t>(spec::board_of_chip(params_, chip)));
  }
  timeline.cores_per_chip = static_cast<uint32_t>(params_.board.cores_per_chip);
  timeline.numbers.mxus = static_cast<uint32_t>(params_.core.mxus);
  timeline.numbers.clock_mhz = static_cast<uint64_t>(params_.core.clock_mhz);
  timeline.numbers.mxu_flops = static_cast<uint64_t>(2 * params_.mxu.rows * params_.mxu.cols);
  timeline.first_step = sim.timeline_first_step;
  timeline.step_count = sim.timeline_steps;
  return std::make_unique<TimelineSink>(timeline, programs_);
}

std::unique_ptr<XprofSink> ProbeSinks::make_xprof(const spec::SimOptions& sim) const {
  return sim.xprof ? std::make_unique<XprofSink>(params_, sim.xprof_first_step, sim.xprof_steps,
                                                 programs_)
                   : nullptr;
}

std::unique_ptr<RecordSink> ProbeSinks::make_record(const spec::SimOptions& sim) const {
  if (!sim.record_path.empty()) {
    return std::make_unique<RecordSink>(params_,
                                        RecordOptions{.first_step = sim.record_path_first_step,
                                                      .steps = sim.record_path_steps,
                                                      .path = sim.record_path},
                                        programs_);
  }
  return sim.record ? std::make_unique<RecordSink>(
                          params_, RecordOptions{.first_step = sim.record_step}, programs_)
                    : nullptr;
}

// Who listens, anew.
void ProbeSinks::listen() {
  probes_ = ProbeSet();
  watchdog_.listen(probes_);
  const auto listens = [this](const auto&... sinks) {
    ((sinks != nullptr ? sinks->listen(probes_) : void()), ...);
  };
  listens(text_, mmio_, log_, waves_, timeline_, xprof_, record_, race_, op_times_, command_log_);
  for (const auto& listener : listeners_) {
    listener(probes_);
  }
}

std::string ProbeSinks::change(const spec::SimOptions& sim,
                               const std::vector<VerilogUnit>& verilog) {
  const bool other_text = sim.trace_path != sim_.trace_path;
  const bool other_waves = !same_waves(sim, sim_);
  const bool other_timeline = !same_timeline(sim, sim_);
  const bool other_record = !same_record(sim, sim_);
  std::unique_ptr<TextSink> text = other_text ? make_text(sim) : nullptr;
  std::unique_ptr<BoardWaves> waves = other_waves ? make_waves(sim, verilog) : nullptr;
  std::unique_ptr<TimelineSink> timeline = other_timeline ? make_timeline(sim) : nullptr;
  std::unique_ptr<RecordSink> record = other_record ? make_record(sim) : nullptr;
  std::string error;
  if (other_text) {
    replace_sink(text_, std::move(text), error);
  }
  if (other_waves) {
    note_waves();
    replace_sink(waves_, std::move(waves), error);
  }
  if (other_timeline) {
    replace_sink(timeline_, std::move(timeline), error);
  }
  if (!same_xprof(sim, sim_)) {
    xprof_ = make_xprof(sim);
  }
  if (other_record) {
    replace_sink(record_, std::move(record), error);
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

std::string ProbeSinks::take_xspace() {
  return xprof_ != nullptr ? xprof_->take_xspace() : std::string();
}

void ProbeSinks::log_commands(const std::optional<spec::MemoryLook>& look,
                              CommandLogSink::ReadMemory read) {
  command_log_ = std::make_unique<CommandLogSink>(static_cast<size_t>(spec::core_count(params_)),
                                                  look, std::move(read));
  listen();
}

spec::CommandLog ProbeSinks::take_commands() {
  spec::CommandLog log;
  if (command_log_ != nullptr) {
    log = command_log_->take_log();
    command_log_.reset();
    listen();
  }
  return log;
}

std::string ProbeSinks::take_record() {
  return record_ != nullptr ? record_->take() : std::string();
}

void ProbeSinks::note_waves() { waves_missed_ = waves_ != nullptr && waves_->never_opened(); }

std::string ProbeSinks::finish() {
  std::string error;
  const auto finish_sink = [&](auto& sink) {
    if (const std::string text = sink != nullptr ? sink->finish() : std::string(); !text.empty()) {
      append_line(error, text);
    }
  };
  finish_sink(text_);
  finish_sink(mmio_);
  finish_sink(log_);
  note_waves();
  finish_sink(waves_);
  finish_sink(timeline_);
  finish_sink(record_);
  return error;
}

}  // namespace tpu::model
