#include "cli/python_program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "socket/descriptor.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

// What a new process does with its descriptors before it runs its program.
class SpawnActions {
 public:
  SpawnActions() { posix_spawn_file_actions_init(&actions_); }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;

  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

// `python -c` looks for modules in the working folder first, where others may have put a json.py;
// and a folder `jax` there looks like a package.
constexpr char kWithoutWorkingFolder[] = "import sys\nsys.path[:] = [p for p in sys.path if p]\n";

// `actions`: null for none.
pid_t start(std::string python, const std::string& program,
            const posix_spawn_file_actions_t* actions, const std::string& advice) {
  std::string option = "-c";
  std::string code = kWithoutWorkingFolder + program;
  std::array<char*, 4> words = {python.data(), option.data(), code.data(), nullptr};
  pid_t pid = 0;
  if (const int error = posix_spawnp(&pid, words[0], actions, nullptr, words.data(), environ);
      error != 0) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("{}: cannot be started: {}; {}", python, std::strerror(error), advice));
  }
  return pid;
}

int exit_code(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

using Clock = std::chrono::steady_clock;

// False: the time is over.
bool has_something_to_read(int file, Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
  pollfd wanted{.fd = file, .events = POLLIN, .revents = 0};
  const int found = left.count() > 0 ? ::poll(&wanted, 1, static_cast<int>(left.count())) : 0;
  return found > 0 || (found < 0 && errno == EINTR && has_something_to_read(file, end));
}

// False: the time was over before the end of the text.
bool read_all(int file, Clock::time_point end, std::string& text) {
  std::array<char, 4096> piece{};
  while (has_something_to_read(file, end)) {
    const ssize_t count = ::read(file, piece.data(), piece.size());
    if (count > 0) {
      text.append(piece.data(), static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      return true;
    }
  }
  return false;
}

// False: it runs on.
bool ends_by(pid_t pid, Clock::time_point end) {
  constexpr std::chrono::milliseconds kPause{2};
  siginfo_t state{};
  while (waitid(P_PID, static_cast<id_t>(pid), &state, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         state.si_pid == 0) {
    if (Clock::now() >= end) {
      return false;
    }
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace

int run_python(const std::string& python, const std::string& code, const std::string& advice) {
  return exit_code(start(python, code, nullptr, advice));
}

PythonOutput ask_python(const std::string& python, const std::string& code,
                        std::chrono::milliseconds limit, const std::string& advice) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{}: no pipe: {}; {}", python, std::strerror(errno), advice));
  }
  const base::Descriptor output(ends[0]);
  base::Descriptor input(ends[1]);
  SpawnActions actions;
  posix_spawn_file_actions_adddup2(actions.get(), input.number(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(actions.get(), STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const Clock::time_point end = Clock::now() + limit;
  const pid_t pid = start(python, code, actions.get(), advice);
  input = base::Descriptor();
  PythonOutput found;
  found.ended = read_all(output.number(), end, found.text) && ends_by(pid, end);
  if (!found.ended) {
    ::kill(pid, SIGKILL);
  }
  found.code = exit_code(pid);
  return found;
}

}  // namespace tpu::driver
