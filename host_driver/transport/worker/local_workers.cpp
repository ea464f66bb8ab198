#include "transport/worker/local_workers.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "options/option_wire.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"
#include "tpu/version.hpp"
#include "tpu/worker.hpp"
#include "transport/worker/worker_messages.hpp"
#include "transport/worker/worker_program.hpp"

namespace tpu::driver::worker {
namespace {

constexpr int kStartMilliseconds = 20'000;
constexpr std::chrono::milliseconds kEnd{5000};
// Descriptors of a process that is made: a socket to the program, a file with what to serve.
constexpr int kMakerSocket = 3;
constexpr int kMakerOptions = 4;

[[noreturn]] void refuse(const std::string& what, int error) {
  throw Error(ErrorCode::kResourceExhausted,
              fmt::format("OpenOptions::board_processes: {}: {}", what, std::strerror(error)));
}

// What a process that is made serves.
struct Made {
  std::string version{kVersion};  // of the program
  std::string address;
  uint32_t boards = 0;
  std::string preset;
  std::vector<std::string> overrides;
  std::string transport;
  std::string firmware_file;
  std::string firmware;
  SimOptions sim;

  void visit_state(spec::Archive& archive) {
    archive(version);
    archive.need(version == kVersion, "it is of another version");
    archive(address, boards, preset, overrides, transport, firmware_file, firmware);
    visit_options(archive, sim);
  }
};

Made made_of(const OpenOptions& options, int count, const std::string& address) {
  Made made;
  made.address = address;
  made.boards = static_cast<uint32_t>(count);
  made.preset = options.preset;
  made.overrides = options.overrides;
  made.transport = options.transport;
  made.firmware_file = options.firmware_file;
  made.firmware.assign(reinterpret_cast<const char*>(options.firmware.data()),
                       options.firmware.size());
  made.sim = options.sim;
  if (made.sim.threads == 0) {
    made.sim.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / count);
  }
  return made;
}

ServeOptions served_by(const Made& made, int maker) {
  ServeOptions served;
  served.listen = made.address;
  served.boards = static_cast<int>(made.boards);
  served.maker = maker;
  served.linger = std::chrono::milliseconds(0);
  served.board.preset = made.preset;
  served.board.overrides = made.overrides;
  served.board.transport = made.transport;
  served.board.firmware_file = made.firmware_file;
  const auto firmware = std::as_bytes(std::span(made.firmware));
  served.board.firmware.assign(firmware.begin(), firmware.end());
  served.board.sim = made.sim;
  return served;
}

// In memory: options may be longer than a socket holds.
base::Descriptor file_with(std::span<const std::byte> bytes) {
  base::Descriptor file(::memfd_create("tpuboard-options", MFD_CLOEXEC));
  if (!file.valid()) {
    refuse("no file in memory", errno);
  }
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.number(), bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      refuse("no file in memory", errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(std::max<ssize_t>(written, 0)));
  }
  return file;
}

std::vector<std::byte> all_of(int file) {
  const off_t size = ::lseek(file, 0, SEEK_END);
  std::vector<std::byte> bytes(static_cast<size_t>(std::max<off_t>(size, 0)));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t got =
        ::pread(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got <= 0) {
      break;  // unpack() finds that bytes are missing
    }
    done += static_cast<size_t>(got);
  }
  return bytes;
}

// What posix_spawn() does in the new process.
class Spawn {
 public:
  Spawn() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
  }
  ~Spawn() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;

  // Of the program's files it has these alone, beside output: a connection that both have would not
  // end. Ctrl-C is for the program.
  int start(std::vector<std::string> words, int maker, int options, pid_t& pid) {
    ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, maker, kMakerSocket);
    ::posix_spawn_file_actions_adddup2(&actions_, options, kMakerOptions);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, kMakerOptions + 1);
    sigset_t signals;
    sigfillset(&signals);
    ::posix_spawnattr_setsigdefault(&attributes_, &signals);
    sigemptyset(&signals);
    ::posix_spawnattr_setsigmask(&attributes_, &signals);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    std::vector<char*> arguments;
    for (std::string& word : words) {
      arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    return ::posix_spawn(&pid, arguments.front(), &actions_, &attributes_, arguments.data(),
                         environ);
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

// Above those that the new process has them as.
base::Descriptor moved_up(const base::Descriptor& file) {
  base::Descriptor up(::fcntl(file.number(), F_DUPFD_CLOEXEC, kMakerOptions + 1));
  if (!up.valid()) {
    refuse("no file", errno);
  }
  return up;
}

// Whether a process, by its descriptor, has ended or does so in this time.
bool ends_within(int process, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max(end - std::chrono::steady_clock::now(), std::chrono::nanoseconds(0)));
    pollfd look{process, POLLIN, 0};
    const int found = ::poll(&look, 1, static_cast<int>(left.count()));
    if (found >= 0 || errno != EINTR) {
      return found == 1;
    }
  }
}

}  // namespace

LocalWorkers::LocalWorkers(const OpenOptions& options, int count) {
  const std::vector<std::string> program = worker_program();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    refuse("no socket", errno);
  }
  end_ = base::Descriptor(ends[0]);
  only_here_.emplace(end_.number());
  base::Descriptor theirs(ends[1]);
  make_folder();
  address_ = "unix:" + (folder_ / "board").string();
  try {
    start(program, theirs, file_with(pack(made_of(options, count, address_))));
    theirs = base::Descriptor();  // it ends with them
    wait_until_they_listen();
  } catch (const Error&) {
    remove_folder();
    throw;
  }
}

void LocalWorkers::start(const std::vector<std::string>& program, const base::Descriptor& maker,
                         const base::Descriptor& options) {
  const int error =
      Spawn().start(program, moved_up(maker).number(), moved_up(options).number(), pid_);
  if (error != 0) {
    refuse("no process of " + program.front(), error);
  }
  process_ = base::Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
}

LocalWorkers::~LocalWorkers() {
  only_here_.reset();
  end_ = base::Descriptor();
  // One that is stopped would not end; those that have the boards end with it.
  if (process_.valid() && !ends_within(process_.number(), kEnd)) {
    ::syscall(SYS_pidfd_send_signal, process_.number(), SIGKILL, nullptr, 0);
  }
  ::waitpid(pid_, nullptr, 0);
  remove_folder();
}

void LocalWorkers::wait_until_they_listen() const {
  pollfd look{end_.number(), POLLIN, 0};
  char listens = 0;
  if (::poll(&look, 1, kStartMilliseconds) == 1 &&
      ::recv(end_.number(), &listens, 1, MSG_DONTWAIT) == 1) {
    return;
  }
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  throw Error(ErrorCode::kResourceExhausted,
              "OpenOptions::board_processes: the processes did not start; their standard error "
              "says why");
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

}  // namespace tpu::driver::worker

namespace tpu::driver {

int serve_boards_of_maker() {
  using namespace worker;  // NOLINT(google-build-using-namespace)
  ::signal(SIGPIPE, SIG_IGN);
  std::filesystem::path folder;
  int code = 0;
  try {
    const base::Descriptor options(kMakerOptions);
    const Made made = unpack<Made>(all_of(options.number()));
    folder = std::filesystem::path(made.address.substr(made.address.find('/'))).parent_path();
    serve_boards(served_by(made, kMakerSocket));
  } catch (const std::exception& error) {
    spec::print(stderr, "tpuboard: processes of a pod: {}\n", error.what());
    code = 1;
  }
  if (!folder.empty()) {
    // The program may have ended without a chance to remove it.
    std::error_code error;
    std::filesystem::remove_all(folder, error);
  }
  return code;
}

}  // namespace tpu::driver
