// The processes of a pod: their output by lines with their numbers in front, and their end. When
// one of them fails, the others are ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

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

  /// Until all have ended. The exit code of the first that failed (128 + signal for a signal), of a
  /// signal that ended this run, or 0.
  int wait();

  /// What is still written by what they have left behind, until all of it has ended, or the time is
  /// over.
  void drain(std::chrono::milliseconds time);

 private:
  using Clock = std::chrono::steady_clock;
  // A stream of a process, line by line.
  struct Stream {
    int pipe = -1;
    bool is_error = false;
    std::string line;       // that has begun
    bool returned = false;  // the last byte was "\r"
  };
  struct Process {
    pid_t pid = -1;  // -1: has ended
    Stream streams[2];
  };

  void look(std::chrono::milliseconds time);
  void read(size_t number, Stream& stream);
  void write_line(size_t number, Stream& stream);
  void write_begun_line(size_t number, Stream& stream);
  void take_signal();
  void take_ended();
  void note_end(size_t number, pid_t pid, int status);
  void end_all();
  void signal_all(int signal) const;
  bool is_open() const;

  std::vector<Process> processes_;
  sigset_t mask_{};                  // of the thread before
  struct sigaction pipe_action_ {};  // of SIGPIPE, before
  int signals_ = -1;
  size_t running_ = 0;
  int code_ = 0;
  int told_ = 0;                              // a signal that came to this process
  std::optional<Clock::time_point> kill_at_;  // those that still run
};

}  // namespace tpu::driver
