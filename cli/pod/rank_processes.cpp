// fork() and not posix_spawn(), which cannot tie a child to the life of its parent.
#include "cli/pod/rank_processes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

// For processes to end once one has failed: those of JAX take SIGTERM as a notice.
constexpr std::chrono::seconds kTimeToEnd{5};
constexpr size_t kLongestLine = 65536;
constexpr std::array kEndSignals = {SIGINT, SIGTERM, SIGHUP};

struct Pipe {
  int ends[2] = {-1, -1};

  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      throw Error(ErrorCode::kResourceExhausted, fmt::format("no pipe: {}", std::strerror(errno)));
    }
  }
};

// What this process was told to ignore, as nohup does, stays ignored.
sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int signal : kEndSignals) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      sigaddset(&set, signal);
    }
  }
  return set;
}

std::vector<std::string> environment_with(const RankProcesses::Variables& variables) {
  std::vector<std::string> lines;
  for (char** line = environ; *line != nullptr; ++line) {
    const std::string_view text(*line);
    if (!variables.contains(std::string(text.substr(0, text.find('='))))) {
      lines.emplace_back(text);
    }
  }
  for (const auto& [name, value] : variables) {
    if (!value.empty()) {
      lines.push_back(name + "=" + value);
    }
  }
  return lines;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) {
    pointers.push_back(text.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

struct Child {
  char* const* words;
  char* const* environment;
  int output, errors, failed;  // pipes
  pid_t parent;
  const sigset_t* mask;
  const struct sigaction* pipe_action;
};

// In the child, until it is the program: calls that are safe behind fork() alone.
[[noreturn]] void become_rank(const Child& child) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int none = ::open("/dev/null", O_RDONLY);
  if (none >= 0 && ::dup2(none, STDIN_FILENO) >= 0 && ::dup2(child.output, STDOUT_FILENO) >= 0 &&
      ::dup2(child.errors, STDERR_FILENO) >= 0) {
    ::sigprocmask(SIG_SETMASK, child.mask, nullptr);
    ::sigaction(SIGPIPE, child.pipe_action, nullptr);
    if (::getppid() == child.parent) {  // else it has ended before the prctl()
      ::execvpe(child.words[0], child.words, child.environment);
    }
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(child.failed, &error, sizeof error);
  ::_exit(127);
}

std::string end_text(int status) {
  return WIFSIGNALED(status) ? fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                                           ::strsignal(WTERMSIG(status)))
                             : fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

RankProcesses::RankProcesses() {
  const sigset_t ours = watched_signals();
  ::pthread_sigmask(SIG_BLOCK, &ours, &mask_);
  // A reader of the output that goes away ends the run in order.
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignored, &pipe_action_);
  signals_ = ::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
}

RankProcesses::~RankProcesses() {
  signal_all(SIGKILL);
  for (Process& process : processes_) {
    while (process.pid >= 0 && ::waitpid(process.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    for (const Stream& stream : process.streams) {
      if (stream.pipe >= 0) {
        ::close(stream.pipe);
      }
    }
  }
  ::close(signals_);
  ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  ::sigaction(SIGPIPE, &pipe_action_, nullptr);
}

void RankProcesses::start(const std::vector<std::string>& words, const Variables& variables) {
  std::vector<std::string> own = words;
  std::vector<std::string> environment = environment_with(variables);
  const std::vector<char*> arguments = pointers_to(own);
  const std::vector<char*> lines = pointers_to(environment);
  const Pipe output, errors, failed;
  const Child child{arguments.data(), lines.data(), output.ends[1], errors.ends[1],
                    failed.ends[1],   ::getpid(),   &mask_,         &pipe_action_};
  const pid_t pid = ::fork();
  if (pid == 0) {
    become_rank(child);
  }
  int error = pid < 0 ? errno : 0;
  for (const Pipe* pipe : {&output, &errors, &failed}) {
    ::close(pipe->ends[1]);
  }
  if (pid > 0) {
    ::setpgid(pid, pid);
    processes_.push_back(
        {pid, {{output.ends[0], false, {}, false}, {errors.ends[0], true, {}, false}}});
    ++running_;
    while (::read(failed.ends[0], &error, sizeof error) < 0 && errno == EINTR) {
    }
  }
  ::close(failed.ends[0]);
  if (error != 0) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("{}: cannot be started: {}", words[0], std::strerror(error)));
  }
  for (const Stream& stream : processes_.back().streams) {
    ::fcntl(stream.pipe, F_SETFL, O_NONBLOCK);
  }
}

int RankProcesses::wait() {
  constexpr std::chrono::milliseconds kLook{1000};
  while (running_ > 0) {
    if (kill_at_ && Clock::now() >= *kill_at_) {
      signal_all(SIGKILL);
      kill_at_.reset();
    }
    const auto left = kill_at_ ? std::chrono::ceil<std::chrono::milliseconds>(
                                     std::max(*kill_at_ - Clock::now(), Clock::duration::zero()))
                               : kLook;
    look(std::min(left, kLook));
  }
  return code_;
}

bool RankProcesses::is_open() const {
  return std::ranges::any_of(processes_, [](const Process& process) {
    return process.streams[0].pipe >= 0 || process.streams[1].pipe >= 0;
  });
}

void RankProcesses::drain(std::chrono::milliseconds time) {
  const auto end = Clock::now() + time;
  while (is_open() && Clock::now() < end) {
    look(std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()));
  }
  for (size_t number = 0; number < processes_.size(); ++number) {
    for (Stream& stream : processes_[number].streams) {
      write_begun_line(number, stream);
    }
  }
  std::fflush(stdout);
}

// Waits until there is something to read, or a signal has come.
void RankProcesses::look(std::chrono::milliseconds time) {
  std::vector<pollfd> open{{signals_, POLLIN, 0}};
  std::vector<std::pair<size_t, Stream*>> of{{0, nullptr}};
  for (size_t number = 0; number < processes_.size(); ++number) {
    for (Stream& stream : processes_[number].streams) {
      if (stream.pipe >= 0) {
        open.push_back({stream.pipe, POLLIN, 0});
        of.emplace_back(number, &stream);
      }
    }
  }
  if (::poll(open.data(), open.size(), static_cast<int>(time.count())) <= 0) {
    return;
  }
  for (size_t i = 1; i < open.size(); ++i) {
    if (open[i].revents != 0) {
      read(of[i].first, *of[i].second);
    }
  }
  if (std::fflush(stdout) != 0 && code_ == 0) {  // app.cpp says why
    code_ = 1;
    end_all();
  }
  if (open[0].revents != 0) {
    take_signal();
    take_ended();
  }
}

// A carriage return ends a line too: progress bars write no other ends.
void RankProcesses::read(size_t number, Stream& stream) {
  std::array<char, 65536> bytes{};
  const ssize_t count = ::read(stream.pipe, bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  for (ssize_t i = 0; i < count; ++i) {
    const char c = bytes[static_cast<size_t>(i)];
    const bool ends = c == '\n' || c == '\r';
    const bool is_empty = stream.line.empty() && (c == '\r' || stream.returned);
    if ((ends && !is_empty) || stream.line.size() >= kLongestLine) {
      write_line(number, stream);
    }
    if (!ends) {
      stream.line += c;
    }
    stream.returned = c == '\r';
  }
  if (count <= 0) {
    write_begun_line(number, stream);
    ::close(stream.pipe);
    stream.pipe = -1;
  }
}

void RankProcesses::write_begun_line(size_t number, Stream& stream) {
  if (!stream.line.empty()) {
    write_line(number, stream);
  }
}

void RankProcesses::write_line(size_t number, Stream& stream) {
  const size_t digits = std::to_string(processes_.size() - 1).size();
  const std::string text = fmt::format("[{:>{}}] {}\n", number, digits, stream.line);
  std::fwrite(text.data(), 1, text.size(), stream.is_error ? stderr : stdout);
  stream.line.clear();
}

// The first signal goes to all, who may have something to save. A second one ends them.
void RankProcesses::take_signal() {
  signalfd_siginfo info{};
  while (::read(signals_, &info, sizeof info) == sizeof info) {
    const auto signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) {
      continue;
    }
    signal_all(told_ == 0 ? signal : SIGKILL);
    told_ = signal;
    code_ = code_ == 0 ? 128 + signal : code_;
  }
}

void RankProcesses::take_ended() {
  for (size_t number = 0; number < processes_.size(); ++number) {
    Process& process = processes_[number];
    int status = 0;
    if (process.pid >= 0 && ::waitpid(process.pid, &status, WNOHANG) == process.pid) {
      const pid_t pid = std::exchange(process.pid, -1);
      --running_;
      note_end(number, pid, status);
    }
  }
}

void RankProcesses::note_end(size_t number, pid_t pid, int status) {
  if (status == 0 || code_ != 0) {
    return;
  }
  code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  std::fprintf(stderr, "tpuboard: process %zu (pid %d) %s%s\n", number, static_cast<int>(pid),
               end_text(status).c_str(), running_ > 0 ? "; the others are ended" : "");
  end_all();
}

void RankProcesses::end_all() {
  signal_all(SIGTERM);
  kill_at_ = Clock::now() + kTimeToEnd;
}

// With what they have started.
void RankProcesses::signal_all(int signal) const {
  for (const Process& process : processes_) {
    if (process.pid >= 0) {
      ::kill(-process.pid, signal);
    }
  }
}

}  // namespace tpu::driver
