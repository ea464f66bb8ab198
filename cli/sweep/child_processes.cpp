// SIGCHLD is blocked and waited for, so that the end of a child is never missed. fork() and not
// posix_spawn(), which cannot tie a child to the life of its parent.
#include "cli/sweep/child_processes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

double seconds_in(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

// In the child, until it is the program: calls that are safe behind fork() alone.
[[noreturn]] void become(const ChildProcesses::Start& what, char* const* arguments,
                         const sigset_t& mask, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int none = ::open("/dev/null", O_RDONLY);
  const int log = ::open(what.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  const bool ready = none >= 0 && log >= 0 && ::dup2(none, STDIN_FILENO) >= 0 &&
                     ::dup2(log, STDOUT_FILENO) >= 0 && ::dup2(log, STDERR_FILENO) >= 0 &&
                     ::chdir(what.folder.c_str()) == 0;
  ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  if (ready && ::getppid() == parent) {  // else it has ended before the prctl()
    ::execv(arguments[0], arguments);
  }
  constexpr char kText[] = "tpuboard: the row cannot be started; is its folder still there?\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof(kText) - 1);
  ::_exit(127);
}

sigset_t child_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  return set;
}

}  // namespace

ChildProcesses::ChildProcesses() {
  const sigset_t ours = child_signal();
  pthread_sigmask(SIG_BLOCK, &ours, &mask_);
}

ChildProcesses::~ChildProcesses() { pthread_sigmask(SIG_SETMASK, &mask_, nullptr); }

void ChildProcesses::start(const Start& what) {
  std::vector<std::string> words = what.words;
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  const auto start = std::chrono::steady_clock::now();
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{}: cannot be started: {}", words[0], std::strerror(errno)));
  }
  if (pid == 0) {
    become(what, arguments.data(), mask_, parent);
  }
  children_.push_back({.id = what.id, .pid = pid, .start = start});
}

std::optional<ChildProcesses::Ended> ChildProcesses::take_ended() {
  for (size_t i = 0; i < children_.size(); ++i) {
    const Child child = children_[i];
    int status = 0;
    rusage use{};
    if (::wait4(child.pid, &status, WNOHANG, &use) != child.pid) {
      continue;
    }
    children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(i));
    const std::chrono::duration<double> host = std::chrono::steady_clock::now() - child.start;
    return Ended{.id = child.id,
                 .status = status,
                 .host_seconds = host.count(),
                 .cpu_seconds = seconds_in(use.ru_utime) + seconds_in(use.ru_stime)};
  }
  return std::nullopt;
}

std::optional<ChildProcesses::Ended> ChildProcesses::wait(std::chrono::milliseconds time) {
  if (auto ended = take_ended()) {
    return ended;
  }
  const sigset_t ours = child_signal();
  const timespec limit{.tv_sec = time.count() / 1000, .tv_nsec = time.count() % 1000 * 1000000};
  sigtimedwait(&ours, nullptr, &limit);
  return take_ended();
}

void ChildProcesses::signal_all(int signal) const {
  for (const Child& child : children_) {
    ::kill(child.pid, signal);
  }
}

}  // namespace tpu::driver
