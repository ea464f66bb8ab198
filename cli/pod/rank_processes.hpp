// The processes of a pod: their output by lines with their numbers in front, and their end. When
// one of them fails, the others are ended.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/pod/output_queue.hpp"

namespace tpu::driver {

class RankProcesses {
 public:
  using Variables = std::map<std::string, std::string>;

  RankProcesses();
  /// None of them runs any more.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// The next process, with these variables beside those of this one; empty values: not set. It
  /// ends with this process, in whatever way that ends. Throws Error when there is no such program.
  void start(const std::vector<std::string>& words, const Variables& variables);

  /// Until all have ended; in a run that fails, also what they have started.
  void wait();

  /// What is still written by what they have left behind, until all of it has ended, or the time is
  /// over. Then until all output is written: behind a signal, no longer than that time.
  void drain(std::chrono::milliseconds time);

  /// That of the first that failed (128 + signal for a signal), of a signal that ended this run, or
  /// 0.
  int code() const { return code_; }

 private:
  using Clock = std::chrono::steady_clock;
  // A stream of a process, line by line.
  struct Stream {
    int pipe = -1;
    bool is_error = false;
    std::string line;       // that has begun
    bool returned = false;  // the last line ended with "\r", to which a "\n" may belong
  };
  struct Process {
    pid_t pid = -1;    // -1: has ended
    pid_t group = -1;  // of it and what it has started; -1: none of them is left
    Stream streams[2];
  };

  void look(std::chrono::milliseconds time);
  void read(size_t number, Stream& stream);
  void write_line(size_t number, Stream& stream);
  void write_begun_line(size_t number, Stream& stream);
  void take_signal();
  void take_ended();
  void note_end(size_t number, const siginfo_t& end);
  void end_all();
  void signal_all(int signal);
  void forget_empty_groups();
  void write_output();
  OutputQueue& output_of(const Stream& stream) { return stream.is_error ? errors_ : output_; }
  bool has_room(const OutputQueue& output) const;
  bool has_groups() const;
  bool is_open() const;

  std::vector<Process> processes_;
  sigset_t mask_{};                   // of the thread before
  struct sigaction pipe_action_ {};   // of SIGPIPE, before
  struct sigaction child_action_ {};  // of SIGCHLD, before
  OutputQueue output_{STDOUT_FILENO};
  OutputQueue errors_{STDERR_FILENO};
  int signals_ = -1;
  size_t running_ = 0;
  int code_ = 0;
  int told_ = 0;                              // a signal that came to this process
  std::optional<Clock::time_point> kill_at_;  // those that still run
  bool killed_ = false;                       // all of them
};

}  // namespace tpu::driver
