// Workers for tests, and the boards that suites of all transports run on.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tpu/tpu.hpp"
#include "tpu/worker.hpp"

namespace tpu::driver::test {

/// A worker in a process of its own; begins before other threads do.
class WorkerProcess {
 public:
  /// An address "unix:" gets a path, "tcp:" a loopback port and a token.
  explicit WorkerProcess(ServeOptions options) : folder_(make_folder()) {
    if (options.listen.empty() || options.listen == "unix:") {
      options.listen = "unix:" + folder_ + "/board";
    } else if (options.listen == "tcp:") {
      options.listen = "tcp:127.0.0.1:0";
      options.token = folder_ + "/token";
    }
    token_ = options.token;
    int ends[2];
    if (::pipe(ends) != 0) {
      std::abort();
    }
    std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      try {
        serve_boards(options);
      } catch (const std::exception& error) {
        std::printf("%s\n", error.what());
        std::fflush(stdout);
        ::_exit(1);
      }
      ::_exit(0);
    }
    ::close(ends[1]);
    for (char c = 0; ::read(ends[0], &c, 1) == 1 && c != '\n';) {
      address_ += c;
    }
    ::close(ends[0]);
  }
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess() {
    if (!in_child()) {
      stop(SIGTERM);
      std::filesystem::remove_all(folder_);
    }
  }

  void stop(int signal) {
    if (pid_ > 0) {
      ::kill(pid_, signal);
      ::waitpid(pid_, nullptr, 0);
      pid_ = 0;
    }
  }

  /// Of who connects.
  OpenOptions options(OpenOptions open = {}) const {
    open.connect = address_;
    open.connect_token = token_;
    return open;
  }
  const std::string& address() const { return address_; }  ///< or why there is none
  const std::string& folder() const { return folder_; }
  pid_t pid() const { return pid_; }

 private:
  static std::string make_folder() {
    std::string name = "/tmp/tpuboard-test-XXXXXX";
    return ::mkdtemp(name.data());
  }
  bool in_child() const { return ::getpid() != maker_; }

  const pid_t maker_ = ::getpid();
  const std::string folder_;
  std::string token_;
  std::string address_;
  pid_t pid_ = 0;
};

/// "null", "sim"; behind a Unix socket "worker_null", "worker_sim", behind TCP "tcp_null",
/// "tcp_sim";
/// as two boards "pod_sim".
inline OpenOptions open_options(const std::string& where) {
  OpenOptions options;
  const size_t line = where.find('_');
  options.transport = line == std::string::npos ? where : where.substr(line + 1);
  if (where.starts_with("pod")) {
    options.overrides = {"board.chips=2", "pod.boards_y=2"};
  }
  if (line == std::string::npos || where.starts_with("pod")) {
    return options;
  }
  static std::unique_ptr<WorkerProcess> worker;
  ServeOptions serve;
  serve.board.transport = options.transport;
  serve.listen = where.starts_with("tcp") ? "tcp:" : "unix:";
  worker = nullptr;  // the one before ends first
  worker = std::make_unique<WorkerProcess>(serve);
  return worker->options(options);
}
/// What suites are instantiated with. The thread sanitizer has no threads in a child.
inline std::vector<const char*> null_boards() {
#ifdef __SANITIZE_THREAD__
  return {"null"};
#else
  return {"null", "worker_null", "tcp_null"};
#endif
}
inline std::vector<const char*> sim_boards() { return {"sim", "worker_sim", "tcp_sim"}; }
/// Of the transport alone.
inline bool is_null(const std::string& where) { return where.ends_with("null"); }

}  // namespace tpu::driver::test
