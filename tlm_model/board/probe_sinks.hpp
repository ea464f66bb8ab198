// The sinks that the options ask for, registered with the probe of a board: text trace, trace of
// registers and rings, log of the firmware, waves, timeline, profile, record of a step,
// happens-before checker, times of operations, waits at a watchdog, log of commands.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "board/board_host.hpp"
#include "board/board_waits.hpp"
#include "probe/command_log_sink.hpp"
#include "probe/launch_programs.hpp"
#include "probe/log_sink.hpp"
#include "probe/mmio_sink.hpp"
#include "probe/op_times_sink.hpp"
#include "probe/probe_set.hpp"
#include "probe/race_sink.hpp"
#include "probe/text_sink.hpp"
#include "timeline/record_sink.hpp"
#include "timeline/timeline_sink.hpp"
#include "timeline/xprof_sink.hpp"
#include "waves/board_waves.hpp"

namespace tpu::model {

class ProbeSinks {
 public:
  // Throws std::runtime_error when a file cannot be created. `probes` tells nobody once this is
  // gone; `programs` outlives it.
  // `verilog`: matrix units whose ports waves show. `waves_open` is set while their window is open.
  ProbeSinks(const BoardOptions& options, const std::vector<VerilogUnit>& verilog, ProbeSet& probes,
             bool& waves_open, WatchdogSink::Board board, const LaunchPrograms& programs);

  // Goes on with other options; a sink stays where its own are as they were, the checker always.
  // Between steps only. Throws std::runtime_error when a file cannot be created; nothing has
  // changed then. Returns what went wrong with files that it completed, or nothing.
  std::string change(const spec::SimOptions& sim, const std::vector<VerilogUnit>& verilog);

  // Of a job that runs, in any thread.
  void show_ports(const std::string& path, const MxuPorts& ports) {
    if (waves_ != nullptr) {
      waves_->show_ports(path, ports);
    }
  }

  // Who else listens, now and whenever the sinks change.
  void add_listener(std::function<void(ProbeSet&)> listener) {
    listener(probes_);
    listeners_.push_back(std::move(listener));
  }

  // For debuggers: opens or closes the window of the waves at this cycle; what came of it.
  std::string switch_waves(bool on, uint64_t cycle) {
    return waves_ != nullptr
               ? waves_->switch_window(on, cycle)
               : "there are none; open the board with waves that the trigger 'monitor' opens";
  }
  // With --check, else null.
  const RaceSink* race() const { return race_.get(); }
  const WatchdogSink& watchdog() const { return watchdog_; }
  // Of the checker, since the last call.
  std::vector<spec::CheckFinding> take_findings();
  // See OpTimesSink::take_launch(); empty where they are not counted.
  std::vector<OpTime> take_op_times(uint32_t launch);
  // See XprofSink::take_xspace(); empty where no profile is kept.
  std::string take_xspace();
  // Keeps every command from here on, until they are taken. Between steps only.
  void log_commands(const std::optional<spec::MemoryLook>& look, CommandLogSink::ReadMemory read);
  spec::CommandLog take_commands();
  // See RecordSink::take(); empty where none is kept.
  std::string take_record();
  // Closes the files; what went wrong, or nothing. No event comes after it.
  std::string finish();
  // The waves that ended last have said that their window never opened.
  bool waves_missed() const { return waves_missed_; }

 private:
  static std::unique_ptr<TextSink> make_text(const spec::SimOptions& sim);
  static std::unique_ptr<MmioSink> make_mmio(const BoardOptions& options);
  std::unique_ptr<BoardWaves> make_waves(const spec::SimOptions& sim,
                                         const std::vector<VerilogUnit>& verilog);
  std::unique_ptr<TimelineSink> make_timeline(const spec::SimOptions& sim) const;
  std::unique_ptr<XprofSink> make_xprof(const spec::SimOptions& sim) const;
  std::unique_ptr<RecordSink> make_record(const spec::SimOptions& sim) const;
  void listen();
  void note_waves();

  const spec::BoardParams params_;
  spec::SimOptions sim_;
  ProbeSet& probes_;
  bool& waves_open_;
  bool waves_missed_ = false;
  WatchdogSink watchdog_;
  const LaunchPrograms& programs_;
  std::unique_ptr<TextSink> text_;
  std::unique_ptr<MmioSink> mmio_;
  std::unique_ptr<LogSink> log_;
  std::unique_ptr<BoardWaves> waves_;
  std::unique_ptr<TimelineSink> timeline_;
  std::unique_ptr<XprofSink> xprof_;
  std::unique_ptr<RecordSink> record_;
  std::unique_ptr<RaceSink> race_;
  std::unique_ptr<OpTimesSink> op_times_;
  std::vector<std::function<void(ProbeSet&)>> listeners_;
  std::unique_ptr<CommandLogSink> command_log_;  // null: nobody asks for it
};

}  // namespace tpu::model
