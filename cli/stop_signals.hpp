// SIGINT, SIGTERM and SIGHUP ask a run to stop after the step that runs; a second one ends the
// process at once.
#pragma once

#include <csignal>
#include <stdexcept>
#include <vector>

namespace tpu::driver {

class StopSignals {
 public:
  /// Takes the signals until it is destroyed; one at a time. Signals that the process ignores (of a
  /// job in the background, under nohup) stay ignored. SIGPIPE is ignored too: a reader of the
  /// progress that went away must not end the run.
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The first signal that came; 0: none.
  static int received();

 private:
  struct Old {
    int signal;
    struct sigaction action;
  };
  std::vector<Old> old_;
};

/// A run that ended early by a signal, with its results written: exit code 128 + signal, as shells
/// give it.
class StoppedBySignal : public std::runtime_error {
 public:
  explicit StoppedBySignal(int signal) : std::runtime_error("stopped"), signal_(signal) {}
  int exit_code() const { return 128 + signal_; }

 private:
  int signal_;
};

/// "SIGTERM"
const char* signal_name(int signal);

}  // namespace tpu::driver
