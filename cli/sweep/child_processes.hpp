// Programs that run beside each other, in the order in which they end. One object at a time, in a
// process of one thread that waits for no other children.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tpu::driver {

class ChildProcesses {
 public:
  ChildProcesses();
  ~ChildProcesses();  ///< None may run.
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;

  struct Start {
    size_t id = 0;
    std::vector<std::string> words;  ///< the program first
    std::filesystem::path folder;    ///< where it works
    std::filesystem::path log;       ///< of both streams; replaced
  };
  struct Ended {
    size_t id = 0;
    int status = 0;  ///< as of waitpid()
    double host_seconds = 0;
    double cpu_seconds = 0;
  };

  /// In a process group of its own: signals of the terminal do not reach it. It gets SIGTERM when
  /// this process ends in whatever way. Throws Error.
  void start(const Start& what);
  /// The next that ends within `time`; earlier nothing when a signal comes.
  std::optional<Ended> wait(std::chrono::milliseconds time);
  void signal_all(int signal) const;
  size_t running() const { return children_.size(); }

 private:
  struct Child {
    size_t id;
    pid_t pid;
    std::chrono::steady_clock::time_point start;
  };
  std::optional<Ended> take_ended();

  std::vector<Child> children_;
  sigset_t mask_{};  // of the thread before
};

}  // namespace tpu::driver
