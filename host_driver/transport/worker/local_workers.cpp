#include "transport/worker/local_workers.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>

#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"
#include "tpu/worker.hpp"

namespace tpu::driver::worker {
namespace {

constexpr int kStartMilliseconds = 20'000;

[[noreturn]] void refuse(const std::string& what, int error) {
  throw Error(ErrorCode::kResourceExhausted,
              fmt::format("OpenOptions::board_processes: {}: {}", what, std::strerror(error)));
}

// Files of the program are not the workers': a connection that both have would not end.
void close_all_but(int kept) {
  const unsigned first = STDERR_FILENO + 1;
  if (kept > static_cast<int>(first)) {
    ::close_range(first, static_cast<unsigned>(kept) - 1, 0);
  }
  ::close_range(static_cast<unsigned>(kept) + 1, ~0U, 0);
}

void reset_signals() {
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    ::signal(signal, SIG_DFL);
  }
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace

LocalWorkers::LocalWorkers(const OpenOptions& options, int count) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    refuse("no socket", errno);
  }
  end_ = base::Descriptor(ends[0]);
  base::Descriptor theirs(ends[1]);
  make_folder();
  address_ = "unix:" + (folder_ / "board").string();
  pid_ = ::fork();
  if (pid_ < 0) {
    const int error = errno;
    remove_folder();
    refuse("no process", error);
  }
  if (pid_ == 0) {
    serve(options, count, address_, theirs.number());
  }
  pollfd look{ends[0], POLLIN, 0};
  char listens = 0;
  theirs = base::Descriptor();  // it ends with them
  if (::poll(&look, 1, kStartMilliseconds) != 1 ||
      ::recv(ends[0], &listens, 1, MSG_DONTWAIT) != 1) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    remove_folder();
    throw Error(ErrorCode::kResourceExhausted,
                "OpenOptions::board_processes: the processes did not start");
  }
}

LocalWorkers::~LocalWorkers() {
  end_ = base::Descriptor();
  ::waitpid(pid_, nullptr, 0);
  remove_folder();
}

void LocalWorkers::make_folder() {
  std::error_code error;
  std::filesystem::path base = std::filesystem::temp_directory_path(error);
  std::string name = ((error ? "/tmp" : base) / "tpuboard-pod-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    refuse("no folder " + name, errno);
  }
  folder_ = name;
}

void LocalWorkers::remove_folder() const {
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

// In the child. What it has of the program is memory alone.
void LocalWorkers::serve(const OpenOptions& options, int count, const std::string& address,
                         int maker) {
  close_all_but(maker);
  ::setpgid(0, 0);  // Ctrl-C is for the program
  reset_signals();
  ServeOptions served;
  served.listen = address;
  served.boards = count;
  served.maker = maker;
  served.linger = std::chrono::milliseconds(0);
  served.board.preset = options.preset;
  served.board.overrides = options.overrides;
  served.board.transport = options.transport;
  served.board.firmware_file = options.firmware_file;
  served.board.firmware = options.firmware;
  served.board.sim = options.sim;
  if (served.board.sim.threads == 0) {
    served.board.sim.threads =
        std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / count);
  }
  int code = 0;
  try {
    serve_boards(served);
  } catch (const std::exception& error) {
    spec::print(stderr, "tpuboard: processes of a pod: {}\n", error.what());
    code = 1;
  }
  // The program may have ended without a chance to remove it.
  std::error_code error;
  std::filesystem::remove_all(
      std::filesystem::path(address.substr(address.find('/'))).parent_path(), error);
  ::_exit(code);
}

}  // namespace tpu::driver::worker
