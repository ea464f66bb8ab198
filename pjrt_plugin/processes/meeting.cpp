#include "processes/meeting.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "processes/build_id.hpp"
#include "tpu/error.hpp"

extern "C" char** environ;

namespace tpu::pjrt {
namespace {

using driver::ErrorCode;

constexpr int kServerSocket = 3;  // descriptor of the listening socket in the new process
constexpr int kBacklog = 1024;

[[noreturn]] void refuse_folder(const std::string& folder, const std::string& why) {
  throw driver::Error(ErrorCode::kFailedPrecondition,
                      fmt::format("the processes that share a board cannot meet in {}: {}; "
                                  "TPUBOARD_PROCESS_DIR names another folder",
                                  folder, why));
}

std::string in_folder(const Descriptor& folder, const char* name) {
  return fmt::format("/proc/self/fd/{}/{}", folder.number(), name);
}

Descriptor new_socket() {
  Descriptor made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made.valid()) {
    throw driver::Error(ErrorCode::kResourceExhausted,
                        fmt::format("no socket: {}", std::strerror(errno)));
  }
  return made;
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

// Zero, or errno.
int connect_to(const Descriptor& socket, const std::string& path) {
  const sockaddr_un address = address_of(path);
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  while (::connect(socket.number(), to, sizeof address) != 0) {
    if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

Descriptor listening_socket(const std::string& path, const std::string& folder) {
  ::unlink(path.c_str());
  Descriptor socket = new_socket();
  const sockaddr_un address = address_of(path);
  if (::bind(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || ::listen(socket.number(), kBacklog) != 0) {
    refuse_folder(folder, std::strerror(errno));
  }
  return socket;
}

// The program beside the library that loads it and serves the board.
std::string server_program() {
  const std::string path =
      (std::filesystem::path(library_path()).parent_path() / "tpuboard_server").string();
  if (::access(path.c_str(), X_OK) != 0) {
    throw driver::Error(ErrorCode::kUnavailable,
                        fmt::format("{}: {}; several processes share a board through this program, "
                                    "which is installed beside the library",
                                    path, std::strerror(errno)));
  }
  return path;
}

class SpawnActions {
 public:
  SpawnActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~SpawnActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

void start_server(const Descriptor& socket, const ProcessPlace& place) {
  const std::string program = server_program();
  const std::string library = std::filesystem::absolute(library_path()).string();
  const std::string processes = std::to_string(place.processes);
  SpawnActions actions;
  ::posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(actions.get(), socket.number(), kServerSocket);
  char* const arguments[] = {const_cast<char*>(program.c_str()), const_cast<char*>(library.c_str()),
                             const_cast<char*>(processes.c_str()),
                             const_cast<char*>(place.folder.c_str()), nullptr};
  pid_t child = 0;
  const int error =
      ::posix_spawn(&child, program.c_str(), actions.get(), nullptr, arguments, environ);
  int status = 0;
  // It goes into the background and ends.
  while (error == 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (error != 0 || status != 0) {
    throw driver::Error(
        ErrorCode::kUnavailable,
        fmt::format("{} did not start: {}", program,
                    error != 0 ? std::strerror(error) : "its standard error says why"));
  }
}

}  // namespace

Descriptor private_folder(const std::string& folder) {
  const std::string parent = std::filesystem::path(folder).parent_path().string();
  ::mkdir(parent.c_str(), S_IRWXU);
  ::mkdir(folder.c_str(), S_IRWXU);
  Descriptor opened = open_folder(folder);
  struct stat status {};
  if (!opened.valid() || ::fstat(opened.number(), &status) != 0) {
    refuse_folder(folder, std::strerror(errno));
  }
  if (status.st_uid != ::geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    refuse_folder(folder, fmt::format("expected a folder of user {} that nobody else can write, "
                                      "found one of user {} with mode {:o}",
                                      ::geteuid(), status.st_uid, status.st_mode & 07777U));
  }
  return opened;
}

std::string identity_of(const Descriptor& folder) {
  struct stat status {};
  return folder.valid() && ::fstat(folder.number(), &status) == 0
             ? fmt::format("{}:{}", status.st_dev, status.st_ino)
             : "";
}

MeetingLock::MeetingLock(const std::string& folder)
    : folder_(private_folder(folder)),
      lock_(::open(in_folder(folder_, "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC,
                   S_IRUSR | S_IWUSR)) {
  int failed = lock_.valid() ? 0 : -1;
  while (failed == 0 && (failed = ::flock(lock_.number(), LOCK_EX)) != 0 && errno == EINTR) {
    failed = 0;
  }
  if (failed != 0) {
    refuse_folder(folder, std::strerror(errno));
  }
}

MeetingLock::~MeetingLock() {
  if (lock_.valid()) {
    ::flock(lock_.number(), LOCK_UN);  // also for copies that children of this process have
  }
}

bool MeetingLock::is_folder(const Descriptor& folder) const {
  struct stat here {};
  struct stat there {};
  return ::fstat(folder_.number(), &here) == 0 && ::fstat(folder.number(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

Descriptor open_folder(const std::string& folder) {
  return Descriptor(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

std::string MeetingLock::socket_path() const { return in_folder(folder_, "board.sock"); }

FrameSocket meet(const ProcessPlace& place) {
  const MeetingLock lock(place.folder);
  const std::string path = lock.socket_path();
  Descriptor socket = new_socket();
  const ParentOnly parent_only(socket.number());
  int error = connect_to(socket, path);
  if (error == ENOENT || error == ECONNREFUSED) {
    start_server(listening_socket(path, place.folder), place);
    error = connect_to(socket, path);
  }
  if (error != 0) {
    refuse_folder(place.folder, std::strerror(error));
  }
  return FrameSocket(std::move(socket));
}

}  // namespace tpu::pjrt
