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
#include <cstring>
#include <utility>

#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

// For processes to end once one has failed: those of JAX take SIGTERM as a notice.
constexpr std::chrono::seconds kTimeToEnd{5};
constexpr std::chrono::milliseconds kLongestLook{1000};
constexpr std::chrono::milliseconds kLookAtGroups{50};  // whose end is no signal
constexpr size_t kLongestLine = 65536;
// Output that may wait for its reader. Behind a signal more of it, so that processes can end.
constexpr size_t kMostOutput = size_t{1} << 20U;
constexpr size_t kMostOutputAtEnd = size_t{64} << 20U;
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

std::string end_text(const siginfo_t& end) {
  return end.si_code == CLD_EXITED ? fmt::format("ended with exit code {}", end.si_status)
                                   : fmt::format("was ended by signal {} ({})", end.si_status,
                                                 ::strsignal(end.si_status));
}

}  // namespace

// Where the parent ignores SIGCHLD, no signal would come, and no exit code.
RankProcesses::RankProcesses() {
  struct sigaction noticed {};
  noticed.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &noticed, &child_action_);
  const sigset_t ours = watched_signals();
  ::pthread_sigmask(SIG_BLOCK, &ours, &mask_);
  // A reader of the output that goes away ends the run in order.
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignored, &pipe_action_);
  signals_ = ::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
}

RankProcesses::~RankProcesses() {
  if (running_ > 0) {
    signal_all(SIGKILL);
  }
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
  ::sigaction(SIGCHLD, &child_action_, nullptr);
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
        {pid, pid, {{output.ends[0], false, {}, false}, {errors.ends[0], true, {}, false}}});
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

void RankProcesses::wait() {
  while (running_ > 0 || (code_ != 0 && has_groups() && !killed_)) {
    if (running_ == 0 && !kill_at_) {
      end_all();
    }
    if (kill_at_ && Clock::now() >= *kill_at_) {
      signal_all(SIGKILL);
      kill_at_.reset();
      killed_ = true;
    }
    const auto left = kill_at_ ? std::chrono::ceil<std::chrono::milliseconds>(
                                     std::max(*kill_at_ - Clock::now(), Clock::duration::zero()))
                               : kLongestLook;
    look(std::min(left, running_ > 0 ? kLongestLook : kLookAtGroups));
  }
}

bool RankProcesses::has_groups() const {
  return std::ranges::any_of(processes_, [](const Process& process) { return process.group >= 0; });
}

bool RankProcesses::has_room(const OutputQueue& output) const {
  return output.size() < (told_ == 0 ? kMostOutput : kMostOutputAtEnd);
}

bool RankProcesses::is_open() const {
  return std::ranges::any_of(processes_, [](const Process& process) {
    return process.streams[0].pipe >= 0 || process.streams[1].pipe >= 0;
  });
}

void RankProcesses::drain(std::chrono::milliseconds time) {
  auto end = Clock::now() + time;
  while (is_open() && Clock::now() < end) {
    look(std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()));
    if (told_ == 0 && !(has_room(output_) && has_room(errors_))) {
      end = Clock::now() + time;  // what waits for the reader is not lost
    }
  }
  for (size_t number = 0; number < processes_.size(); ++number) {
    for (Stream& stream : processes_[number].streams) {
      write_begun_line(number, stream);
      if (stream.pipe >= 0) {
        ::close(std::exchange(stream.pipe, -1));
      }
    }
  }
  write_output();
  while (!(output_.is_empty() && errors_.is_empty()) && (told_ == 0 || Clock::now() < end)) {
    look(kLongestLook);
  }
}

// Waits until there is something to read, a signal has come, or output can be written.
void RankProcesses::look(std::chrono::milliseconds time) {
  std::vector<pollfd> open{{signals_, POLLIN, 0}};
  std::vector<std::pair<size_t, Stream*>> of{{0, nullptr}};
  for (size_t number = 0; number < processes_.size(); ++number) {
    for (Stream& stream : processes_[number].streams) {
      if (stream.pipe >= 0 && has_room(output_of(stream))) {
        open.push_back({stream.pipe, POLLIN, 0});
        of.emplace_back(number, &stream);
      }
    }
  }
  for (const OutputQueue* output : {&output_, &errors_}) {
    if (!output->is_empty()) {
      open.push_back({output->file(), POLLOUT, 0});
    }
  }
  if (::poll(open.data(), open.size(), static_cast<int>(time.count())) > 0) {
    for (size_t i = 1; i < of.size(); ++i) {
      if (open[i].revents != 0) {
        read(of[i].first, *of[i].second);
      }
    }
    if (open[0].revents != 0) {
      take_signal();
      take_ended();
    }
    write_output();
  }
  forget_empty_groups();
}

void RankProcesses::write_output() {
  if (const int error = output_.write(); error != 0) {
    errors_.put(
        fmt::format("tpuboard: standard output: cannot be written: {}\n", std::strerror(error)));
    if (code_ == 0) {
      code_ = 1;
      end_all();
    }
  }
  errors_.write();
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
    const bool was_empty = stream.line.empty();
    const bool is_none = was_empty && (c == '\r' || stream.returned);
    if ((ends && !is_none) || stream.line.size() >= kLongestLine) {
      write_line(number, stream);
    }
    if (!ends) {
      stream.line += c;
    }
    stream.returned = c == '\r' && (!was_empty || stream.returned);
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
  output_of(stream).put(fmt::format("[{:>{}}] {}\n", number, digits, stream.line));
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
    killed_ = killed_ || told_ != 0;
    signal_all(killed_ ? SIGKILL : signal);
    told_ = signal;
    code_ = code_ == 0 ? 128 + signal : code_;
  }
}

// Its group has its number for sure until the end of the process is taken.
void RankProcesses::take_ended() {
  for (size_t number = 0; number < processes_.size(); ++number) {
    Process& process = processes_[number];
    siginfo_t end{};
    if (process.pid >= 0 &&
        ::waitid(P_PID, static_cast<id_t>(process.pid), &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        end.si_pid == process.pid) {
      --running_;
      note_end(number, end);
      ::waitpid(std::exchange(process.pid, -1), nullptr, 0);
    }
  }
}

void RankProcesses::note_end(size_t number, const siginfo_t& end) {
  const bool is_exit = end.si_code == CLD_EXITED;
  if ((is_exit && end.si_status == 0) || code_ != 0) {
    return;
  }
  code_ = is_exit ? end.si_status : 128 + end.si_status;
  errors_.put(fmt::format("tpuboard: process {} (pid {}) {}{}\n", number, end.si_pid, end_text(end),
                          running_ > 0 ? "; the others are ended" : ""));
  end_all();
}

void RankProcesses::end_all() {
  signal_all(SIGTERM);
  kill_at_ = Clock::now() + kTimeToEnd;
}

// With what they have started, also what is left of those that have ended.
void RankProcesses::signal_all(int signal) {
  forget_empty_groups();
  for (const Process& process : processes_) {
    if (process.group >= 0) {
      ::kill(-process.group, signal);
    }
  }
}

// No other process gets the number of a group that has a member.
void RankProcesses::forget_empty_groups() {
  for (Process& process : processes_) {
    if (process.pid < 0 && process.group >= 0 && ::kill(-process.group, 0) != 0 && errno == ESRCH) {
      process.group = -1;
    }
  }
}

}  // namespace tpu::driver
